"""The verb that runs the checks."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from checks import SEVERITIES
from cli import import_speedups, shell_completion
from cli.exit_codes import InvalidRequest
from cli.inventory_loading import InventoryPath, SuggestingChoice
from cli.option_types import OutputFile
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_paragraph, print_prose
from rigwright.problems import describe_unknown


@click.command()
@click.argument("inventory", type=InventoryPath(), required=False)
@LIMIT_OPTION
@click.option(
    "--only",
    multiple=True,
    metavar="IDS",
    help="Only these checks, such as S16,S17.",
    shell_complete=shell_completion.complete_checks,
)
@click.option("--severity", type=SuggestingChoice(SEVERITIES), help="Only checks of this severity or above.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report (docs/checks.md) instead of lines.")
@click.option("--junit", type=OutputFile(creates_folder=True), help="Also write a JUnit XML report to this file.")
@click.option("--html", "page", type=OutputFile(creates_folder=True), help="Also write an HTML page to this file.")
@click.option("--deep", is_flag=True, help="Also read every byte of weights and environments: minutes for 100 GB.")
@click.option("--verbose", "-v", is_flag=True, help="A line for each check, also for those that hold.")
@click.option("--strict", is_flag=True, help="Exit 1 also for listed changes and for hosts that were never reviewed.")
@click.option(
    "--ignore",
    multiple=True,
    metavar="CLASSES",
    help="Leave changes of these classes out, such as logging,host_names.",
    shell_complete=shell_completion.complete_entry_classes,
)
@click.option("--accept", is_flag=True, help="List what nothing explains on the hosts, and accept it after a question.")
@click.option("--author", metavar="NAME", default="", help="With --accept: the reviewer. Default: git's user.name.")
@click.option("--yes", is_flag=True, help="With --accept: ask nothing.")
@click.option("--history", is_flag=True, help="Print what each box has found of itself, and since when.")
@click.option(
    "--explain",
    metavar="ID",
    help="Explain what a check proves, what it cannot see and what it reads.",
    shell_complete=shell_completion.complete_checks,
)
def check(
    inventory: str | None,
    limit: str | None,
    only: tuple[str, ...],
    severity: str | None,
    as_json: bool,
    junit: str | None,
    page: str | None,
    deep: bool,
    verbose: bool,
    strict: bool,
    ignore: tuple[str, ...],
    accept: bool,
    author: str,
    yes: bool,
    history: bool,
    explain: str | None,
) -> None:
    """Compare every rig of INVENTORY with what it declares; change nothing.

    A box with `monitoring` keeps what was found, for who watches it, where no check was left out.

    Checks of your own, in a folder `checks` beside INVENTORY, run with ours. What neither a package nor a deploy
    explains is a change until --accept; accepted/HOST.json beside INVENTORY has what was accepted. Exit status 0:
    every check holds. 1: one does not, or a change is not accepted. 2: nothing was looked at, for something in the
    command, the inventory, a check or accepted entries is refused. 3: a host cannot be reached, whatever the others
    are.
    Example: rigwright check ~/boxes/rig.py --limit box1,box2 --severity high
    """
    if explain:
        from checks.check_catalogue import UnknownCheck, explain_check

        try:
            text = explain_check(explain, Path(inventory) if inventory else None)
        except UnknownCheck as error:
            raise click.UsageError(f"--explain: {error}") from None
        title, *lines = text.splitlines()
        print_prose(title)
        for line in lines:
            print_paragraph(line[14:], lead=line[:14])
        return
    if not inventory:
        raise click.UsageError("Missing argument 'INVENTORY'.")
    if accept:
        if only or severity or page or junit or as_json or history or strict or ignore:
            raise click.UsageError("--accept goes with --limit, --author, --yes, --deep and --verbose alone.")
        with import_speedups.without_module_locks():
            import pyinfra_cli

        from cli.check_acceptance import accept_changes

        sys.exit(accept_changes(inventory, limit, author, yes=yes, deep=deep, verbose=verbose))
    if author or yes:
        raise click.UsageError("--author and --yes go with --accept.")
    if history:
        if only or severity or page or junit or deep or verbose or strict or ignore:
            raise click.UsageError("--history goes with --limit and --json alone.")
        from cli.check_history import print_history

        print_history(inventory, limit, as_json=as_json)
        return
    options = [f"--only={one}" for one in only]
    options += [f"--severity={severity}"] if severity else []
    options += ["--json"] if as_json else []
    options += [f"--junitxml={junit}"] if junit else []
    options += ["-v"] if verbose else []
    options += ["--strict-changes"] if strict else []
    options += [f"--ignore-class={one}" for one in parse_classes(ignore)]
    with import_speedups.without_module_locks():
        import pyinfra_cli  # noqa: F401 (it patches the standard library: before anything else of it is imported)

    from checks.runner import run_checks

    if only:
        _refuse_unknown(inventory, only)
    write_page = None
    if page:
        from cli.check_page import write_check_page

        write_page = partial(write_check_page, page)
    sys.exit(run_checks(inventory, *options, limit=limit, deep=deep, write_page=write_page))


def parse_classes(texts: tuple[str, ...]) -> list[str]:
    """The classes that the words of `--ignore` name.

    Raises:
        InvalidRequest: there is no class of that name.
    """
    from checks.survey.entry_classes import ENTRY_CLASSES

    known = {one.name for one in ENTRY_CLASSES} | {"packages"}
    names = [word for text in texts for word in re.split(r"[,\s]+", text) if word]
    if wrong := sorted({*names} - known):
        raise InvalidRequest("\n".join(f"--ignore: {describe_unknown('class', one, known)}" for one in wrong))
    return names


def _refuse_unknown(inventory: str, only: tuple[str, ...]) -> None:
    """Refuse ids that no check has before a host is reached; pytest itself would know only after.

    Raises:
        InvalidRequest: there is one.
    """
    from checks.check_catalogue import list_checks
    from checks.pytest_frame import IDENTIFIER, parse_identifiers
    from checks.runner import OWN

    known = {one.id for one in list_checks()}
    with suppress(OSError):  # pytest says which of them cannot be read
        for path in (Path(inventory).absolute().parent / OWN).rglob("*.py"):
            known.update(IDENTIFIER.findall(path.read_text(errors="replace")))
    if wrong := sorted(parse_identifiers(only) - known):
        raise InvalidRequest("\n".join(f"--only: {describe_unknown('check', one, known)}" for one in wrong))
