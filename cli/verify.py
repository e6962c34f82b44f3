"""`rigwright verify`: whether instances can do what their variants declare, asked as a client would."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone

import click

from checks.looking import Box, each
from checks.results import STATUS, Conforms, worst
from cli import junit as junit_file
from cli.clients import INSTANCE, Door, Interrupt, Refused, chosen, door, door_of, reach
from cli.declared import INVENTORY, LIMIT
from cli.interrupts import STATUS as INTERRUPTED
from rigwright.declaration.rig import Instance
from rigwright.operate.place import at_instance
from rigwright.operate.verify import Finding, passed
from rigwright.problems import printable
from rigwright.serving.units import unit
from roles.client import Failed, Lost
from roles.client.verify import patched
from roles.client.verify import verify as verify_one

SCHEMA = 1
"""Of the JSON report; a key that is gone, or means something else, raises it."""
COLOURS = {"ok": "green", "fail": "red", "skip": "yellow"}


@dataclass
class Verified:
    """One instance."""

    instance: str
    variant: str
    gateway: bool
    """Whether it was asked through the gateway."""
    ended: str = ""
    """Why not all was asked; empty where all was."""
    checks: list[Finding] = field(default_factory=list)

    @property
    def verdict(self) -> Conforms:
        """Of it all."""
        if self.ended:
            return "not reached"
        return "as declared" if passed(self.checks) else "not as declared"


@dataclass
class Host:
    """One host."""

    name: str
    verdict: Conforms
    instances: list[Verified] = field(default_factory=list)


@dataclass
class Report:
    """All of them."""

    schema: int
    as_of: str
    inventory: str
    verdict: Conforms
    interrupted: bool
    hosts: list[Host]


@click.command()
@INVENTORY
@LIMIT
@INSTANCE
@door
@click.option("--json", "as_json", is_flag=True, help="Print a report as JSON in place of lines.")
@click.option("--junit", type=click.Path(dir_okay=False), help="Also write a JUnit XML report to this file.")
def verify(
    inventory: str,
    limit: str | None,
    instance: tuple[str, ...],
    gateway: bool,
    listener: str | None,
    key_file: str | None,
    as_json: bool,
    junit: str | None,
) -> None:
    """Ask every instance of INVENTORY for all that its variant declares: answers, tools, thoughts, images, streams.

    Requests come from a job on the box, at the instance's own socket, or with --gateway at the front door. What is not
    declared is n/a; what is and cannot be judged is a skip, and no pass. Exit status 0: all pass. 1: something fails,
    or is a skip. 2: refused. 3: a host cannot be reached, or was lost on the way.
    Example: rigwright verify ~/boxes/rig.py --limit box1 --instance chat
    """
    way = door_of(gateway, listener, key_file)
    found, gone = reach(inventory, limit)
    by_box: dict[str, list[Instance]] = {}
    for box, one in chosen(found, instance):
        way.place(box, one)
        by_box.setdefault(box.name, []).append(one)
    interrupt = Interrupt()

    def tell(box: Box, one: Instance, finding: Finding) -> None:
        if not as_json:
            _line(box.name, one.name, finding)

    def look(box: Box) -> Host:
        seen = _verified(box, by_box.get(box.name, []), way, interrupt, tell)
        return Host(box.name, worst([one.verdict for one in seen]), seen)

    hosts = each(found, look) + [Host(name, "not reached") for name in gone]
    verdict = worst([host.verdict for host in hosts])
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    report = Report(SCHEMA, now, inventory, verdict, interrupt.asked, hosts)
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2, ensure_ascii=False))
    else:
        _summary(report)
    if junit:
        try:
            junit_file.write(junit, _cases(report))
        except OSError as error:
            raise Refused(f"--junit: {junit}: {error.strerror}") from None
    sys.exit(INTERRUPTED if interrupt.asked else STATUS[verdict])


def _verified(
    box: Box,
    instances: list[Instance],
    way: Door,
    interrupt: Interrupt,
    tell: Callable[[Box, Instance, Finding], None],
) -> list[Verified]:
    """What came of a box's instances, one after the other."""
    found = [Verified(one.name, one.variant_name, way.gateway) for one in instances]
    if not instances:
        return found
    try:
        box = box.ahead("served", "facts")
        served, desired = box.served(), box.desired()
    except click.ClickException as error:
        for told in found:
            told.ended = printable(error.message)
        return found
    for one, told in zip(instances, found, strict=True):
        if interrupt.asked:
            told.ended = "interrupted"
            continue
        made = desired.installations[one.installed_as]
        service = one.kind.service(box.rig, one, made)
        names = tuple(map(str, (*one.patches, *box.rig.patches.get(one.installed_as, ()))))
        patches = patched(served, one, unit(box.rig, one, made).unit_state, tuple(dict.fromkeys(names)))
        try:
            counting = interrupt.client(box, at_instance(box.rig, one)) if way.gateway else nullcontext()
            with interrupt.client(box, way.place(box, one)) as client, counting as own:
                for finding in verify_one(client, one, service, patches, lambda what: None, own):
                    told.checks.append(finding)
                    tell(box, one, finding)
        except (Lost, Failed) as error:
            told.ended = "interrupted" if interrupt.asked else f"the client on the box is lost: {error}"
    return found


def _line(host: str, instance: str, finding: Finding) -> None:
    word = click.style(f"{finding.verdict:<4}", fg=COLOURS.get(finding.verdict))
    detail = f" ({finding.detail})" if finding.verdict == "ok" else ""
    click.echo(f"  {word}  {host}  {instance}: {finding.title}{printable(detail)}")
    if finding.verdict in ("fail", "skip"):
        click.echo(f"        {printable(finding.detail)}")


def _summary(report: Report) -> None:
    for host in report.hosts:
        checks = [one for instance in host.instances for one in instance.checks]
        count = {word: sum(one.verdict == word for one in checks) for word in ("ok", "fail", "skip")}
        for instance in host.instances:
            if instance.ended:
                click.echo(f"{host.name}: {instance.instance}: not all was asked: {instance.ended}")
        if not host.instances:
            click.echo(f"{host.name}: {'cannot be reached' if host.verdict == 'not reached' else 'no such instance'}")
            continue
        word = {"as declared": "verified", "not as declared": "not verified", "not reached": "not verified"}[
            host.verdict
        ]
        click.echo(f"{host.name}: {word} ({count['ok']} ok, {count['fail']} failed, {count['skip']} skipped)")


def _cases(report: Report) -> list[junit_file.Case]:
    found = []
    for host in report.hosts:
        if not host.instances and host.verdict == "not reached":
            found.append(junit_file.Case(host.name, "host", "is reached", 0.0, "cannot be reached"))
        for one in host.instances:
            for check in one.checks:
                if check.verdict != "n/a":
                    why = {check.verdict: check.detail}
                    skipped, failure = why.get("skip", ""), why.get("fail", "")
                    found.append(junit_file.Case(host.name, one.instance, check.title, check.took_s, failure, skipped))
            if one.ended:
                found.append(junit_file.Case(host.name, one.instance, "all is asked", 0.0, one.ended))
    return found
