"""`rigwright lock`: what catalogues ask for, found, hashed and written down."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import click

from rigwright.cli.resolving import folders as folders_of
from rigwright.cli.resolving import upstream, web
from rigwright.cli.resolving.difference import difference
from rigwright.cli.resolving.folders import Folders
from rigwright.cli.resolving.index import Index, index_url
from rigwright.cli.resolving.resolver import Addresses, Resolver
from rigwright.inventory import ROOT, load, locking
from rigwright.lock import Artefact
from rigwright.problems import Invalid
from rigwright.rig import Rig, urls


class CannotLook(click.ClickException):
    """`--check` cannot say whether something moved."""

    exit_code = 2


@click.command()
@click.argument("inventory", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--check", "only_look", is_flag=True, help="Write nothing; say what moved upstream.")
@click.option("--refresh", is_flag=True, help="Fetch and resolve again what is locked already.")
@click.option(
    "--from-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Hash the files that lie in this folder instead of fetching them.",
)
def lock(inventory: Path | None, only_look: bool, refresh: bool, from_dir: Path | None) -> None:
    """Find and hash the inputs of the catalogue beside INVENTORY, and write them to the locks folder beside it.

    Without INVENTORY, Rigwright's own catalogue is locked. What is locked already stays as it is: only a changed input
    is fetched, and packages keep their versions, unless --refresh is given. Nothing is written when one input fails.

    Exit status of --check: 0, nothing moved upstream. 1: something did. 2: something could not be looked at.

    Example: rigwright lock ~/boxes/rig.py
    """
    if only_look and (refresh or from_dir):
        raise click.UsageError("--check writes nothing: --refresh and --from-dir do not go with it")
    failure = CannotLook if only_look else click.ClickException
    try:
        rigs = _rigs(inventory, failure) if inventory else []
        folders = folders_of.read(inventory.resolve().parent if inventory else ROOT)
        session = web.session()
        resolver = Resolver(session, Index(session, index_url()), addresses(rigs), from_dir, refresh)
        if only_look:
            sys.exit(_look(resolver, folders))
        _write(resolver, folders)
    except (Invalid, OSError) as error:
        raise failure(str(error)) from None


def _rigs(inventory: Path, failure: type[click.ClickException]) -> list[Rig]:
    with locking():
        try:
            variables = runpy.run_path(str(inventory))
        except SystemExit as ended:
            raise failure(str(ended.code)) from None
        except Exception as error:  # an inventory is the operator's program: anything can come out of it
            raise failure(f"{inventory}: {type(error).__name__}: {error}") from None
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


def _write(resolver: Resolver, folders: Folders) -> None:
    for problem in folders.unread:
        click.echo(f"{problem}\n  it is written anew", err=True)
    rows = resolver.resolve(folders)
    new = [row for found in rows.values() for row in found]
    texts = folders.texts(rows)
    if not texts and not folders.locked:
        raise click.ClickException(f"{folders.locks.parent / 'catalog'}: no inputs: there is nothing to lock")
    folders.write(texts)
    for line in difference(folders.rows, new) or ["no change"]:
        click.echo(line)


def _look(resolver: Resolver, folders: Folders) -> int:
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
