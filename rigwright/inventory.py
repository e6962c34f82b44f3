"""Inventories: ordinary pyinfra inventories whose host data is the rig.

    from rigwright.inventory import hosts

    rigs = hosts({
        "rig3090": {
            "ssh_hostname": "192.0.2.7", "ssh_user": "ops", "_sudo": True,
            "cards": ["rtx-3090"],
            "instances": {"chat": {"variant": "llamacpp/65k", "cards": [0], "port": 8020}},
        },
    })

Keys that start with `ssh_` or `_sudo` are pyinfra's; all others are `rigwright.rig.RigEntry`'s fields.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rigwright.catalog import Catalog
from rigwright.lock import Lock
from rigwright.problems import Invalid, Problem, suggestion
from rigwright.rig import Rig, RigEntry, parse
from rigwright.types import Name

ROOT = Path(__file__).resolve().parent.parent
# https://docs.pyinfra.com/en/3.x/connectors/ssh.html; passwords are not among them: use a key
CONNECTION_KEYS = frozenset(
    {
        "ssh_hostname",
        "ssh_port",
        "ssh_user",
        "ssh_key",
        "ssh_config_file",
        "ssh_known_hosts_file",
        "ssh_strict_host_key_checking",
        "ssh_forward_agent",
        "ssh_connect_retries",
        "_sudo",
    }
)

HostGroup = list[tuple[str, dict[str, object]]]


def hosts(entries: dict[str, dict[str, object]]) -> HostGroup:
    """Validate rigs while the inventory loads and return them as a pyinfra group.

    Raises:
        SystemExit: something is wrong; its text says all of it. Only this exception ends pyinfra with a clean
            text and exit code 1 before it connects.
    """
    file = str(Path(sys._getframe(1).f_code.co_filename).resolve())
    # its spinner and a progress line of ours would write over each other
    os.environ.setdefault("PYINFRA_PROGRESS", "off")
    try:
        return _group(file, entries)
    except Invalid as error:
        raise SystemExit(str(error)) from None


def _group(file: str, entries: dict[str, dict[str, object]]) -> HostGroup:
    from roles.transport import nodelay  # the only thing in an inventory that needs pyinfra's world

    group: HostGroup = []
    problems: list[Problem] = []
    for name, entry in entries.items():
        connection = {key: value for key, value in entry.items() if key in CONNECTION_KEYS}
        declared = {key: value for key, value in entry.items() if key not in CONNECTION_KEYS}
        problems += _refuse_connection(file, name, entry)
        rig = {"name": name, "inventory": file, "entry": declared}
        try:
            load(rig)
        except Invalid as error:
            problems += error.problems
        group.append((name, {**connection, "ssh_paramiko_connect_kwargs": {"transport_factory": nodelay}, "rig": rig}))
    if problems:
        raise Invalid(problems)
    return group


def _refuse_connection(file: str, name: str, entry: dict[str, object]) -> list[Problem]:
    found = []
    try:
        _check_name(name)
    except ValueError as error:
        found.append(Problem(file, repr(name), f"is no name for a rig: {error}"))
    allowed = CONNECTION_KEYS | set(RigEntry.model_fields)
    for key, value in entry.items():
        if key not in allowed and key.startswith(("ssh_", "_")):
            found.append(Problem(file, f"{name}.{key}", "unknown key" + suggestion(key, allowed)))
        if key in ("ssh_hostname", "ssh_user") and not (isinstance(value, str) and _plain(value)):
            found.append(Problem(file, f"{name}.{key}", f"{value!r} is refused: must be a plain word, no leading dash"))
    return found


def _plain(word: str) -> bool:
    return bool(word) and not word.startswith("-") and all(c.isalnum() or c in "._:-@" for c in word) and word.isascii()


def _check_name(name: str) -> None:
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None


def layers(inventory: Path, noun: str) -> list[Path]:
    """The folders a rig's catalogue or lock is read from: ours, then the one beside its inventory."""
    ours = ROOT / noun
    beside = inventory.resolve().parent / noun
    return [ours, beside] if beside.is_dir() and beside != ours else [ours]


def load(data: object) -> Rig:
    """The rig that host data describes; read again where a role is given it, for `--data` may have changed it.

    Raises:
        Invalid: with every mistake in it.
    """
    if not (isinstance(data, dict) and {"name", "inventory", "entry"} == set(data)):
        raise Invalid([Problem("host data", "rig", "is not what rigwright.inventory.hosts() made; was it overridden?")])
    inventory = Path(str(data["inventory"]))
    problems: list[Problem] = []
    read: list[object] = []
    for loader, noun in ((Catalog.load, "catalog"), (Lock.load, "locks")):
        try:
            read.append(loader(layers(inventory, noun)))
        except Invalid as error:
            problems += error.problems
    if problems:
        raise Invalid(problems)
    catalog, lock = read
    assert isinstance(catalog, Catalog) and isinstance(lock, Lock)  # noqa: S101 (for the type checker)
    return parse(str(inventory), str(data["name"]), data["entry"], catalog, lock)
