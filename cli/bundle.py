"""`rigwright bundle`: everything from outside that hosts need, in a folder."""

from __future__ import annotations

from pathlib import Path

import click

from cli.exit_codes import NotAsDeclared
from cli.inventory_loading import INVENTORY_ARGUMENT, SuggestingChoice
from cli.option_types import KernelRelease, OutputFolder
from rigwright.host.supported_systems import SYSTEMS
from rigwright.problems import Invalid


@click.command()
@INVENTORY_ARGUMENT
@click.option(
    "--system",
    "systems",
    multiple=True,
    type=SuggestingChoice(SYSTEMS),
    help="System of the hosts, for their packages; repeatable.",
)
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    type=KernelRelease(),
    help="Kernel of boxes with a managed driver, as `uname -r` prints it; repeatable.",
)
@click.option(
    "--output",
    type=OutputFolder(),
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
    help="A file for `rigwright show advisories --db`; repeatable.",
)
def bundle(
    inventory: str,
    systems: tuple[str, ...],
    kernels: tuple[str, ...],
    output: Path | None,
    from_dir: Path | None,
    advisories: tuple[Path, ...],
) -> None:
    """Pack inputs for offline use.

    Collects locked sources, wheels and weights, and each --system's packages with dependencies. A rig whose key
    `bundle` names the folder gets them over SSH. Existing files are kept if their hashes match.
    A managed driver comes with headers of the archive's newest kernel and of each --kernel.
    Example: rigwright bundle rig.py --system debian-12
    """
    # pyinfra's gevent must be there before anything loads ssl
    from cli.bundle_builder import BundleBuilder
    from cli.lock_resolver.lock_run import NothingToLock

    if not systems:
        raise click.UsageError("name the hosts' system with --system, such as --system debian-12")
    try:
        bundler = BundleBuilder(Path(inventory), output, from_dir, advisories, tuple(dict.fromkeys(kernels)))
    except (Invalid, NothingToLock) as error:
        raise click.ClickException(str(error)) from None
    try:
        bundler.build_bundle(sorted(set(systems)))
    except (Invalid, NothingToLock) as error:
        raise NotAsDeclared(str(error)) from None
    except OSError as error:  # a full disk names no file
        raise NotAsDeclared(f"{error.filename or bundler.folder}: {error.strerror}") from None
