"""The report of `check --ctrf`: results in the Common Test Report Format."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from checks.results import HostReport, Report, Result

SPEC_VERSION = "0.0.0"
STATUSES: Mapping[str, str] = {
    "ok": "passed",
    "fail": "failed",
    "changed": "failed",
    "skip": "skipped",
    "waived": "other",
}
"""Verdict -> status. A change that only counts with `--strict` is `other`."""
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:rigwright:check")
OWN_FIELDS = ("id", "title", "severity", "part", "verdict", "took_s")
"""Fields of a result that the format has keys for; `extra` has the others."""


def render_ctrf(report: Report) -> str:
    """A report of checks as CTRF: a test for each check and part of a host, with the host as its suite."""
    start = datetime.strptime(report.as_of, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    start_ms = int(start.timestamp()) * 1000
    took_ms = round(report.took_s * 1000)
    tests = [test for host in report.hosts for test in _describe_tests(host)]
    counted = Counter(str(one["status"]) for one in tests)
    summary = {
        "tests": len(tests),
        **{status: counted[status] for status in ("passed", "failed", "skipped", "pending", "other")},
        "suites": len(report.hosts),
        "start": start_ms,
        "stop": start_ms + took_ms,
        "duration": took_ms,
        "extra": {"verdict": report.verdict},
    }
    content = {
        "reportFormat": "CTRF",
        "specVersion": SPEC_VERSION,
        "timestamp": report.as_of,
        "generatedBy": f"rigwright {report.rigwright}",
        "results": {
            "tool": {"name": "rigwright check", "version": report.rigwright},
            "summary": summary,
            "tests": tests,
            "environment": {
                "reportName": report.inventory.rpartition("/")[2],
                "extra": {"hosts": [_describe_host(host) for host in report.hosts], "deep": report.deep},
            },
        },
    }
    return json.dumps(content, indent=2) + "\n"


def _describe_host(host: HostReport) -> dict[str, Any]:
    return {name: value for name, value in asdict(host).items() if name != "checks"}


def _describe_tests(host: HostReport) -> Iterator[dict[str, Any]]:
    """The tests of a host; of one that was not reached a failed one."""
    if host.verdict == "not reached":
        yield {
            "id": _make_id(host.name, "reached"),
            "name": "the host is reached",
            "status": "failed",
            "rawStatus": host.verdict,
            "duration": 0,
            "suite": [host.name],
            "message": "no check was run: the host was not reached",
        }
    for one in host.checks:
        yield _describe_test(host.name, one)


def _describe_test(host: str, one: Result) -> dict[str, Any]:
    message = describe_result(one)
    return {
        "id": _make_id(host, one.label),
        "name": f"{one.id} {one.name}",
        "status": "other" if one.is_listed else STATUSES[one.verdict],
        "rawStatus": one.verdict,
        "duration": round(one.took_s * 1000),
        "suite": [host],
        **({"message": message} if message else {}),
        "tags": [one.severity],
        "labels": {"check": one.id, "severity": one.severity, **({"part": one.part} if one.part else {})},
        "extra": {name: value for name, value in asdict(one).items() if name not in OWN_FIELDS and value},
    }


def describe_result(one: Result) -> str:
    """A result that does not hold, or was skipped, in lines; empty for one that holds."""
    rows = {"expected": one.expected, "found": one.found, "since": one.since, "author": one.author, "fix": one.cure}
    lines = [f"{name}: {text}" for name, text in rows.items() if text]
    lines += [f"changed: {one.change_label}: {change.describe()}" for change in one.changes]
    # of checks that are waived; an inventory names the waivers
    lines += [
        f"waived until {waiver['until']} by {waiver['owner']}: {waiver['reason']}"
        for waiver in asdict(one).get("waivers", ())
    ]
    if not lines and one.verdict != "ok" and one.note:
        lines = [one.note]
    return "\n".join(lines)


def _make_id(host: str, label: str) -> str:
    # a host's text may have half characters, which UTF-8 does not write
    return str(uuid.uuid5(NAMESPACE, f"{host} {label}".encode("utf-8", "backslashreplace").decode()))
