"""`rigwright show report`: a page about boxes that is safe to publish, for a forum or an issue."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import click
from pydantic import TypeAdapter, ValidationError

from bench.speed_protocol import RATES
from checks.check_catalogue import list_checks
from checks.connections import ConnectedHost
from checks.results import STATUS, HostReport, Report
from cli.exit_codes import InvalidRequest
from cli.host_evidence import collect_evidence
from cli.instance_access import connect_boxes
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.option_types import OutputFile
from cli.output_file import write_output
from cli.shell_completion import LIMIT_OPTION
from rigwright import speed_baselines
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.engines import kind_of, kinds
from rigwright.engines.log_causes import find_cause_lines
from rigwright.model.instance import EnvSpec, Instance
from rigwright.operate.diagnosis_findings import HostEvidence
from rigwright.operate.root_cause_analysis import diagnose_host, symptom_names
from rigwright.project_root import ROOT
from rigwright.public_report import (
    ReportedBox,
    ReportedCause,
    ReportedCheck,
    ReportedInstance,
    ReportedRate,
    ReportedRun,
    ReportedSymptom,
    ShippedNames,
    render_report,
)
from rigwright.speed_baselines import compare_rates
from roles import root_shell


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@click.option("--output", type=OutputFile(path_type=Path), help="Write it to this file, once you agree.")
@click.option("--html", "page", type=OutputFile(path_type=Path), help="Write it to this file as an HTML page.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def report(inventory: str, limit: str | None, output: Path | None, page: Path | None, yes: bool) -> None:
    """Print a page that is safe to publish.

    It has versions, cards, the lock's digest, failed checks, measured speed and known symptoms in logs; no names of
    your own, addresses, keys, prompts, serial numbers or log lines. --output asks before it writes.
    Exit status: 0, all boxes are on it. 2, the command or a file is refused. 3, a host was not reached.
    Example: rigwright show report rig.py --output report.md
    """
    looked = _run_checks(inventory, limit)
    found, gone = connect_boxes(inventory, limit)
    by_name = {one.name: one for one in looked.hosts}
    boxes = [_report_box(box, by_name.get(box.name), inventory) for box in found]
    boxes += [ReportedBox({}, "", None, (), (), reached=False) for _ in gone]
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    text = render_report(boxes, shipped_names(), metadata.version("rigwright"), day)
    click.echo(text, nl=False)
    for file, as_page in ((output, False), (page, True)):
        if file and (yes or click.confirm(f"\nWrite this to {file}?")):
            write_output(file, _render_page(text, day) if as_page else text)
            click.echo(f"written to {file}", err=True)
    if gone or any(one.verdict == "not reached" for one in looked.hosts):
        sys.exit(STATUS["not reached"])


def _render_page(text: str, day: str) -> str:
    from cli.html_page import render_public_page

    return render_public_page(text, day, metadata.version("rigwright"))


def _run_checks(inventory: str, limit: str | None) -> Report:
    """The findings of the checks.

    Raises:
        InvalidRequest: they do not run.
    """
    limits = [f"--limit={limit}"] if limit else []
    command = [sys.executable, str(ROOT), "check", inventory, "--json", *limits]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return TypeAdapter(Report).validate_json(done.stdout)
    except ValidationError:
        why = done.stderr.strip().removeprefix("Error: ")[-2000:] or _describe_exit(done.returncode)
        line = shlex.join(["check", inventory, *limits])
        raise InvalidRequest(f"the checks did not run: {why}\n`rigwright {line}` says more") from None


def _describe_exit(status: int) -> str:
    ended = f"by signal {-status}" if status < 0 else f"with status {status}"
    return f"they ended {ended} without a message"


def shipped_names() -> ShippedNames:
    """The shipped names, which may be reported."""
    catalog = load_catalog([ROOT / "catalog"])
    return ShippedNames(
        variants=frozenset(catalog.variants),
        engines=frozenset(kinds()),
        cards=frozenset(card.name for card in catalog.cards.values()),
        checks={one.id: one.title for one in list_checks()},
        rates=frozenset(RATES),
        signs=symptom_names(),
    )


def _report_box(box: ConnectedHost, seen: HostReport | None, inventory: str) -> ReportedBox:
    checks = seen.checks if seen else []
    try:
        pages = speed_baselines.load_history(speed_baselines.history_path(inventory, box.rig.name))
    except speed_baselines.UnreadableHistory as error:
        raise InvalidRequest(str(error)) from None
    try:
        evidence, _ = collect_evidence(inventory, box, box.rig.instances, ())
    except root_shell.ConnectionGone:
        evidence = HostEvidence(inventory, box.name)
    numbers = {one.name: number for number, one in enumerate(box.rig.instances, 1)}
    return ReportedBox(
        versions=seen.versions if seen else {},
        lock=box.rig.digest,
        generation=seen.generation if seen else None,
        cards=[card.name for card in box.rig.cards],
        instances=[
            ReportedInstance(
                engine=one.engine.kind,
                version=engine_version(box.rig.envs, one),
                variant=one.variant_name,
                cards=len(one.cards),
                measured=last_measurement(pages.for_instance(one.name)),
                symptoms=collect_symptoms(one, evidence.logs.get(one.name, ())),
            )
            for one in box.rig.instances
        ],
        causes=[
            ReportedCause(one.id, numbers.get(one.where), one.times)
            for one in diagnose_host(evidence, {one.name: kind_of(one).causes for one in box.rig.instances})
        ],
        counts=Counter(result.verdict for result in checks),
        red=list(dict.fromkeys(ReportedCheck(one.id, one.severity) for one in checks if one.verdict == "fail")),
    )


def engine_version(envs: tuple[EnvSpec, ...], instance: Instance) -> str:
    """That of what an instance is run from."""
    if instance.env:
        return next((env.version for env in envs if env.name == instance.env), "")
    return instance.artefacts[0].version if instance.artefacts else ""


def last_measurement(of: speed_baselines.InstanceHistory) -> ReportedRun | None:
    """The last run that counts, beside what was accepted."""
    run = of.last_run
    if run is None:
        return None
    before = of.find_accepted(run)
    beside = {row.name: row for row in compare_rates(run, before.runs)} if before else {}
    rates = [
        ReportedRate(name, series.mean, row.before.mean, row.verdict)
        if row
        else ReportedRate(name, series.mean, None, "")
        for name, series in run.rates.items()
        for row in (beside.get(name),)
    ]
    was = run.fingerprint
    return ReportedRun(run.date, rates, was.driver, was.power_w, was.lanes)


def collect_symptoms(instance: Instance, lines: Sequence[str]) -> list[ReportedSymptom]:
    """The errors that lines of a log betray, by our own tables: nothing of the lines themselves."""
    found = find_cause_lines(kind_of(instance).causes, lines)
    return [
        ReportedSymptom(one.means, one.check, one.harmless, len(at))
        for one, at in found.items()
        # a refused request is a client's fault, and often one of our own checks
        if not (one.last or one.plain or one.request)
    ]
