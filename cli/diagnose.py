"""`rigwright diagnose`: why a box misbehaves, from its logs, a look at it, and what does not conform."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from pydantic import TypeAdapter, ValidationError

from checks.connections import ConnectedHost, map_hosts
from checks.results import STATUS, Report, worst_verdict
from cli.evidence import collect_evidence
from cli.instance_access import INSTANCE_OPTION, connect_boxes, select_instances
from cli.inventory_loading import InventoryPath
from cli.log_file import MAX_LOG_BYTES, read_log
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_paragraph, print_prose
from rigwright.engines import kind_of, kinds
from rigwright.engines.log_causes import Cause
from rigwright.engines.log_patterns import COMMON_CAUSES
from rigwright.operate.diagnose import diagnose_host
from rigwright.operate.diagnosis_types import Diagnosis, FailedCheck, HostEvidence
from rigwright.problems import printable
from roles import root_shell
from roles.connection_failures import describe_unreachable_host

COMMAND_TIMEOUT_S = 300.0  # seconds for all checks


@dataclass(frozen=True)
class DiagnosedHost:
    """One host."""

    name: str
    why: str
    """Why nothing is known of it; empty where something is."""
    unseen: tuple[str, ...]
    """What could not be looked at."""
    causes: Sequence[Diagnosis]


@click.command()
@click.argument("inventory", type=InventoryPath(), required=False)
@LIMIT_OPTION
@INSTANCE_OPTION
@click.option(
    "--logs",
    "file",
    type=click.Path(exists=True, dir_okay=False),
    help="A log file, in place of hosts; may be compressed.",
)
@click.option("--checks/--no-checks", default=True, show_default=True, help="Whether all checks are run, too.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def diagnose(
    inventory: str | None, limit: str | None, instance: tuple[str, ...], file: str | None, checks: bool, as_json: bool
) -> None:
    """Find out why hosts misbehave, likeliest cause first, with its evidence and the command that fixes it.

    It looks for known problems in the logs of instances and the kernel since boot, in a look as `health` takes it, and
    in checks that fail. Harmless lines are left out. With --logs a file is read in their place: the last 8 MiB of it.
    A log with an error of no known cause is reported with its last error as "cause unknown".
    Exit status 0: nothing was found. 1: something was. 2: refused. 3: a host cannot be reached.
    Example: rigwright diagnose ~/boxes/rig.py --limit box1
    """
    if file:
        _diagnose_log_file(file, as_json)
        return
    if not inventory:
        raise click.UsageError("Missing argument 'INVENTORY'.")
    place = inventory
    found, gone = connect_boxes(inventory, limit, instance)
    names = {(box.name, one.name) for box, one in select_instances(found, instance)}
    red = _collect_failed_checks(inventory, limit) if checks and found else {}
    hosts = map_hosts(
        found, lambda box: _diagnose_host(place, box, {name for host, name in names if host == box.name}, red)
    )
    hosts += [DiagnosedHost(name, describe_unreachable_host(why), (), ()) for name, why in gone.items()]
    if as_json:
        click.echo(json.dumps([asdict(one) for one in hosts], indent=2))
    else:
        for host in hosts:
            _print_host(host)
    verdicts = ["not reached" if one.why else "not as declared" if one.causes else "as declared" for one in hosts]
    sys.exit(STATUS[worst_verdict(verdicts)])  # type: ignore[arg-type] # of literals, mypy makes texts


def _diagnose_log_file(file: str, as_json: bool) -> None:
    """Print the causes that a log file shows: those of the kernel, and those of the engines that wrote it."""
    lines, skipped = read_log(Path(file))
    evidence = HostEvidence("", "", logs={"": lines}, kernel=lines)
    unseen = (
        (f"the first {skipped:,} bytes of it: only the last {MAX_LOG_BYTES >> 20} MiB are read",) if skipped else ()
    )
    host = DiagnosedHost(file, "", unseen, diagnose_host(evidence, {"": causes_for_log(lines)}))
    if as_json:
        click.echo(json.dumps([asdict(host)], indent=2))
    else:
        _print_host(host)
    sys.exit(1 if host.causes else 0)


def causes_for_log(lines: Sequence[str]) -> list[Cause]:
    """Known causes of the engines that wrote a log, by what only their logs contain; of all engines if none did.

    For a log without a mark, the common causes come first: their remedies fit every engine. Forms of messages come
    last.
    """
    text = "\n".join(lines)
    marked = [kind for kind in kinds().values() if kind.log_marker]
    found = [kind for kind in marked if re.search(kind.log_marker, text, re.MULTILINE)]
    causes = [cause for kind in found or marked for cause in kind.causes]
    causes += [
        cause for kind in kinds().values() if not kind.log_marker for cause in kind.causes if cause not in causes
    ]
    common = [] if found else COMMON_CAUSES
    return sorted(dict.fromkeys([*common, *causes]), key=lambda cause: (cause.broad, cause.general))


def _diagnose_host(
    inventory: str, box: ConnectedHost, names: set[str], red: Mapping[str, list[FailedCheck]] | None
) -> DiagnosedHost:
    unseen = [] if red is not None else ["what does not conform: the checks have not run to their end"]
    mine = [one for one in box.rig.instances if one.name in names]
    try:
        evidence, missed = collect_evidence(inventory, box, mine, (red or {}).get(box.name, ()))
    except root_shell.ConnectionGone as error:
        return DiagnosedHost(box.name, f"the connection is gone: {printable(str(error))}", (), ())
    causes = {one.name: kind_of(one).causes for one in mine}
    return DiagnosedHost(box.name, "", (*unseen, *missed), diagnose_host(evidence, causes))


def _collect_failed_checks(inventory: str, limit: str | None) -> dict[str, list[FailedCheck]] | None:
    """Host -> the checks that do not hold; None where they did not run to their end."""
    words = [sys.executable, "-m", "cli", "check", inventory, "--json", *([f"--limit={limit}"] if limit else [])]
    if sys.stderr.isatty():
        print_prose(f"running all checks: at most {COMMAND_TIMEOUT_S:.0f} s ...", err=True)
    try:
        done = subprocess.run(words, capture_output=True, timeout=COMMAND_TIMEOUT_S, check=False)
        report = TypeAdapter(Report).validate_json(done.stdout)
    except (subprocess.TimeoutExpired, ValidationError):
        return None
    return {
        host.name: [
            FailedCheck(one.id, one.title, one.part, one.severity, one.expected, one.found, one.cure)
            for one in host.checks
            if one.verdict == "fail"
        ]
        for host in report.hosts
    }


def _print_host(host: DiagnosedHost) -> None:
    if host.why:
        print_paragraph(f"{host.name}: {host.why}", hang=4)
        return
    for line in host.unseen:
        print_paragraph(f"{host.name}: not seen: {line}", hang=4)
    if not host.causes:
        print_prose(f"{host.name}: no problem found")
    for number, one in enumerate(host.causes, 1):
        where = f"{one.where}: " if one.where else ""
        print_paragraph(printable(f"{host.name}: {number}. {where}{one.means}"), hang=4)
        times = f" ({one.times} times)" if one.times > 1 else ""
        print_paragraph(printable(f"{one.evidence}{times}"), lead="    seen: ")
        if "rigwright " in one.cure:
            # a line to copy, which no break of ours is in
            click.echo(printable(f"    fix: {one.cure}"))
        elif one.cure:
            print_paragraph(printable(one.cure), lead="    fix: ")
