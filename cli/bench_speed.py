"""`rigwright bench speed`: how fast an instance is, beside what was accepted of it and what others have published."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from typing import Any

import click

from bench.load_ladder import PROGRAMS, load_endpoint
from bench.load_ladder_results import LadderStep
from bench.speed_protocol import (
    QUICK,
    STEADY,
    InvalidConditions,
    MeasuredPart,
    MeasurementConditions,
    ProtocolUnanswered,
    SpeedEffort,
    drop_impossible_rates,
    measure_protocol,
    read_conditions,
)
from checks.connections import ConnectedHost
from checks.results import STATUS
from cli.bench_options import JSON_OPTION
from cli.exit_codes import INTERRUPTED_STATUS, HostUnreached, InvalidRequest, print_unreached
from cli.exit_codes import NotAsDeclared as NotAsDeclared
from cli.instance_access import InterruptHandler, connect_boxes, hold_deploy_lock, select_instances
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.measurement_refusals import metrics_path, refuse_busy
from cli.option_types import OutputFile, WholeNumber
from cli.output_file import write_output
from cli.shell_completion import INSTANCE_OPTION, LIMIT_OPTION
from cli.tables import print_paragraph, print_table
from rigwright import speed_baselines
from rigwright.engines import kind_of
from rigwright.model.engine_schema import PublishedEvidence
from rigwright.model.instance import Instance
from rigwright.operate.client_target import instance_target
from rigwright.problems import format_count, printable
from rigwright.speed_baselines import BaselineRun, RateComparison, Series, compare_rates
from roles import root_shell
from roles.client import ClientJobFailed, ClientJobLost
from roles.progress import progress
from roles.root_shell import ConnectionGone

SCHEMA = 1


@dataclass
class SpeedMeasurement:
    """One instance, as far as it was measured."""

    host: str
    instance: Instance
    date: str
    before: MeasurementConditions
    parts: dict[str, MeasuredPart] = field(default_factory=dict)
    hottest: tuple[float | None, ...] = ()
    contaminated: bool = False
    foreign: int = 0
    quick: bool = False
    ended: str = ""
    said: str = ""
    """Why it is not whole, in words."""
    gone: list[str] = field(default_factory=list)
    """Rates that were accepted, and could not be measured."""

    def add_rung(self, part: MeasuredPart, rung: LadderStep) -> None:
        """One more request, or a few at once."""
        self.parts[part.name] = part
        self.contaminated = self.contaminated or rung.is_contaminated
        self.foreign += rung.foreign or 0

    @property
    def as_run(self) -> BaselineRun:
        """It, for the book."""
        rates = {name: Series(values=tuple(v)) for part in self.parts.values() for name, v in part.rates.items() if v}
        return BaselineRun.model_validate(
            {
                **{"date": self.date, "boot": self.before.boot, "fingerprint": self.before.fingerprint},
                **{"rates": rates, "temperatures": self.hottest, "quick": self.quick},
                **{"ended": self.ended, "contaminated": self.contaminated},
            }
        )


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@INSTANCE_OPTION
@click.option("--quick", is_flag=True, help="One request of each kind; not compared.")
@click.option("--accept", is_flag=True, help="Accept this run as the baseline of later ones.")
@click.option(
    "--boots",
    type=WholeNumber(1, 20),
    default=1,
    show_default=True,
    help="Number of runs; restarts the instance between them.",
)
@click.option("--beside-others", is_flag=True, help="Run while others use the instance; slows them down.")
@JSON_OPTION
@click.option("--html", "page", type=OutputFile(), help="Also write an HTML page with all kept runs to this file.")
def speed(
    inventory: str,
    limit: str | None,
    instance: tuple[str, ...],
    quick: bool,
    accept: bool,
    boots: int,
    beside_others: bool,
    file: str | None,
    page: str | None,
) -> None:
    """Measure speed against the accepted baseline.

    Runs essays, code, long prompts, and one, two and four streams on the host, at the instance's own socket. Deploys
    wait. baselines/HOST.json next to INVENTORY keeps each run with its driver, cards, power limit and lock.
    docs/guides/benchmarks.md describes the protocol.
    Exit status: 0, no rate is slower. 1, a rate is slower, the run is incomplete, or --accept did not save it. 2, the
    command is refused, or the instance is in use. 3, a host was not reached.
    Example: rigwright bench speed rig.py --limit box1 --accept
    """
    if quick and accept:
        raise click.UsageError("--accept conflicts with --quick: a baseline needs the complete protocol")
    found, gone = connect_boxes(inventory, limit, instance)
    pairs = select_instances(found, instance)
    books = {}
    for box in found:
        try:
            books[box.name] = speed_baselines.load_history(speed_baselines.history_path(inventory, box.name))
        except speed_baselines.UnreadableHistory as error:
            raise InvalidRequest(str(error)) from None
    interrupt = InterruptHandler()
    made: list[tuple[SpeedMeasurement, list[RateComparison]]] = []
    effort = QUICK if quick else SpeedEffort()
    try:
        for box, one, boot in [(box, one, boot) for box, one in pairs for boot in range(boots)]:
            if interrupt.asked:
                break
            if boot and made[-1][0].ended:
                continue  # an unmeasurable instance is not restarted to be measured again
            done = measure_instance(box, one, effort, interrupt, beside_others, again=boot > 0)
            made.append((done, save_run(inventory, done, accept and boot == boots - 1)))
    finally:
        # the results until any end are reported
        if file:
            told = {"schema": SCHEMA, "runs": [_measurement_as_json(*one) for one in made]}
            write_output(file, json.dumps(told, indent=2) + "\n")
        if page:
            _write_page(page, inventory, found)
    print_unreached(gone)
    if interrupt.asked:
        sys.exit(INTERRUPTED_STATUS)
    slower = any(row.verdict == "slower" for _, rows in made for row in rows)
    lost = any(one.ended == "host lost" for one, _ in made)
    unsaved = accept and not all(one.as_run.is_acceptable for one, _ in made)
    incomplete = any(one.ended or one.gone for one, _ in made)
    sys.exit(STATUS["not reached"] if gone or lost else int(slower or incomplete or unsaved))


def _write_page(page: str, inventory: str, boxes: Sequence[ConnectedHost]) -> None:
    from cli.html_page import describe_host, load_speeds, render_speed_page

    hosts = [
        describe_host(box.name, number, None, None, load_speeds(inventory, box.name))
        for number, box in enumerate(boxes, 1)
    ]
    made = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    write_output(page, render_speed_page(hosts, made, metadata.version("rigwright")))


def _restart_instance(box: ConnectedHost, instance: Instance) -> None:
    """Start an instance's engine anew, which takes until it has answered.

    Raises:
        click.ClickException: it does not come up.
        ConnectionGone: the connection is gone.
    """
    name = shlex.quote(instance.unit)
    script = f"systemctl reset-failed {name} 2>/dev/null; systemctl restart {name}"
    with progress.task(box.name, instance.name) as task:
        task.start_step(f"{instance.name}: restarting it")
        answer = root_shell.run_command(box.target, script)
    if answer.status:
        raise NotAsDeclared(f"{box.name}: {instance.unit} does not start again: {printable(answer.complaint)}")


def measure_instance(
    box: ConnectedHost,
    instance: Instance,
    effort: SpeedEffort,
    interrupt: InterruptHandler,
    beside_others: bool,
    again: bool = False,
) -> SpeedMeasurement:
    """Measure an instance under the deploy lock of its box; with `again`, after a restart.

    Raises:
        InvalidRequest: others use the box or the instance, or it does not run as declared.
        HostUnreached: the connection is gone.
    """
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with hold_deploy_lock(box, f"bench speed of {instance.name} of {box.rig.inventory}") as lock:
        try:
            if again:
                _restart_instance(box, instance)
            conditions = read_conditions(box, instance)
        except InvalidConditions as error:
            raise InvalidRequest(f"{box.name}: {error}") from None
        except ConnectionGone as error:
            raise HostUnreached(f"{box.name}: {error}") from None
        made = SpeedMeasurement(
            box.name, instance, now, conditions, hottest=conditions.temperatures, quick=effort.quick
        )
        metrics = metrics_path(box, instance)
        room = instance.variant.capacity[1] if instance.variant.capacity else None
        try:
            target = instance_target(box.rig.roots, box.rig.accounts, box.rig.gateway, instance)
            with (
                interrupt.open_client(box, target, *PROGRAMS) as client,
                progress.task(box.name, instance.name) as task,
            ):
                probes = refuse_busy(box, instance, client, metrics, beside_others)
                ask = partial(
                    load_endpoint, client, metrics=metrics, counts=kind_of(instance).metric_names, probes=probes
                )
                for part, rung in measure_protocol(
                    ask, effort, room, lambda text: task.start_step(f"{instance.name}: {text}")
                ):
                    made.add_rung(part, rung)
                    if lock.lost:
                        raise ClientJobLost(f"lost the deploy lock: {lock.lost}")
            drop_impossible_rates(made.parts)
            after = read_conditions(box, instance)
            made.hottest = tuple(
                max((one for one in both if one is not None), default=None)
                for both in zip(made.hottest, after.temperatures, strict=True)
            )
            if (after.fingerprint, after.boot) != (conditions.fingerprint, conditions.boot):
                made.ended, made.said = (
                    "failed",
                    "the box changed meanwhile: "
                    + ", ".join(after.fingerprint.describe_changes(conditions.fingerprint)),
                )
        except (ClientJobLost, ConnectionGone) as error:
            made.ended, made.said = "interrupted" if interrupt.asked else "host lost", str(error)
        except (ClientJobFailed, ProtocolUnanswered, InvalidConditions) as error:
            made.ended, made.said = "failed", str(error)
        return made


def print_changes(changes: Sequence[str]) -> None:
    """Say what is another than it was when what a run is compared with was accepted."""
    print_paragraph(f"compared with the baseline from before these changes: {'; '.join(changes)}", hang=4)


def save_run(inventory: str, made: SpeedMeasurement, accept: bool) -> list[RateComparison]:
    """Print a run and keep it; returns its comparison with the accepted ones."""
    place = speed_baselines.history_path(inventory, made.host)
    whole = speed_baselines.load_history(place)
    run = made.as_run
    page = whole.for_instance(made.instance.name).with_run(run)
    before, changes = speed_baselines.find_reference(page, run)
    rows = compare_rates(run, before.runs) if before and run.rates else []
    _print_run(made, run, rows)
    if before is None and not accept:
        click.echo("no baseline yet: --accept saves a run as the baseline of later ones")
    elif changes:
        print_changes(changes)
    if accept and run.is_acceptable:
        page = page.with_last_accepted()
        starts = len({one.boot for one in page.accepted[-1].runs})
        runs = format_count(len(page.accepted[-1].runs), "run")
        click.echo(f"accepted: {runs} of {format_count(starts, 'start')} of the engine")
    elif accept and run.is_comparable:
        rates = ", ".join(f"{name} (CV {100 * variation:.0f} %)" for name, variation in run.unusable_rates.items())
        text = f"baseline not saved: rates vary by more than {100 * speed_baselines.MOST_VARIATION:.0f} %: {rates}"
        print_paragraph(f"{text}: end other work on the box", hang=2)
    elif accept:
        click.echo("baseline not saved: the run was incomplete, or other clients were active")
    speed_baselines.save_history(place, whole.with_instance(made.instance.name, page))
    made.gone = missing_rates(before, run) if run.is_comparable else []
    for name in made.gone:
        print_paragraph(f"{name}: in the baseline, but not measured now", hang=4)
    return rows if run.is_comparable else []


class InterruptedMeasurement(Exception):
    """Ctrl-C has ended a measurement."""


def find_speed_fault(inventory: str, box: ConnectedHost, instance: Instance) -> str:
    """Why an instance with an accepted baseline does not reach it; empty if it does, and without a baseline.

    The run is kept, and not accepted.

    Raises:
        InvalidRequest: others use the instance, or its history cannot be read.
        InterruptedMeasurement: Ctrl-C has ended it.
    """
    try:
        history = speed_baselines.load_history(speed_baselines.history_path(inventory, box.name))
    except speed_baselines.UnreadableHistory as error:
        raise InvalidRequest(str(error)) from None
    if not history.for_instance(instance.name).accepted:
        return ""
    interrupt = InterruptHandler()
    made = measure_instance(box, instance, SpeedEffort(), interrupt, beside_others=False)
    if interrupt.asked:
        raise InterruptedMeasurement
    slower = [row.description for row in save_run(inventory, made, accept=False) if row.verdict == "slower"]
    if made.ended:
        return f"speed of {instance.name} not measured: {made.said}"
    return f"{instance.name} is slower than its baseline: {'; '.join(slower)}" if slower else ""


def missing_rates(before: speed_baselines.AcceptedRuns | None, run: BaselineRun) -> list[str]:
    """Rates that were accepted of the very same box, and that a whole run has not: a stream that comes in one piece has
    no decode rate.
    """
    if before is None or before.fingerprint != run.fingerprint:
        return []
    return sorted({name for one in before.runs for name in one.rates} - run.rates.keys())


def _print_run(made: SpeedMeasurement, run: BaselineRun, rows: list[RateComparison]) -> None:
    beside = {row.name: row for row in rows}
    click.echo(f"{made.host}: {made.instance.name} ({made.instance.variant_name}), {made.date}")
    table: list[tuple[str, ...]] = []
    for part in made.parts.values():
        for name, series in ((name, run.rates[name]) for name in part.rates if name in run.rates):
            first = f"{1000 * sum(part.first_s) / len(part.first_s):.0f}" if part.first_s else ""
            row = beside.get(name)
            against = (f"{row.before.mean:.1f}", f"{100 * row.change:+.1f}", row.verdict) if row else ()
            # one value has no deviation
            spread = f"{100 * series.variation:.1f}" if len(series.values) > 1 else ""
            table.append((name, f"{series.mean:.1f}", spread, str(len(series.values)), first, *against))
    if table:
        print_table(("workload", "tokens/s", "CV %", "runs", "TTFT ms", "accepted", "change %", "verdict"), table)
    reasons: dict[str, list[str]] = {}
    for part in made.parts.values():
        for reason in dict.fromkeys((part.absent, *part.left_out)):
            reasons.setdefault(reason, []).append(part.name)
    for reason, names in reasons.items():
        if reason:
            print_paragraph(f"{', '.join(names)}: {reason}", hang=4)
    for name, series in run.rates.items():
        if series.variation > STEADY:
            print_paragraph(f"{name}: unsteady: CV {100 * series.variation:.1f} %, above 5 %", hang=4)
    if any(row.verdict == "unjudged" for row in rows):
        print_paragraph("not judged: the baseline has one start of the engine: accept a run of another start", hang=4)
    _print_conditions(made)


def _print_conditions(made: SpeedMeasurement) -> None:
    was = made.before.fingerprint
    if was.cards:
        cards = zip(was.cards, was.power_w, was.lanes, made.hottest, strict=True)
        for name, power, lanes, hottest in cards:
            told = [name, f"driver {was.driver}"]
            told += [f"power limit {power:g} W"] if power is not None else []
            told += [f"{lanes} lanes"] if lanes is not None else []
            told += [f"up to {hottest:g} \N{DEGREE SIGN}C"] if hottest is not None else []
            print_paragraph(f"on {', '.join(told)}", hang=4)
    else:
        click.echo("on the CPU")
    if isinstance(made.instance.variant.evidence, PublishedEvidence):
        print_paragraph(made.instance.variant.evidence.description, hang=4)
    if made.contaminated:
        print_paragraph(
            f"contaminated: other clients were active ({made.foreign} tokens): neither judged nor accepted", hang=4
        )
    if made.ended:
        print_paragraph(f"not complete: {made.ended}: {printable(made.said)}", hang=4)


def _measurement_as_json(made: SpeedMeasurement, rows: list[RateComparison]) -> dict[str, Any]:
    return {
        "host": made.host,
        "instance": made.instance.name,
        "complete": not made.ended,
        "said": made.said,
        "gone": made.gone,
        "run": json.loads(made.as_run.model_dump_json()),
        "first_s": {part.name: part.first_s for part in made.parts.values()},
        "compared": [
            {"name": row.name, "now": row.now, "accepted": row.before.mean, "noise": row.before.noise}
            | {"change": row.change, "verdict": row.verdict}
            for row in rows
        ],
    }
