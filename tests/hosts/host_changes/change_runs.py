"""Runs of changes on a host: each alone, or drifts one on top of another."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tests.hosts.drift_host import UnexpectedDrift
from tests.hosts.drift_tables import load_drifts, make_batches
from tests.hosts.host_changes.change_results import ChangeResult, judge_case
from tests.hosts.host_changes.change_tables import ChangeCase
from tests.hosts.host_changes.changed_host import ChangedHost, StepFailed
from tests.hosts.host_changes.report_findings import HostFinding, new_findings
from tests.hosts.host_changes.report_server import ReportMissing

NOTHING = "true"
"""The `undo` of a change that leaves nothing."""
ALWAYS_WRITTEN = ("/var/log/", "/run/", "/tmp/", "/var/lib/rigwright/self_check/", "/var/lib/systemd/")
"""Beginnings of paths that every host writes at any time."""
HOST_ERRORS = (StepFailed, ReportMissing, UnexpectedDrift, RuntimeError, TimeoutError)
"""Failures of a step on the host."""


def run_changes(host: ChangedHost, cases: Mapping[str, ChangeCase], *, accepts: bool) -> Iterator[ChangeResult]:
    """Run changes one after another, each on the host as it was before the first.

    Args:
        host: A host that has begun.
        cases: The changes by name.
        accepts: Whether the operator accepts the result of `prepare`.

    Raises:
        TimeoutError, RuntimeError: the host does not come back from a restoration.
    """
    before = host.at_rest
    for case in cases.values():
        try:
            prepared = _prepare_host(host, case, accepts) if case.prepare else before
        except HOST_ERRORS as error:
            yield ChangeResult(case.name, case.area, case.reaches, "invalid", error=f"prepare: {error}")
            before = host.restore()
            continue
        result = _run_change(host, case, prepared)
        if not case.undo:
            before = host.restore()
        elif case.undo != NOTHING or result.findings or result.error:
            leftover = _undo_change(host, case, before)
            if leftover:
                before = host.restore()
            result = replace(result, leftover=leftover)
        yield result


def run_drifts(host: ChangedHost, cases: Mapping[str, ChangeCase]) -> Iterator[ChangeResult]:
    """Run drifts in the batches of their own tests, one on top of another: the host reports after each.

    Findings of a drift are those that no drift before it in its batch has caused.

    Raises:
        TimeoutError, RuntimeError: the host does not come back from a restoration.
    """
    drifts = load_drifts()
    for batch in make_batches({name: drifts[name] for name in cases}):
        before = _restore_for_drifts(host, [cases[name] for name in batch])
        for name in batch:
            result = _run_change(host, cases[name], before)
            yield result
            before = [*before, *result.findings]
            if any(not finding.check for finding in result.findings):
                before = _restore_for_drifts(host, [cases[name] for name in batch])


def _restore_for_drifts(host: ChangedHost, cases: Sequence[ChangeCase]) -> list[HostFinding]:
    """Restore a host, with an earlier generation where a drift needs one; its findings then."""
    found = host.restore()
    if not any(case.earlier for case in cases):
        return found
    host.add_earlier_generation()
    return host.report_findings()


def _prepare_host(host: ChangedHost, case: ChangeCase, accepts: bool) -> list[HostFinding]:
    """Prepare a host for a change; its findings then.

    Raises:
        HOST_ERRORS: that fails.
    """
    host.run_steps(case.prepare)
    if accepts:
        host.accept_changes()
    return host.report_findings()


def _run_change(host: ChangedHost, case: ChangeCase, before: list[HostFinding]) -> ChangeResult:
    """Make a change and compare the host's findings with those before."""
    began, since = time.monotonic(), time.time_ns()
    try:
        _make_change(host, case)
        findings = new_findings(before, host.report_findings())
    except HOST_ERRORS as error:
        return ChangeResult(case.name, case.area, case.reaches, "invalid", error=str(error), red=case.red)
    verdict = judge_case(case, findings)
    paths = host.host.changed_paths(since) if verdict in ("MISSED", "listed") else []
    written = [path for path in paths if not path.startswith(ALWAYS_WRITTEN)]
    seconds = time.monotonic() - began
    return ChangeResult(
        case.name, case.area, case.reaches, verdict, findings, written=written, red=case.red, seconds=seconds
    )


def _make_change(host: ChangedHost, case: ChangeCase) -> None:
    """Make a change; one that cuts off the host's connection is made.

    Raises:
        HOST_ERRORS: that fails on a host that is reachable.
    """
    try:
        host.run_steps(case.do)
    except StepFailed:
        if host.host.is_reachable():
            raise


def _undo_change(host: ChangedHost, case: ChangeCase, before: list[HostFinding]) -> str:
    """Undo a change; the difference that is left."""
    try:
        host.run_steps(case.undo)
        left = new_findings(before, host.wait_for_findings(before))
    except HOST_ERRORS as error:
        return str(error)
    return "; ".join(f"{one.label}: {one.text[:100]}" for one in left)
