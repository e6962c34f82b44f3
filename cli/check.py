"""The verb that runs the checks."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import click

from checks import SEVERITIES
from cli import completing, quick
from cli.completing import LIMIT
from cli.declared import InventoryFile, Word
from cli.ending import Refused
from cli.tables import paragraph, say
from rigwright.problems import unknown


@click.command()
@click.argument("inventory", type=InventoryFile(), required=False)
@LIMIT
@click.option(
    "--only", multiple=True, metavar="IDS", help="Only these checks, such as S16,S17.", shell_complete=completing.checks
)
@click.option("--severity", type=Word(SEVERITIES), help="Only checks of this severity or above.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report (docs/checks.md) instead of lines.")
@click.option("--junit", type=click.Path(dir_okay=False), help="Also write a JUnit XML report to this file.")
@click.option("--deep", is_flag=True, help="Also read every byte of weights and environments: minutes for 100 GB.")
@click.option("--verbose", "-v", is_flag=True, help="A line for each check, also for those that hold.")
@click.option(
    "--explain",
    metavar="ID",
    help="Explain what a check proves, what it cannot see and what it reads.",
    shell_complete=completing.checks,
)
def check(
    inventory: str | None,
    limit: str | None,
    only: tuple[str, ...],
    severity: str | None,
    as_json: bool,
    junit: str | None,
    deep: bool,
    verbose: bool,
    explain: str | None,
) -> None:
    """Compare every rig of INVENTORY with what it declares; change nothing.

    A box with `monitoring` keeps what was found, for who watches it, where no check was left out.

    Checks of your own, in a folder `checks` beside INVENTORY, run with ours. Exit status 0: every check holds. 1: one
    does not. 2: nothing was looked at, for something in the command, the inventory or a check is refused. 3: a host
    cannot be reached, whatever the others are.
    Example: rigwright check ~/boxes/rig.py --limit box1,box2 --severity high
    """
    if explain:
        from checks.catalogue import Unknown, explained

        try:
            text = explained(explain, Path(inventory) if inventory else None)
        except Unknown as error:
            raise click.UsageError(f"--explain: {error}") from None
        title, *lines = text.splitlines()
        say(title)
        for line in lines:
            paragraph(line[14:], lead=line[:14])
        return
    if not inventory:
        raise click.UsageError("Missing argument 'INVENTORY'.")
    options = [f"--only={one}" for one in only]
    options += [f"--severity={severity}"] if severity else []
    options += ["--json"] if as_json else []
    options += [f"--junitxml={junit}"] if junit else []
    options += ["-v"] if verbose else []
    with quick.nothing_locked():
        import pyinfra_cli  # noqa: F401 (it patches the standard library: before anything else of it is imported)

    from checks.run import run

    if only:
        _refuse_unknown(inventory, only)
    sys.exit(run(inventory, *options, limit=limit, deep=deep))


def _refuse_unknown(inventory: str, only: tuple[str, ...]) -> None:
    """Refuse ids that no check has before a host is reached; pytest itself would know only after.

    Raises:
        Refused: there is one.
    """
    from checks.catalogue import every
    from checks.frame import IDENTIFIER, identifiers
    from checks.run import OWN

    known = {one.id for one in every()}
    with suppress(OSError):  # pytest says which of them cannot be read
        for path in (Path(inventory).absolute().parent / OWN).rglob("*.py"):
            known.update(IDENTIFIER.findall(path.read_text(errors="replace")))
    if wrong := sorted(identifiers(only) - known):
        raise Refused("\n".join(f"--only: {unknown('check', one, known)}" for one in wrong))
