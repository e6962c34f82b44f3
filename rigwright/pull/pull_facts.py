"""Facts of a box that pulls: its identity, and the record of its pulls; and the key of an inventory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from rigwright.host.script_output import HostOutput, Schema, free_text, sha256, text
from rigwright.model.fact_types import PullFacts
from rigwright.model.inventory_feature import EntryDraft, FactSource, Feature, Fields
from rigwright.model.pull_schema import PullEntry
from rigwright.model.rig import Rig
from rigwright.pull.pull_units import MOST_DELAY, pull_state

RECORD = "state.json"
BOX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SIGNS = ("generation", "timestamp")
MINUTE = 60  # seconds
LATE_RUNS = 3  # that may fail, as those while a web server restarts
SLOW_S = 900  # seconds for a run


def _probe_values(rig: Rig) -> Mapping[str, object]:
    return {"pull_record": f"{pull_state(rig.roots)}/{RECORD}" if rig.pull else ""}


def parse_pull_record(content: str, machine: str = "") -> PullFacts:
    """The record of a box, which root there writes: its texts are for people.

    Args:
        content: The file; empty for none.
        machine: SHA-256 of the box's machine id.
    """
    try:
        value = json.loads(content) if content else {}
        numbers = [int(value.get(key) or 0) for key in ("run", "verified", "serial", "busy")]
        words = [free_text(str(value.get(key) or "")) for key in ("outcome", "reason", "text")]
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        return PullFacts(machine, outcome="refused", reason="record", text="the record of pulls is not readable")
    run, verified, serial, busy = numbers
    return PullFacts(machine, run, verified, serial, busy, *words)


def describe_pull_problem(facts: PullFacts) -> str:
    """Why the box does not serve the newest published generation; empty where it does, or nothing is known."""
    if facts.outcome in ("refused", "failed"):
        return f"{facts.outcome}: {facts.text}"
    return ""


def describe_late_pull(facts: PullFacts, pull: PullEntry, now: float, since: float) -> str:
    """Why the last verified timestamp is too old, or no pull comes to its end; empty where that is not so.

    Args:
        facts: The box's record.
        pull: Its declaration.
        now: Its clock, in seconds since 1970.
        since: When it was booted or deployed, likewise.
    """
    most = LATE_RUNS * pull.interval_minutes * MINUTE + MOST_DELAY + SLOW_S
    if facts.busy and (busy := now - max(facts.busy, since)) > most:
        return f"busy for {busy / MINUTE:.0f} minutes ({facts.text})"
    waited = now - max(facts.verified, since)
    if waited <= most:
        return ""
    why = f" ({facts.text})" if facts.outcome == "unreachable" else ""
    return f"none for {waited / MINUTE:.0f} minutes{why}"


def describe_pull(facts: PullFacts) -> str:
    """The pulls of a box, in one sentence."""
    if not facts.run:
        return "pull: no run yet"
    time = datetime.fromtimestamp(facts.run, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    serial = f", serial {facts.serial}" if facts.serial else ""
    return f"pull: {facts.outcome} at {time}{serial}{': ' if facts.text else ''}{facts.text}"


def _read_facts(output: HostOutput) -> Mapping[str, object]:
    machine = next(iter(output.all("machine")), "")
    return {"pull": parse_pull_record(next(iter(output.all("pull_record")), ""), machine) if machine else None}


def _list_packages(rig: Rig, system: str) -> Iterable[str]:
    return ("openssh-client",) if rig.pull else ()


SCHEMA: Schema = {"machine": (sha256,), "pull_record": (text,)}
"""The output of templates/pull/state.sh.j2."""
PULL_FACTS = FactSource("pull", "pull/state.sh.j2", _probe_values, SCHEMA, _read_facts, _list_packages)


def _validate_pull(draft: EntryDraft) -> Fields:
    entry = draft.entry
    if not entry.pull:
        return {"pull": None}
    signers = draft.fields.get("signers")
    if not signers:
        draft.refuse("pull", "needs signers: give signers and their keys to hosts()")
    else:
        for kind in SIGNS:
            if not any(kind in one.kinds and one.key.fingerprint not in signers.revoked for one in signers.signers):
                draft.refuse("pull", f'no signer may sign the {kind}: add "{kind}" to signs of one with a valid key')
    if not BOX.fullmatch(draft.name):
        draft.refuse("pull", "needs a box name of at most 100 letters, digits, dots, dashes and underscores")
    return {"pull": entry.pull}


PULL_MODE = Feature("pull", _validate_pull)
"""After the signers."""
