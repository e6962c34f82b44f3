"""`rigwright report`: what of boxes may be shown to strangers, in one file for a forum or an issue."""

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

from bench.speed import RATES
from checks.catalogue import every
from checks.looking import Box
from checks.results import STATUS, HostReport, Report
from cli.clients import reach
from cli.completing import LIMIT
from cli.declared import INVENTORY
from cli.ending import Refused
from cli.evidence import gathered
from cli.written import put
from rigwright.baseline import book
from rigwright.baseline.compare import compared
from rigwright.declaration.catalog import load_catalog
from rigwright.engines import kind_of, kinds
from rigwright.engines.log import matched_lines
from rigwright.model.rig import Instance, Rig
from rigwright.operate.diagnose import diagnosed, names
from rigwright.operate.evidence import Evidence
from rigwright.paths import ROOT
from rigwright.report import page
from roles import root


@click.command()
@INVENTORY
@LIMIT
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file, once you agree."
)
@click.option("--yes", is_flag=True, help="Write it without being asked.")
def report(inventory: str, limit: str | None, output: Path | None, yes: bool) -> None:
    """What of the boxes of INVENTORY helps others to help, and tells them nothing else: for a forum or an issue.

    Versions, cards, the lock's digest, which checks do not hold, what `bench speed` measured, and which known symptoms
    the logs have. Only what is on a list of ours gets in: no names of hosts, instances or models of your own, no
    addresses, keys, prompts, serial numbers, and no line of a log. It is shown before it is written anywhere.
    Exit status 0: all boxes are in it. 2: refused. 3: one cannot be reached, and the page says so.
    Example: rigwright report ~/boxes/rig.py --output report.md
    """
    looked = _checked(inventory, limit)
    found, gone = reach(inventory, limit)
    by_name = {one.name: one for one in looked.hosts}
    boxes = [_box(box, by_name.get(box.name), inventory) for box in found]
    boxes += [page.Box({}, "", None, (), (), reached=False) for _ in gone]
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    text = page.text(boxes, shipped(), metadata.version("rigwright"), day)
    click.echo(text, nl=False)
    if output and (yes or click.confirm(f"\nWrite this to {output}?")):
        put(output, text)
        click.echo(f"written to {output}", err=True)
    if gone:
        sys.exit(STATUS["not reached"])


def _checked(inventory: str, limit: str | None) -> Report:
    """What the checks find.

    Raises:
        Refused: they do not run.
    """
    limits = [f"--limit={limit}"] if limit else []
    command = [sys.executable, "-m", "cli", "check", inventory, "--json", *limits]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return TypeAdapter(Report).validate_json(done.stdout)
    except ValidationError:
        why = done.stderr.strip().removeprefix("Error: ")[-2000:] or _silent(done.returncode)
        line = shlex.join(["check", inventory, *limits])
        raise Refused(f"the checks did not run: {why}\n`rigwright {line}` says more") from None


def _silent(status: int) -> str:
    ended = f"by signal {-status}" if status < 0 else f"with status {status}"
    return f"they ended {ended} and said nothing"


def shipped() -> page.Shipped:
    """What we ship, and may be named."""
    catalog = load_catalog([ROOT / "catalog"])
    return page.Shipped(
        variants=frozenset(catalog.variants),
        engines=frozenset(kinds()),
        cards=frozenset(card.name for card in catalog.cards.values()),
        checks={one.id: one.title for one in every()},
        rates=frozenset(RATES),
        signs=names(),
    )


def _box(box: Box, seen: HostReport | None, inventory: str) -> page.Box:
    checks = seen.checks if seen else []
    try:
        pages = book.read(book.path(inventory, box.rig.name))
    except book.Unreadable as error:
        raise Refused(str(error)) from None
    try:
        evidence, _ = gathered(inventory, box, box.rig.instances, ())
    except root.Gone:
        evidence = Evidence(inventory, box.name)
    numbers = {one.name: number for number, one in enumerate(box.rig.instances, 1)}
    return page.Box(
        versions=seen.versions if seen else {},
        lock=box.rig.digest,
        generation=seen.generation if seen else None,
        cards=[card.name for card in box.rig.cards],
        instances=[
            page.Instance(
                engine=one.engine.kind,
                version=engine_version(box.rig, one),
                variant=one.variant_name,
                cards=len(one.cards),
                measured=measured(pages.page(one.name)),
                symptoms=symptoms(one, evidence.logs.get(one.name, ())),
            )
            for one in box.rig.instances
        ],
        causes=[
            page.Sign(one.id, numbers.get(one.where), one.times)
            for one in diagnosed(evidence, {one.name: kind_of(one).causes for one in box.rig.instances})
        ],
        counts=Counter(result.verdict for result in checks),
        red=list(dict.fromkeys(page.Verdict(one.id, one.severity) for one in checks if one.verdict == "fail")),
    )


def engine_version(rig: Rig, instance: Instance) -> str:
    """That of what an instance is run from."""
    if instance.env:
        return next((env.version for env in rig.envs if env.name == instance.env), "")
    return instance.artefacts[0].version if instance.artefacts else ""


def measured(of: book.Page) -> page.Measured | None:
    """The last run that counts, beside what was accepted."""
    run = of.last
    if run is None:
        return None
    before = of.before(run)
    beside = {row.name: row for row in compared(run, before.runs)} if before else {}
    rates = [
        page.Rate(name, series.mean, row.before.mean, row.verdict) if row else page.Rate(name, series.mean, None, "")
        for name, series in run.rates.items()
        for row in (beside.get(name),)
    ]
    was = run.fingerprint
    return page.Measured(run.date, rates, was.driver, was.power_w, was.lanes)


def symptoms(instance: Instance, lines: Sequence[str]) -> list[page.Symptom]:
    """What lines of a log betray, by our own tables: nothing of the lines themselves."""
    found = matched_lines(kind_of(instance).causes, lines)
    return [
        page.Symptom(one.means, one.check, one.harmless, len(at))
        for one, at in found.items()
        if not (one.last or one.plain)
    ]
