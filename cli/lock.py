"""`rigwright lock`: what catalogues ask for, found, hashed and written down."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cli.exit_codes import HostUnreached, NotAsDeclared
from cli.inventory_loading import InventoryPath
from rigwright.problems import Invalid


@click.command()
@click.argument("inventory", required=False, type=InventoryPath())
@click.option("--check", "only_look", is_flag=True, help="Write nothing; report what changed upstream.")
@click.option("--refresh", is_flag=True, help="Fetch and resolve again even if already locked.")
@click.option(
    "--from-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Hash the files in this folder instead of fetching them; of your own checkpoint, all of it.",
)
def lock(inventory: str | None, only_look: bool, refresh: bool, from_dir: Path | None) -> None:
    """Find and hash the inputs of the catalogue beside INVENTORY, and write them to the locks folder beside it.

    Models and conda packages of Rigwright's own catalogue are locked there too, where a rig of INVENTORY uses them.
    Without INVENTORY, Rigwright's own catalogue is locked, without those. What is locked already stays as it is: only a
    changed input is fetched, and packages keep their versions, unless --refresh is given. Nothing is written when one
    input fails.

    Exit status: 0, all is locked, or with --check, nothing moved upstream. 1: something is not to be had, or did move.
    2: the command is refused. 3: with --check, something could not be looked at.

    Example: rigwright lock ~/boxes/rig.py
    """
    if only_look and (refresh or from_dir):
        raise click.UsageError("--check writes nothing: it conflicts with --refresh and --from-dir")
    # here, for no other verb has to wait for it; and pyinfra's gevent must be there before anything loads ssl
    from cli.lock_resolver import lock_run

    file = Path(inventory) if inventory else None
    try:
        status = lock_run.print_upstream_changes(file) if only_look else lock_run.write_locks(file, from_dir, refresh)
    except lock_run.NothingToLock as error:
        raise click.ClickException(str(error)) from None
    except (Invalid, OSError) as error:
        raise (HostUnreached if only_look else NotAsDeclared)(str(error)) from None
    sys.exit(status)
