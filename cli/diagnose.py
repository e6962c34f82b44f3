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

from checks.looking import Box, each
from checks.results import STATUS, Report, worst
from cli.clients import INSTANCE, chosen, reach
from cli.completing import LIMIT
from cli.declared import InventoryFile
from cli.evidence import gathered
from cli.log_file import LAST, read_log
from cli.tables import paragraph, say
from rigwright.engines import kind_of, kinds
from rigwright.engines.log import Cause
from rigwright.engines.log_patterns import COMMON_CAUSES
from rigwright.operate.diagnose import diagnosed
from rigwright.operate.evidence import Diagnosis, Evidence, RedCheck
from rigwright.problems import printable
from roles import root
from roles.unreached import away

PATIENCE = 300.0  # seconds for all checks


@dataclass(frozen=True)
class Host:
    """One host."""

    name: str
    why: str
    """Why nothing is known of it; empty where something is."""
    unseen: tuple[str, ...]
    """What could not be looked at."""
    causes: Sequence[Diagnosis]


@click.command()
@click.argument("inventory", type=InventoryFile(), required=False)
@LIMIT
@INSTANCE
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
        _of_file(file, as_json)
        return
    if not inventory:
        raise click.UsageError("Missing argument 'INVENTORY'.")
    place = inventory
    found, gone = reach(inventory, limit, instance)
    names = {(box.name, one.name) for box, one in chosen(found, instance)}
    red = _red(inventory, limit) if checks and found else {}
    hosts = each(found, lambda box: _host(place, box, {name for host, name in names if host == box.name}, red))
    hosts += [Host(name, away(why), (), ()) for name, why in gone.items()]
    if as_json:
        click.echo(json.dumps([asdict(one) for one in hosts], indent=2))
    else:
        for host in hosts:
            _show(host)
    verdicts = ["not reached" if one.why else "not as declared" if one.causes else "as declared" for one in hosts]
    sys.exit(STATUS[worst(verdicts)])  # type: ignore[arg-type] # of literals, mypy makes texts


def _of_file(file: str, as_json: bool) -> None:
    """Print the causes that a log file shows: those of the kernel, and those of the engines that wrote it."""
    lines, skipped = read_log(Path(file))
    evidence = Evidence("", "", logs={"": lines}, kernel=lines)
    unseen = (f"the first {skipped:,} bytes of it: only the last {LAST >> 20} MiB are read",) if skipped else ()
    host = Host(file, "", unseen, diagnosed(evidence, {"": causes_for_log(lines)}))
    if as_json:
        click.echo(json.dumps([asdict(host)], indent=2))
    else:
        _show(host)
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


def _host(inventory: str, box: Box, names: set[str], red: Mapping[str, list[RedCheck]] | None) -> Host:
    unseen = [] if red is not None else ["what does not conform: the checks have not run to their end"]
    mine = [one for one in box.rig.instances if one.name in names]
    try:
        evidence, missed = gathered(inventory, box, mine, (red or {}).get(box.name, ()))
    except root.Gone as error:
        return Host(box.name, f"the connection is gone: {printable(str(error))}", (), ())
    causes = {one.name: kind_of(one).causes for one in mine}
    return Host(box.name, "", (*unseen, *missed), diagnosed(evidence, causes))


def _red(inventory: str, limit: str | None) -> dict[str, list[RedCheck]] | None:
    """Host -> the checks that do not hold; None where they did not run to their end."""
    words = [sys.executable, "-m", "cli", "check", inventory, "--json", *([f"--limit={limit}"] if limit else [])]
    if sys.stderr.isatty():
        say(f"running all checks: at most {PATIENCE:.0f} s ...", err=True)
    try:
        done = subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False)
        report = TypeAdapter(Report).validate_json(done.stdout)
    except (subprocess.TimeoutExpired, ValidationError):
        return None
    return {
        host.name: [
            RedCheck(one.id, one.title, one.part, one.severity, one.expected, one.found, one.cure)
            for one in host.checks
            if one.verdict == "fail"
        ]
        for host in report.hosts
    }


def _show(host: Host) -> None:
    if host.why:
        paragraph(f"{host.name}: {host.why}", hang=4)
        return
    for line in host.unseen:
        paragraph(f"{host.name}: not seen: {line}", hang=4)
    if not host.causes:
        say(f"{host.name}: no problem found")
    for number, one in enumerate(host.causes, 1):
        where = f"{one.where}: " if one.where else ""
        paragraph(printable(f"{host.name}: {number}. {where}{one.means}"), hang=4)
        times = f" ({one.times} times)" if one.times > 1 else ""
        paragraph(printable(f"{one.evidence}{times}"), lead="    seen: ")
        if "rigwright " in one.cure:
            # a line to copy, which no break of ours is in
            click.echo(printable(f"    fix: {one.cure}"))
        elif one.cure:
            paragraph(printable(one.cure), lead="    fix: ")
