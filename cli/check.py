"""`rigwright check`: checks of hosts, of their history and of what instances answer."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from checks import SEVERITIES
from cli import import_speedups, shell_completion
from cli.default_inventory import describe_missing
from cli.exit_codes import InvalidRequest
from cli.inventory_loading import SuggestingChoice, optional_inventory
from cli.option_types import OutputFile, OutputFolder
from cli.shell_completion import INSTANCE_OPTION, LIMIT_OPTION, access_options
from cli.tables import print_paragraph, print_prose
from rigwright.problems import describe_unknown

if TYPE_CHECKING:
    from checks.pytest_frame import ChecksPlugin


@click.command()
@optional_inventory()
@LIMIT_OPTION
@click.option(
    "--only",
    multiple=True,
    metavar="IDS",
    help="Only these checks, such as S16,S17.",
    shell_complete=shell_completion.complete_checks,
)
@click.option("--severity", type=SuggestingChoice(SEVERITIES), help="Only checks of this severity or above.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report (docs/reference/checks.md).")
@click.option("--junit", type=OutputFile(), help="Also write a JUnit XML report to this file.")
@click.option("--html", "page", type=OutputFile(), help="Also write an HTML page to this file.")
@click.option("--ctrf", type=OutputFile(), help="Also write a CTRF report (JSON) to this file.")
@click.option("--arf", type=OutputFolder(), help="Also write an ARF report of each host (XML) to this folder.")
@click.option("--deep", is_flag=True, help="Also read every byte of weights and environments: minutes for 100 GB.")
@click.option("--verbose", "-v", is_flag=True, help="Print a line for each check.")
@click.option("--strict", is_flag=True, help="Exit 1 also for listed changes and unreviewed hosts.")
@click.option(
    "--ignore",
    multiple=True,
    metavar="CLASSES",
    help="Ignore changes of these classes, such as logging,host_names.",
    shell_complete=shell_completion.complete_entry_classes,
)
@click.option("--accept", is_flag=True, help="List unexplained changes, and accept them after confirmation.")
@click.option("--author", metavar="NAME", default="", help="With --accept: the reviewer. Default: git's user.name.")
@click.option("--yes", is_flag=True, help="With --accept: do not ask.")
@click.option("--sign", is_flag=True, help="Write a signed verdict of each host to verdicts/ next to INVENTORY.")
@click.option("--key", metavar="FILE", help="With --sign: the SSH key. Default: ~/.ssh/id_ed25519.")
@click.option("--nonce", metavar="HEX", help="With --sign: a challenge that the verdict answers.")
@click.option("--history", is_flag=True, help="Print what each box's own checks reported, and since when.")
@click.option("--serving", is_flag=True, help="Test what the variants of instances declare, instead of hosts.")
@INSTANCE_OPTION
@access_options
@click.option(
    "--explain",
    metavar="ID",
    help="Explain what a check proves, cannot see and reads.",
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
    ctrf: str | None,
    arf: Path | None,
    deep: bool,
    verbose: bool,
    strict: bool,
    ignore: tuple[str, ...],
    accept: bool,
    author: str,
    yes: bool,
    sign: bool,
    key: str | None,
    nonce: str | None,
    history: bool,
    serving: bool,
    instance: tuple[str, ...],
    gateway: bool,
    listener: str | None,
    key_file: str | None,
    explain: str | None,
) -> None:
    """Verify hosts and services.

    Compares each host with INVENTORY, also by checks of your own in checks/ next to it, and changes nothing. A change
    that neither a package nor a deploy explains counts until --accept. --serving tests instances instead: answers,
    tools, thoughts, images and streams.
    Exit status: 0, all checks hold. 1, one does not, or a change is not accepted. 2, the command, the inventory or a
    check is refused. 3, a host was not reached.
    Example: rigwright check rig.py --limit box1,box2 --severity high
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
        raise click.UsageError(f"Missing argument 'INVENTORY'. {describe_missing()}")
    if (key or nonce) and not sign:
        raise click.UsageError("--key and --nonce need --sign.")
    if sign and (serving or accept or history):
        raise click.UsageError("--sign is not combined with --serving, --accept and --history.")
    if serving:
        others = only or severity or deep or verbose or strict or ignore or accept or author or yes or history
        if others or ctrf or arf:
            raise click.UsageError("--serving allows only --limit, --instance, --gateway, --json and --junit.")
        from cli.check_serving import check_instances
        from cli.instance_access import parse_access

        way = parse_access(gateway, listener, key_file)
        check_instances(inventory, limit, instance, way, as_json=as_json, junit=junit)
    for name, used in (
        ("--instance", instance),
        ("--gateway", gateway),
        ("--listener", listener),
        ("--key-file", key_file),
    ):
        if used:
            raise click.UsageError(f"{name} needs --serving.")
    if accept:
        if only or severity or page or junit or ctrf or arf or as_json or history or strict or ignore:
            raise click.UsageError("--accept allows only --limit, --author, --yes, --deep and --verbose.")
        with import_speedups.without_module_locks():
            import pyinfra_cli

        from cli.check_acceptance import accept_changes

        sys.exit(accept_changes(inventory, limit, author, yes=yes, deep=deep, verbose=verbose))
    if author or yes:
        raise click.UsageError("--author and --yes need --accept.")
    if history:
        if only or severity or page or junit or ctrf or arf or deep or verbose or strict or ignore:
            raise click.UsageError("--history allows only --limit and --json.")
        from cli.check_history import print_history

        print_history(inventory, limit, as_json=as_json)
        return
    signing = None
    if sign:
        if only or severity or ignore:
            raise click.UsageError("--sign needs all checks: without --only, --severity and --ignore.")
        from cli.check_signing import parse_signing_request

        signing = parse_signing_request(inventory, key, nonce)
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
    writers: list[Callable[[ChecksPlugin], None]] = []
    if page or ctrf or arf:
        from cli.check_reports import write_check_reports

        writers.append(partial(write_check_reports, page=page, ctrf=ctrf, arf=arf))
    if signing:
        from cli.check_signing import sign_verdicts

        writers.append(partial(sign_verdicts, signing, is_quiet=as_json))
    show_reading = None
    if deep:
        from cli.deep_reading import show_deep_reading

        show_reading = show_deep_reading
    sys.exit(run_checks(inventory, *options, limit=limit, deep=deep, writers=writers, show_reading=show_reading))


CHECK_LIST = "; docs/reference/checks.md lists all, and --explain ID explains one"


def parse_classes(texts: tuple[str, ...]) -> list[str]:
    """The classes that the words of `--ignore` name.

    Raises:
        InvalidRequest: there is no class of that name.
    """
    from checks.survey.fingerprint_classes import ENTRY_CLASSES

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
    from checks.check_items import IDENTIFIER, parse_identifiers
    from checks.runner import OWN

    known = {one.id for one in list_checks()}
    with suppress(OSError):  # pytest says which of them cannot be read
        for path in (Path(inventory).absolute().parent / OWN).rglob("*.py"):
            known.update(IDENTIFIER.findall(path.read_text(errors="replace")))
    if wrong := sorted(parse_identifiers(only) - known):
        raise InvalidRequest("\n".join(f"--only: {describe_unknown('check', one, known)}{CHECK_LIST}" for one in wrong))
