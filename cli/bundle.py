"""`rigwright bundle`: everything from outside that hosts need, in a folder."""

from __future__ import annotations

from pathlib import Path

import click

from cli.exit_codes import NotAsDeclared
from cli.inventory_loading import SuggestingChoice
from rigwright.host.supported_systems import SYSTEMS
from rigwright.problems import Invalid


@click.command()
@click.argument("inventory", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--system",
    "systems",
    multiple=True,
    type=SuggestingChoice(SYSTEMS),
    help="System of the hosts, for their packages; repeatable.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Output folder; default: the rigs' bundle folder.",
)
@click.option(
    "--from-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with files that are already available.",
)
@click.option(
    "--advisories",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file for `rigwright advisories --db` to take along; repeatable.",
)
def bundle(
    inventory: Path,
    systems: tuple[str, ...],
    output: Path | None,
    from_dir: Path | None,
    advisories: tuple[Path, ...],
) -> None:
    """Bring together what the hosts of INVENTORY need from outside, for hosts that reach nothing.

    Sources, wheels and weights by the lock, and packages of each --system with all that they need. A rig whose key
    `bundle` names the folder gets everything from there, over SSH. What is there already is kept; a file whose hash
    differs is fetched again.
    Example: rigwright bundle ~/boxes/rig.py --system debian-12
    """
    # pyinfra's gevent must be there before anything loads ssl
    from cli.bundle_builder import BundleBuilder
    from cli.lock_resolver.lock_run import NothingToLock

    if not systems:
        raise click.UsageError("name the hosts' system with --system, such as --system debian-12")
    try:
        bundler = BundleBuilder(inventory, output, from_dir, advisories)
    except (Invalid, NothingToLock) as error:
        raise click.ClickException(str(error)) from None
    try:
        bundler.build_bundle(sorted(set(systems)))
    except (Invalid, NothingToLock) as error:
        raise NotAsDeclared(str(error)) from None
    except OSError as error:  # a full disk names no file
        raise NotAsDeclared(f"{error.filename or bundler.folder}: {error.strerror}") from None
