"""`rigwright lock`: the inputs of catalogues, found, hashed and recorded."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cli.exit_codes import HostUnreached, NotAsDeclared
from cli.inventory_loading import optional_inventory
from rigwright.problems import Invalid


@click.command()
@optional_inventory()
@click.option("--check", "only_look", is_flag=True, help="Only list upstream changes.")
@click.option("--refresh", is_flag=True, help="Resolve and fetch locked inputs again.")
@click.option(
    "--from-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Hash the files in this folder instead of fetching them.",
)
def lock(inventory: str | None, only_look: bool, refresh: bool, from_dir: Path | None) -> None:
    """Pin and hash all inputs.

    Locks the catalogue next to INVENTORY, and models and conda packages that its rigs use, in locks/ next to it.
    Without INVENTORY, Rigwright's own catalogue. Locked inputs keep their versions without --refresh. If one input
    fails, nothing is written.
    Exit status: 0, locked; with --check, no change upstream. 1, an input is unavailable, or changed upstream. 2, the
    command or a file is refused. 3, --check did not reach a server.
    Example: rigwright lock rig.py
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
