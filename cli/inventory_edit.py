"""An inventory that a verb edits: its new text, its changes, and the file in its place, in one step."""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from cli.exit_codes import NotAsDeclared
from cli.inventory_loading import load_hosts, load_hosts_from_text
from rigwright.declaration.variant_selection import VariantSwitch, apply_switch, edit_inventory, instances_sharing_name
from rigwright.host_inventory import is_host_file
from rigwright.problems import Invalid
from rigwright.project_root import require_own_place


def edit_inventory_text(inventory: str, content: bytes, host: str, data: dict[str, Any], order: VariantSwitch) -> bytes:
    """The inventory's content with the other variant in it, that says nothing else that is different.

    Raises:
        click.ClickException: it would, or it could not be written.
    """
    if is_host_file(inventory):
        raise click.ClickException(f"{inventory} is never edited: change it by hand, or try it with --once")
    if not os.access(inventory, os.W_OK):
        raise click.ClickException(f"{inventory} is read-only: make it writable, or try it with --once")
    try:
        text = edit_inventory(inventory, content, host, order, instances_sharing_name(data["rig"], order.instance)[1:])
        wanted = apply_switch(data["rig"], order)
    except Invalid as error:
        raise click.ClickException(str(error)) from None
    before = {name: one.get("rig") for name, one in load_hosts(inventory, None).items()}
    after = {name: one.get("rig") for name, one in load_hosts_from_text(inventory, text).items()}
    if after != before | {host: wanted}:
        changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name)) or [host]
        raise click.ClickException(
            f"{inventory}: to edit {order.instance}'s variant there would be another change than that "
            f"({', '.join(changed)}): make it {order.variant!r} by hand, or try it with --once"
        )
    return text


def print_diff(inventory: str, content: bytes, text: bytes) -> None:
    """Print it as `diff -u` does."""
    before, after = (one.decode(errors="replace").splitlines() for one in (content, text))
    for changed in difflib.unified_diff(before, after, inventory, inventory, n=1, lineterm=""):
        click.echo(changed)


def replace_file(path: Path, before: bytes, content: bytes) -> None:
    """Replace a file in one step, and keep its owner and mode.

    Raises:
        click.ClickException: it is not as before any more, or cannot be written; it is as it was.
    """
    path = path.resolve()
    if path.read_bytes() != before:
        raise click.ClickException(f"{path} was changed meanwhile; nothing was changed: run the same command again")
    try:
        require_own_place(path)
        # at an unpredictable name, so that no link can be there
        made, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}; nothing was changed") from None
    new = Path(name)
    try:
        with open(made, "wb") as file:
            file.write(content)
        shutil.copystat(path, new)
        with suppress(PermissionError):
            os.chown(new, path.stat().st_uid, path.stat().st_gid)
        with new.open("rb") as written:
            os.fsync(written.fileno())
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise click.ClickException(f"cannot write {path}: {error.strerror}; nothing was changed") from None


def restore_file(path: Path, content: bytes, text: bytes, said: str) -> None:
    """Put back what was edited.

    Raises:
        NotAsDeclared: the file has changed meanwhile.
    """
    if path.read_bytes() != text:
        raise NotAsDeclared(f"{said}. {path} changed meanwhile and was not overwritten: edit it by hand")
    replace_file(path, text, content)
