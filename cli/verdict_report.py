"""Verdicts of verbs as lines, JSON and JUnit XML."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

import click

from checks.results import STATUS, Conforms, worst_verdict
from cli.exit_codes import INTERRUPTED_STATUS, InvalidRequest
from cli.tables import print_paragraph, print_prose
from rigwright.operate.capability_probes import ProbeFinding, is_passed
from rigwright.problems import printable

# characters that XML 1.0 cannot write, in a text that a host may have given
INVALID_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class JUnitCase:
    """One thing that was judged."""

    suite: str
    """The host."""
    group: str
    """The part of it."""
    name: str
    seconds: float
    failure: str = ""
    """Why it failed; empty where it did not."""
    skipped: str = ""
    """Why it was not judged."""


def write_junit(path: str, cases: Iterable[JUnitCase]) -> None:
    """Write them to a file, a suite for each host.

    Raises:
        OSError: it cannot be written.
    """
    root = ElementTree.Element("testsuites")
    suites: dict[str, list[JUnitCase]] = {}
    for case in cases:
        suites.setdefault(case.suite, []).append(case)
    for name, listed in suites.items():
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_escape_xml(name),
            tests=str(len(listed)),
            failures=str(sum(bool(case.failure) for case in listed)),
            skipped=str(sum(bool(case.skipped) for case in listed)),
            errors="0",
            time=f"{sum(case.seconds for case in listed):.3f}",
        )
        for case in listed:
            made = ElementTree.SubElement(
                suite,
                "testcase",
                classname=_escape_xml(f"{case.suite}.{case.group}"),
                name=_escape_xml(case.name),
                time=f"{case.seconds:.3f}",
            )
            for kind, why in (("failure", case.failure), ("skipped", case.skipped)):
                if why:
                    ElementTree.SubElement(made, kind, message=_escape_xml(why))
    Path(path).write_bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _escape_xml(value: str) -> str:
    return INVALID_XML.sub("\N{REPLACEMENT CHARACTER}", value)


SCHEMA = 1
"""Of the JSON reports; a key that is gone, or means something else, raises it."""
REFUSED_STATUS = InvalidRequest.exit_code
COLOURS = {"ok": "green", "fail": "red", "skip": "yellow"}


@dataclass
class InstanceVerdict:
    """One instance."""

    instance: str
    variant: str
    gateway: bool = False
    """Whether it was asked through the gateway."""
    ended: str = ""
    """Why incomplete; empty where all was."""
    refused: bool = False
    """Whether the host was left unasked, because another process is at work there."""
    state: str = ""
    """Its state, as a sentence, where it is not ready; empty where it is."""
    foreign_tokens: int | None = None
    """Of requests that were not ours meanwhile: figures with some are not its own; None where that is not known."""
    checks: Sequence[ProbeFinding] = field(default_factory=list)

    @property
    def verdict(self) -> Conforms:
        """Of it all."""
        if self.ended:
            return "not reached"
        return "as declared" if is_passed(self.checks) and not self.state else "not as declared"


class StressVerdict(InstanceVerdict):
    """One instance under stress: a probe that its engine refuses is not borne."""

    @property
    def verdict(self) -> Conforms:
        """Of it all."""
        if self.ended:
            return "not reached"
        return "as declared" if all(one.verdict in ("ok", "n/a") for one in self.checks) else "not as declared"


@dataclass
class HostVerdict:
    """One host."""

    name: str
    verdict: Conforms
    instances: list[InstanceVerdict] = field(default_factory=list)
    why: str = ""
    """Why it was not reached."""

    @staticmethod
    def from_instances(name: str, instances: list[InstanceVerdict]) -> HostVerdict:
        """With the worst of its instances' verdicts."""
        return HostVerdict(name, worst_verdict([one.verdict for one in instances]), instances)


