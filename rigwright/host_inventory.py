"""Inventories in Ansible's formats, from a file or a command, read only and judged as Python inventories are.

from rigwright.host_inventory import hosts_of_file
from rigwright.inventory import hosts

rigs = hosts(hosts_of_file("hosts.ini", group="gpu"), ssh_user="ops", _sudo=True)
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from rigwright import local_files
from rigwright.declaration.host_file_formats import FORMATS, parse_host_file
from rigwright.declaration.host_groups import ALL, rig_entries
from rigwright.inventory import RIG_KEYS, make_group
from rigwright.model.secret_sources import CommandSource, read_secret
from rigwright.problems import Invalid, Problem, format_value

LARGEST = 16 << 20  # bytes of a file, or of a command's output
Entries = dict[str, dict[str, object]]
_FOLDERS = ("group_vars", "host_vars")


def hosts_of_file(path: str, *, group: str = ALL, ignore: Collection[str] = ()) -> Entries:
    """The rigs of a file, as `hosts()` takes them: name -> keys.

    Args:
        path: The file, relative to the inventory: `.ini`, `.yml`, `.yaml`, or `.json` of `ansible-inventory --list`.
        group: The group whose hosts are rigs.
        ignore: Variables of other programs.

    Raises:
        SystemExit: the file is refused; the text has every mistake.
    """
    caller = Path(sys._getframe(1).f_code.co_filename).resolve()
    try:
        return _read_file(caller.parent / Path(path).expanduser(), group, ignore)[0]
    except Invalid as error:
        raise SystemExit(str(error)) from None


def hosts_of_command(command: Sequence[str], *, group: str = ALL, ignore: Collection[str] = ()) -> Entries:
    """The rigs that a command prints as JSON, as `ansible-inventory --list` does. It runs once in a process, in the
    inventory's folder, without a shell and a terminal, for at most 60 seconds.

    Args:
        command: The program and its arguments.
        group: The group whose hosts are rigs.
        ignore: Variables of other programs.

    Raises:
        SystemExit: the command fails, or its output is refused; the text has every mistake.
    """
    caller = Path(sys._getframe(1).f_code.co_filename).resolve()
    if isinstance(command, str) or not command or not all(isinstance(one, str) and one for one in command):
        text = f"{format_value(command)} is refused: must be a list, such as"
        raise SystemExit(f'{caller}: hosts_of_command(): {text} ["ansible-inventory", "--list"]')
    source = CommandSource((*command,), str(caller.parent))
    try:
        content = read_secret(source, LARGEST)
    except ValueError as error:
        raise SystemExit(str(Invalid([Problem(str(caller), str(source), str(error))]))) from None
    try:
        return _rigs_of(str(source), content, "JSON", group, ignore)[0]
    except Invalid as error:
        raise SystemExit(str(error)) from None


def is_host_file(inventory: str) -> bool:
    """Whether an inventory is a file in one of Ansible's formats, by its suffix."""
    return Path(inventory).suffix.lower() in FORMATS


def run_inventory(inventory: str) -> dict[str, Any]:
    """The variables of an inventory: of a Python file its own; of a host file its groups, `all` with the hosts' data.

    Raises:
        SystemExit: it is refused; a Python file may raise anything.
    """
    return load_host_file(inventory) if is_host_file(inventory) else runpy.run_path(inventory)


def load_host_file(inventory: str) -> dict[str, Any]:
    """Groups of a host file: `all` with each rig's name and data, the others with names.

    Raises:
        SystemExit: the file is refused; the text has every mistake.
    """
    file = str(Path(inventory).resolve())
    try:
        entries, members = _read_file(Path(file), ALL, ())
    except Invalid as error:
        raise SystemExit(str(error)) from None
    return members | {ALL: make_group(file, entries)}


def _read_file(path: Path, group: str, ignore: Collection[str]) -> tuple[Entries, dict[str, list[str]]]:
    form = FORMATS.get(path.suffix.lower(), "")
    if not form:
        allowed = ", ".join(FORMATS)
        raise Invalid([Problem(str(path), "", f"is refused: its name must end with one of {allowed}")])
    try:
        content = local_files.read_content(path, LARGEST)
    except ValueError as error:
        raise Invalid([Problem(str(path), "", str(error))]) from None
    text = (
        f"is not read: `ansible-inventory -i {path.name} --list --output hosts.json` writes a file with all variables"
    )
    folders = [path.parent / name for name in _FOLDERS] if form != "JSON" else []
    if problems := [Problem(str(one), "", text) for one in folders if one.is_dir()]:
        raise Invalid(problems)
    return _rigs_of(str(path), content, form, group, ignore)


def _rigs_of(
    file: str, content: bytes, form: str, group: str, ignore: Collection[str]
) -> tuple[Entries, dict[str, list[str]]]:
    try:
        return rig_entries(parse_host_file(file, content, form), group, ignore, RIG_KEYS)
    except RecursionError:
        raise Invalid([Problem(file, "", "is nested too deeply")]) from None
