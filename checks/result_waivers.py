"""Waivers of the inventory, applied to the failures of checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from checks import Items, continue_past_waived
from checks.results import AppliedWaiver, Result, describe_waivers
from rigwright.check_waivers import describe_observed, find_waivers
from rigwright.model.waiver_schema import WaiverEntry


def apply_waivers(
    result: Result, items: Sequence[tuple[str, str]], waivers: Iterable[WaiverEntry], today: str
) -> Result:
    """A failure with its observed values; `waived` if waivers cover all of them.

    Args:
        result: The failure.
        items: (expected, found) of each thing that is not as it should be; empty for one without a typed finding.
        waivers: Those of the host.
        today: The day, in UTC.
    """
    observed = tuple(dict.fromkeys(describe_observed(*item) for item in items))
    result = replace(result, observed=observed)
    covering, ended = find_waivers(waivers, result.id, result.part, observed, today)
    if covering:
        applied = tuple(AppliedWaiver(one.observed, one.owner, one.reason, one.until) for one in covering)
        return replace(result, verdict="waived", waivers=applied)
    if ended:
        return replace(result, note="; ".join(f"the waiver by {one.owner} ended on {one.until}" for one in ended))
    return result


def cover_items(waivers: Sequence[WaiverEntry], check: str, part: str, today: str) -> Callable[[Items], bool]:
    """A predicate: waivers cover each of some items of a check."""
    own = [one for one in waivers if (one.check, one.part or "") == (check, part)]

    def is_waived(items: Items) -> bool:
        observed = {describe_observed(*item) for item in items} if own else ()
        return bool(find_waivers(own, check, part, observed, today)[0])

    return is_waived


def pass_waived(check: str, part: str, waivers: Sequence[WaiverEntry], today: str) -> AbstractContextManager[None]:
    """Run a check past the drifts that waivers cover."""
    # most hosts have none, and making the predicate takes longer than a check
    return continue_past_waived(cover_items(waivers, check, part, today)) if waivers else nullcontext()


def describe_waived(result: Result) -> str:
    """A line for a waived failure."""
    return f"[waived] {describe_waivers(result)}; expected {result.expected}, found {result.found}"