@dataclass
class VerdictReport:
    """All of them."""

    schema: int
    as_of: str
    inventory: str
    verdict: Conforms
    interrupted: bool
    hosts: list[HostVerdict]


def print_finding(host: str, instance: str, finding: ProbeFinding) -> None:
    """Print what came of a check."""
    word = click.style(f"{finding.verdict:<4}", fg=COLOURS.get(finding.verdict))
    detail = f" ({finding.detail})" if finding.verdict == "ok" and finding.detail else ""
    print_paragraph(f"{host}  {instance}: {finding.title}{printable(detail)}", lead=f"  {word}  ")
    if finding.verdict in ("fail", "skip"):
        print_paragraph(printable(finding.detail), lead=" " * 8)


def finish_report(
    inventory: str,
    hosts: list[HostVerdict],
    *,
    interrupted: bool,
    as_json: bool,
    junit: str | None,
    words: tuple[str, str],
) -> None:
    """Print what it all comes to, write what is to be written, and end with the exit status of it.

    Args:
        inventory: The inventory.
        hosts: Those that were asked, and those out of reach.
        interrupted: Whether the operator ended it.
        as_json: Whether a report is printed as JSON.
        junit: The file for one in JUnit's XML.
        words: The names of a host that passes, and of one that does not.
    """
    verdict = worst_verdict([host.verdict for host in hosts])
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    report = VerdictReport(SCHEMA, now, inventory, verdict, interrupted, hosts)
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    else:
        for host in hosts:
            _print_summary(host, words)
    if junit:
        try:
            write_junit(junit, _junit_cases(report))
        except OSError as error:
            raise InvalidRequest(f"--junit: {junit}: {error.strerror}") from None
    sys.exit(INTERRUPTED_STATUS if interrupted else _exit_status(hosts, verdict))


def _exit_status(hosts: list[HostVerdict], verdict: Conforms) -> int:
    """The exit status: for a host that is refused and would be reported, it is that of a refusal."""
    refused = [one for host in hosts for one in host.instances if one.refused]
    lost = [host for host in hosts if not host.instances and host.verdict == "not reached"]
    lost += [host for host in hosts if any(one.ended and not one.refused for one in host.instances)]
    return REFUSED_STATUS if refused and not lost else STATUS[verdict]


def _print_summary(host: HostVerdict, words: tuple[str, str]) -> None:
    if not host.instances:
        print_prose(f"{host.name}: {host.why or 'no such instance'}")
        return
    for one in host.instances:
        if one.state:
            print_paragraph(f"{host.name}: {printable(one.state)}", hang=4)
        if one.ended:
            print_paragraph(f"{host.name}: {one.instance}: incomplete: {printable(one.ended)}", hang=4)
        if one.foreign_tokens:
            print_paragraph(f"{host.name}: {one.instance}: {one.foreign_tokens} tokens were of other requests", hang=4)
    checks = [check for one in host.instances for check in one.checks]
    ok, failed, skipped = (sum(one.verdict == word for one in checks) for word in ("ok", "fail", "skip"))
    word = words[host.verdict != "as declared"]
    print_prose(f"{host.name}: {word} ({ok} ok, {failed} failed, {skipped} skipped)")


def _junit_cases(report: VerdictReport) -> list[JUnitCase]:
    found = []
    for host in report.hosts:
        if not host.instances and host.verdict == "not reached":
            found.append(JUnitCase(host.name, "host", "is reached", 0.0, host.why))
        for one in host.instances:
            for check in one.checks:
                if check.verdict != "n/a":
                    failure = check.detail if check.verdict == "fail" else ""
                    skipped = check.detail if check.verdict == "skip" else ""
                    found.append(JUnitCase(host.name, one.instance, check.title, check.took_s, failure, skipped))
            if one.state:
                found.append(JUnitCase(host.name, one.instance, "is ready", 0.0, one.state))
            if one.ended:
                found.append(JUnitCase(host.name, one.instance, "complete", 0.0, one.ended))
    return found
