"""What an inventory declares, read without reaching a host."""

from __future__ import annotations

import fnmatch
import runpy
from pathlib import Path
from typing import Any

import click

from rigwright.declaration.rig import Rig
from rigwright.inventory import load
from rigwright.problems import Invalid, shown, unknown

INVENTORY = click.argument("inventory", type=click.Path(exists=True, dir_okay=False))
LIMIT = click.option("--limit", help="Only this host or group.")


class Refused(click.ClickException):
    """No host was looked at, for something is refused."""

    exit_code = 2


def named(inventory: str, limit: str | None) -> dict[str, dict[str, Any]]:
    """The hosts of an inventory that a limit names, with their data.

    Raises:
        click.ClickException: a mistake in the inventory, no hosts, or none that the limit names. pyinfra would call
            the last two a success.
    """
    groups: dict[str, list[str]] = {}
    hosts: dict[str, dict[str, Any]] = {}
    try:
        variables = runpy.run_path(inventory)
    except SystemExit as error:
        said = error.code if isinstance(error.code, str) else ""
        raise click.ClickException(said or f"{inventory}: ends without hosts") from None
    except Exception as error:  # an inventory is the operator's program: anything can come out of it
        raise click.ClickException(f"{inventory}: {type(error).__name__}: {error}") from None
    ignored = ""
    for name, value in variables.items():
        listed = value[0] if isinstance(value, tuple) and value else value
        if not isinstance(listed, list) or name.startswith("_"):
            continue
        if odd := [item for item in listed if not isinstance(item, (str, tuple))]:
            ignored = f"; {name} is no group, for it holds {shown(odd[0])}"
            continue  # to pyinfra it is a list like any other
        members = [_member(f"{inventory}: {name}", item) for item in listed]
        groups[name] = [host for host, _ in members]
        hosts |= dict(members)
    if not hosts:
        raise click.ClickException(f"{inventory}: no hosts{ignored}")
    names = {*hosts, *groups, Path(inventory).stem}
    if limit is None or limit == Path(inventory).stem:
        return hosts
    wanted = set(groups.get(limit, fnmatch.filter(hosts, limit)))
    if not wanted:
        raise click.ClickException(f"--limit: {unknown('host or group', limit, names)}")
    return {host: data for host, data in hosts.items() if host in wanted}


def _member(place: str, item: str | tuple[Any, ...]) -> tuple[str, dict[str, Any]]:
    """A host of a group and its data."""
    host, data = item if isinstance(item, tuple) and len(item) == 2 else (item, {})
    if not (isinstance(host, str) and host and isinstance(data, dict)):
        raise click.ClickException(f"{place}: {shown(item)} is refused: must be a host's name, or (name, its data)")
    return host, data


def rig_of(name: str, data: object) -> Rig:
    """The rig that a host's data describes.

    Raises:
        click.ClickException: it describes none.
    """
    try:
        return load(data)
    except Invalid as error:
        raise click.ClickException(f"{name}: {error}") from None


def whole(rig: Rig) -> Rig:
    """A rig whose bundle, if it has one, has all that a deploy needs.

    Raises:
        click.ClickException: it has not; the text says all that is wrong with it.
    """
    if rig.bundle_faults:
        raise click.ClickException("\n".join(map(str, rig.bundle_faults)))
    return rig
