"""Waivers of failing checks: validation, end, and the values that they cover."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path

from rigwright.model.check_ids import CHECK_IDS
from rigwright.model.inventory_feature import EntryDraft, Feature, Fields
from rigwright.model.rig import Rig
from rigwright.model.waiver_schema import WaiverEntry
from rigwright.name_suggestions import describe_unknown
from rigwright.problems import Problem

NEVER_WAIVED: Mapping[str, str] = {
    "X01": "it shows that accepted entries were replaced",
    "X02": "its entries are never accepted",
    "Y02": "it shows a changed self-check",
    "Y03": "it shows changed files of root",
}
"""Check -> the reason why it cannot be waived."""
LONGEST_SHOWN = 1000
"""Characters of an observed value without a digest."""
OWN_CHECKS = "checks"
"""The folder of a user's own checks, next to an inventory."""
_QUOTED_ID = re.compile(r"""["']([A-Z]{1,4}[0-9]{2,3})["']""")


def describe_observed(expected: str, found: str) -> str:
    """The observed value of one thing that fails a check, without its time; the end of a long one is its SHA-256."""
    text = f"{found} (expected {expected})"
    if len(text) <= LONGEST_SHOWN:
        return text
    return f"{text[:LONGEST_SHOWN]}... (SHA-256 {sha256(text.encode()).hexdigest()})"


def format_day(moment: float) -> str:
    """The day of a moment, in UTC."""
    return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%d")


def find_waivers(
    waivers: Iterable[WaiverEntry], check: str, part: str, observed: Collection[str], today: str
) -> tuple[tuple[WaiverEntry, ...], tuple[WaiverEntry, ...]]:
    """The waivers that cover a failure, and those that would without their end.

    A failure is covered only if each of its observed values is.

    Args:
        waivers: All waivers of the host.
        check: The failing check.
        part: Its part of the host; empty for the host.
        observed: Its observed values; of a check without a typed finding none.
        today: The day, in UTC.
    """
    fitting = [one for one in waivers if (one.check, one.part or "") == (check, part) and one.observed in observed]
    current = tuple(one for one in fitting if one.until >= today)
    is_covered = bool(observed) and {one.observed for one in current} == set(observed)
    return (current if is_covered else ()), tuple(one for one in fitting if one.until < today)


def find_ended(rig: Rig, now: float | None = None) -> tuple[Problem, ...]:
    """The waivers of a rig that have ended: a deploy is refused for them, and their checks fail again."""
    today = format_day(time.time() if now is None else now)
    return tuple(
        Problem(rig.inventory, f"{rig.name}.waivers[{index}].until", _describe_ended(one.until, today))
        for index, one in enumerate(rig.waivers)
        if one.until < today
    )


def find_deploy_faults(rig: Rig) -> tuple[Problem, ...]:
    """The problems of a rig for which only a deploy is refused: its bundle, signatures, and waivers that have ended."""
    return (*rig.supply_faults, *find_ended(rig))


def _describe_ended(until: str, today: str) -> str:
    return f'"{until}" is refused: must be {today} or later, or remove the waiver: its check fails again'


def find_own_ids(folder: Path) -> set[str]:
    """Ids that files of a user's own checks contain."""
    found: set[str] = set()
    for path in sorted((folder / OWN_CHECKS).rglob("*.py")):
        with suppress(OSError):
            found.update(_QUOTED_ID.findall(path.read_text(errors="replace")))
    return found


def _validate(draft: EntryDraft) -> Fields:
    """Refuse unknown checks, those that are never waived, and repeated waivers, also in entries with other mistakes."""
    declared = draft.data.get("waivers")
    rows: Sequence[object] = declared if isinstance(declared, (list, tuple)) else ()
    if not rows:
        return {"waivers": ()}
    known = CHECK_IDS | find_own_ids(draft.folder)
    today = format_day(time.time())
    ended: list[tuple[str, str]] = []
    seen: dict[tuple[str, str, str], int] = {}
    before = len(draft.problems)
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            continue
        check, until = row.get("check"), row.get("until")
        key = f"waivers[{index}]"
        if isinstance(check, str) and check not in known:
            draft.refuse(f"{key}.check", describe_unknown("check", check, known))
        elif isinstance(check, str) and check in NEVER_WAIVED:
            draft.refuse(f"{key}.check", f"{check} is refused: {NEVER_WAIVED[check]}, so no waiver covers it")
        if isinstance(until, str) and re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", until) and until < today:
            ended.append((f"{key}.until", _describe_ended(until, today)))
        value = (str(check), str(row.get("part") or ""), str(row.get("observed")))
        if (first := seen.setdefault(value, index)) != index:
            draft.refuse(key, f"is refused: waivers[{first}] has the same check, part and observed value")
    if len(draft.problems) > before or any(one.key.startswith(f"{draft.name}.waivers") for one in draft.problems):
        for ended_key, text in ended:  # alone, a waiver that has ended refuses deploys only
            draft.refuse(ended_key, text)
    return {"waivers": draft.entry.waivers}


WAIVERS = Feature("waivers", _validate)
