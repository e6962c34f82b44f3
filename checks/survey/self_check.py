"""The check that a host makes of itself: its last result, and its files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from checks.survey.section import Section, SurveyScope
from rigwright.monitoring.self_check import (
    FULL_READ_HOURS,
    STALE_MINUTES,
    declaration_path,
    full_read_path,
    program_folder,
    result_path,
)
from rigwright.plan.self_check_declaration import render_self_check

SETTLED_S = 360
"""Seconds for which a failure of the host's own must have lasted to be compared: a run and its next one."""
MINUTE, HOUR = 60, 3600  # seconds
BOOT_HOURS = 6
"""Hours after a boot in which a read that was due meanwhile is complete."""


@dataclass(frozen=True)
class SelfCheckFinding:
    """One thing that does not hold, in the words of the host's own check."""

    check: str
    text: str
    since: float
    """When it was seen first, in seconds since 1970."""


@dataclass(frozen=True)
class SelfCheckResult:
    """The result of a run."""

    judged: float | None
    """When the last run that was not skipped was, in seconds since 1970; None where each was."""
    outcome: str
    failing: list[SelfCheckFinding]


@dataclass(frozen=True)
class SelfCheckSurvey:
    """All of it."""

    now: float
    """The host's clock, in seconds since 1970."""
    booted: float
    deployed: float
    """When its declaration was written; 0 without one."""
    result: SelfCheckResult | None
    """None where there was no run yet."""
    full_read: float
    """When the last nightly read was complete, in seconds since 1970; 0 where no record tells."""
    unreadable: str
    """Why the result cannot be read; empty where it can."""
    files: dict[str, str]
    """Path -> SHA-256; empty where there is none."""
    others: list[str] = field(default_factory=list)
    """Further files in the folder of its program."""


def expected_files(scene: SurveyScope) -> dict[str, str]:
    """Path -> SHA-256 of its files but its units, which are judged with all others."""
    texts = render_self_check(scene.rig, scene.desired.facts.system)
    return {path: _digest_text(text) for path, text in texts.items() if not path.startswith("/etc/systemd/")}


@lru_cache(1 << 8)
def _digest_text(text: str) -> str:
    """SHA-256 of a text, which many hosts have in common."""
    return hashlib.sha256(text.encode()).hexdigest()


def describe_stale(found: SelfCheckSurvey) -> str:
    """Why the last run is too long ago; empty where it is not."""
    if found.unreadable:
        return f"a result that is not readable: {found.unreadable}"
    last = (found.result.judged if found.result else None) or 0.0
    waited = found.now - max(last, found.booted, found.deployed)
    if waited <= STALE_MINUTES * MINUTE:
        return ""
    return f"the last run {(found.now - last) / MINUTE:.0f} minutes ago" if last else "no run since the deploy"


def describe_stale_full_read(found: SelfCheckSurvey) -> str:
    """Why the last nightly read is too long ago; empty where it is not. A box that was off reads after its boot."""
    if found.full_read > found.now + HOUR:
        return f"a record of a read {(found.full_read - found.now) / HOUR:.0f} hours from now"
    waited = found.now - max(found.full_read, found.deployed)
    if waited <= FULL_READ_HOURS * HOUR or found.now - found.booted <= BOOT_HOURS * HOUR:
        return ""
    return f"the last read {waited / HOUR:.0f} hours ago" if found.full_read else "no read since the deploy"


def find_disagreements(found: SelfCheckSurvey, verdicts: Mapping[str, str], active: str) -> Sequence[SelfCheckFinding]:
    """The problems that the host's own check reports for some time, and the same check from here does not.

    Args:
        found: The host's own.
        verdicts: Check -> `ok`, `fail` or `skip`, of those that were run from here.
        active: The service's activity: a run that has begun knows more than the last one.
    """
    if not found.result or active in ("active", "activating"):
        return ()
    old = (one for one in found.result.failing if found.now - one.since >= SETTLED_S)
    return [one for one in old if verdicts.get(one.check) == "ok"]


def _asks(scene: SurveyScope) -> object:
    roots = scene.rig.roots
    return {
        "result": result_path(roots),
        "full_read": full_read_path(roots),
        "declaration": declaration_path(roots),
        "files": sorted(expected_files(scene)),
        "folder": program_folder(roots),
    }


SELF_CHECK: Section[SelfCheckSurvey] = Section(
    "self_check",
    SelfCheckSurvey,
    _asks,
    blind="a result that root on the host has forged",
    phase="probed",
)
