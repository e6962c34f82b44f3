"""`rigwright show advisories`: published advisories that are open on the rigs of an inventory."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import date, datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from checks.results import STATUS
from cli.exit_codes import exit_if_unreached
from cli.inventory_loading import INVENTORY_ARGUMENT, SuggestingChoice, load_host_rigs, load_hosts
from cli.option_types import OutputFile
from cli.output_file import write_output
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_paragraph, print_prose, print_table
from rigwright.advisories.assessment import STATES, AdvisoryFinding, Assessment, DataSource
from rigwright.advisories.audit import UnreadableData, audit
from rigwright.advisories.components import QUERY, HostPackage, parse_packages
from rigwright.advisories.osv_records import FEW
from rigwright.host.supported_systems import SYSTEMS
from rigwright.inventory import load_for
from rigwright.model.lock_coverage import UNLOCKED
from rigwright.model.rig import Rig
from rigwright.problems import Invalid, format_count

if TYPE_CHECKING:
    from checks.connections import ConnectedHost

# One line with the release, then a line a package. 16 MiB are ten times what a full desktop prints.
PACKAGE_LIST_SCRIPT = f". /etc/os-release && echo \"$ID-$VERSION_ID\" && dpkg-query --show --showformat='{QUERY}'"
MAX_OUTPUT_BYTES = 16 << 20
LIMIT_SECONDS = 60.0


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@click.option(
    "--db",
    "paths",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="An OSV export (zip, folder, JSON lines, one record) or Debian's tracker as JSON; repeatable.",
)
@click.option("--installed", is_flag=True, help="Also read the hosts' installed packages, over SSH.")
@click.option(
    "--fail-on", type=SuggestingChoice(("open", "unknown")), help="Exit status 1 on an open, or also an unknown, one."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--sarif", type=OutputFile(), help="Also write SARIF 2.1.0 to this file.")
def advisories(
    inventory: str,
    limit: str | None,
    paths: tuple[Path, ...],
    installed: bool,
    fail_on: str | None,
    as_json: bool,
    sarif: str | None,
) -> None:
    """List published advisories, open or closed.

    Open names the listener and whether it needs a key; closed names the option, sandbox, gateway rule or missing
    feature that closes it; unknown means missing data. Shipped data cover vLLM, llama.cpp and NVIDIA's bulletins; --db
    adds data for other packages. Contacts no host without --installed.
    Exit status: 0, listed. 1, --fail-on applies. 2, the inventory or a file is refused. 3, a host was not reached, or
    its packages were not read.
    Example: rigwright show advisories rig.py --db PyPI.zip --fail-on open
    """
    found: dict[str, tuple[str, tuple[HostPackage, ...]]] | None = None
    gone: Mapping[str, str] = {}
    if installed:
        rigs, found, gone = _collect_hosts(inventory, limit)
    else:
        rigs = _declared_rigs(inventory, limit)
    try:
        made = audit(rigs, paths, found)
    except (Invalid, UnreadableData) as error:
        raise click.ClickException(str(error)) from None
    today = datetime.now(timezone.utc).date()
    if sarif:
        from rigwright.advisories.sarif import render_sarif

        write_output(sarif, render_sarif(made, metadata.version("rigwright")))
    if as_json:
        click.echo(json.dumps([_assessment_as_json(one, today) for one in made], indent=2))
    else:
        _print_assessments(made, today)
    exit_if_unreached(gone)
    if found is not None and len(found) < len(rigs):
        sys.exit(STATUS["not reached"])
    sys.exit(1 if exceeds_threshold(made, fail_on) else 0)


def exceeds_threshold(made: Iterable[Assessment], fail_on: str | None) -> bool:
    """Whether assessments are worse than `--fail-on` allows: those without data are unknown, too."""
    made = tuple(made)
    is_open = any(one.count("open") for one in made)
    return fail_on is not None and (
        is_open or (fail_on == "unknown" and any(one.count("unknown") or one.gaps for one in made))
    )


def _declared_rigs(inventory: str, limit: str | None) -> dict[str, Rig]:
    """The rigs of an inventory; where something is not locked, with stand-ins for that alone."""

    def read() -> dict[str, Rig]:
        return load_host_rigs(load_hosts(inventory, limit))

    try:
        return read()
    except click.ClickException as error:
        if not all(f" {UNLOCKED}: " in line for line in error.message.splitlines()):
            raise
    with load_for("audit"):
        return read()


def _collect_hosts(
    inventory: str, limit: str | None
) -> tuple[dict[str, Rig], dict[str, tuple[str, tuple[HostPackage, ...]]], Mapping[str, str]]:
    """Rigs, what is installed on the hosts that answer, and the hosts out of reach."""
    from checks.connections import map_inventory

    found, gone = map_inventory(inventory, limit, _read_packages)
    return {box.name: box.rig for box, _ in found}, {box.name: one for box, one in found if one}, gone


def _read_packages(box: ConnectedHost) -> tuple[str, tuple[HostPackage, ...]] | None:
    """A host's release and packages; None where it does not print them."""
    from roles import root_shell

    try:
        answer = root_shell.run_command(
            box.target, PACKAGE_LIST_SCRIPT, limit=LIMIT_SECONDS, whole=LIMIT_SECONDS, most=MAX_OUTPUT_BYTES
        )
    except root_shell.ConnectionGone as error:
        print_prose(f"{box.name}: packages of the host were not read: {error}", err=True)
        return None
    first, _, rest = answer.out.decode(errors="replace").partition("\n")
    packages, unreadable = parse_packages(rest)
    if answer.status or first not in SYSTEMS or not packages or unreadable:
        what = (
            f"{format_count(unreadable, 'line')} of dpkg-query cannot be read" if unreadable else "no list of packages"
        )
        print_prose(f"{box.name}: packages of the host were not read: {what}", err=True)
        return None
    return first, packages


