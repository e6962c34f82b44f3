"""What `rigwright lock` does: read, resolve, write and tell, or look and tell."""

from __future__ import annotations

import runpy
from pathlib import Path

import click

from rigwright.cli.resolving import folders as folders_of
from rigwright.cli.resolving import upstream, web
from rigwright.cli.resolving.difference import difference
from rigwright.cli.resolving.drivers import Addresses, Drivers
from rigwright.cli.resolving.folders import Folders
from rigwright.cli.resolving.index import Index, index_url
from rigwright.cli.resolving.resolver import Resolver
from rigwright.driver.tables import tables
from rigwright.inventory import ROOT, load, making
from rigwright.lock import Artefact
from rigwright.resolve import Making
from rigwright.rig import Rig, urls


class Unusable(Exception):
    """There is nothing to work on, or no inventory to do it for; the text says why."""


def write(inventory: Path | None, from_dir: Path | None, refresh: bool) -> int:
    """Lock the inputs beside an inventory, or our own, and print what changed; returns the exit status.

    Args:
        inventory: Whose catalogue and mirrors.
        from_dir: A folder with files that need not be fetched.
        refresh: Whether what is locked already is found again too.

    Raises:
        Unusable: there is nothing to lock.
        Invalid: with everything that could not be read or resolved.
        OSError: a lock could not be written.
    """
    folders, resolver = _read(inventory, from_dir, refresh)
    for problem in folders.unread:
        click.echo(f"{problem}\n  it is written anew", err=True)
    resolved = resolver.resolve(folders)
    new = [row for found in resolved.rows.values() for row in found]
    texts = folders.texts(resolved.rows, resolved.keys)
    if not texts and not folders.locked:
        raise Unusable(f"{folders.locks.parent / 'catalog'}: no inputs: there is nothing to lock")
    folders.write(texts)
    for line in difference(folders.rows, new) or ["no change"]:
        click.echo(line)
    return 0


def look(inventory: Path | None) -> int:
    """Print what moved upstream; returns 0 if nothing did, 1 if something did, 2 if something could not be looked at.

    Raises:
        Unusable: there is no inventory to look for.
        Invalid: with everything that could not be read.
    """
    folders, resolver = _read(inventory)
    found = upstream.look(resolver, folders)
    for line in [*map(str, folders.unread), *found.moved]:
        click.echo(line)
    for line in found.nowhere:
        click.echo(f"not looked at: {line}")
    for line in found.unseen:
        click.echo(f"could not look: {line}", err=True)
    if not (folders.unread or found.moved or found.unseen):
        click.echo("nothing moved")
    return 2 if found.unseen else 1 if folders.unread or found.moved else 0


def _read(inventory: Path | None, from_dir: Path | None = None, refresh: bool = False) -> tuple[Folders, Resolver]:
    rigs = rigs_of(inventory, "lock")
    base = inventory.resolve().parent if inventory else ROOT
    folders = folders_of.read(base)
    session, of = web.session(), addresses(rigs)
    apt = tuple(dict.fromkeys(url for rig in rigs for url in rig.mirrors.get("apt", ())))
    drivers = Drivers(session, of, tables(base), apt)
    return folders, Resolver(session, Index(session, index_url()), of, drivers, from_dir, refresh)


def rigs_of(inventory: Path | None, what: Making) -> list[Rig]:
    """The rigs of an inventory; none without one.

    Args:
        inventory: The file.
        what: What of them is only being made.

    Raises:
        Unusable: the inventory is refused, or ends with an error.
    """
    if inventory is None:
        return []
    with making(what):
        try:
            variables = runpy.run_path(str(inventory))
        except SystemExit as ended:
            raise Unusable(str(ended.code)) from None
        except Exception as error:  # an inventory is the operator's program: anything can come out of it
            raise Unusable(f"{inventory}: {type(error).__name__}: {error}") from None
        groups = [value[0] if isinstance(value, tuple) and value else value for value in variables.values()]
        found = [item for group in groups if isinstance(group, list) for item in group]
        return [
            load(item[1]["rig"])
            for item in found
            if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], dict) and "rig" in item[1]
        ]


def addresses(rigs: list[Rig]) -> Addresses:
    """What gives a row's addresses, in order: those of every rig that shares the lock."""

    def of(row: Artefact) -> list[str]:
        mirrors = [rig.mirrors for rig in rigs] or [{}]
        return list(dict.fromkeys(url for known in mirrors for url in urls(row, known)))

    return of