def _assessment_as_json(one: Assessment, today: date) -> dict[str, Any]:
    sources = [
        {
            "origin": source.origin,
            "as_of": source.as_of.isoformat() if source.as_of else None,
            "records": source.total,
            "unreadable": list(source.unreadable),
            "problem": source.problem(today),
        }
        for source in one.sources
    ]
    return {
        "rig": one.rig,
        **{state: one.count(state) for state in STATES},
        "advisories": [asdict(finding) for finding in one.findings],
        "not_covered": [asdict(gap) for gap in one.gaps],
        "data": sources,
    }


def _print_assessments(made: list[Assessment], today: date) -> None:
    for one in made:
        counts = ", ".join(f"{one.count(state)} {state}" for state in STATES)
        click.echo(f"{one.rig}: {counts}")
        for finding in one.findings:
            print_finding(finding)
        for gap in one.gaps:
            print_paragraph(f"{gap.what}: {gap.why}", lead="  unknown  ")
        click.echo()
    rows = [(one.rig, *(str(one.count(state)) for state in STATES), str(len(one.gaps))) for one in made]
    print_table(("rig", *STATES, "parts without data"), rows)
    for source in dict.fromkeys(source for one in made for source in one.sources):
        _print_source(source, today)


def print_finding(finding: AdvisoryFinding) -> None:
    """Print an advisory: its state, and for each way to it whether that is open and why."""
    lead = f"  {finding.state:<7}  "
    print_paragraph(f"{finding.advisory}  {finding.component} {finding.version}, {finding.place}", lead=lead)
    indent = " " * len(lead)
    if finding.summary:
        print_paragraph(finding.summary, lead=indent)
    grouped: dict[tuple[str, str], list[str]] = {}
    for path in finding.paths:
        grouped.setdefault((path.state, path.reason), []).append(path.path)
    for (state, reason), names in grouped.items():
        through = "; ".join(filter(None, dict.fromkeys(names)))
        print_paragraph(f"{f'{through}: ' if through else ''}{state}: {reason}", lead=f"{indent}- ")
    if finding.note and finding.state == "open":
        print_paragraph(finding.note, lead=indent)


def _print_source(source: DataSource, today: date) -> None:
    age = f"of {source.as_of}" if source.as_of else "without a date"
    print_prose(f"{source.origin}: {format_count(source.total, 'record')}, {age}")
    if problem := source.problem(today):
        print_prose(f"{source.origin} {problem}")
    if source.unreadable:
        print_prose(f"{source.origin}: {format_count(len(source.unreadable), 'unreadable record')}:")
        for line in source.unreadable[:FEW]:
            print_prose(f"  {line}")
