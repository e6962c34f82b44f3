"""How instances are doing, from what one look at their host has told; all of it is a host's word."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rigwright.engines import kind_of
from rigwright.engines.instance_request import ONE_TOKEN
from rigwright.engines.log_causes import Cause, find_cause, select_faults
from rigwright.engines.metrics import EngineMetrics, parse_metrics
from rigwright.engines.python_log_patterns import FORMS
from rigwright.gateway.gateway_units import PROBE_TIMEOUT, ROUTER_RUNTIME
from rigwright.host.deploy_lock_state import DEPLOY_LOCK
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.nvidia.cards import smi
from rigwright.serving.instance_units import credential_path

InstanceState = Literal["ready", "loading", "silent", "wedged", "failing", "failed", "stopped", "stopping", "not there"]
WEDGED = float(PROBE_TIMEOUT)
"""Seconds without an answer and a step after which an engine is taken for wedged: the gateway's own patience."""
ANSWER = 0.55
"""Seconds that a look waits for one token: with the rest it takes less than one."""
PATIENCE = 5.0
"""Seconds that a look waits for a token or a step after ANSWER, until it calls an instance silent for the first time in
a run of its unit: a process on a processor that others keep busy answers within them.
"""
UNWELL = (500, 502, 503, 504)
"""Answers of an engine that is not well, as the gateway's router judges them; whatever else it says, it answers."""
PARTIAL = "the journal was searched in part, as its lines take long: `rigwright report` searches all of it"
CARD_FIELDS = (
    "index",
    "memory.used",
    "memory.total",
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "utilization.gpu",
)
CARDS = (f"--query-gpu={','.join(CARD_FIELDS)}", smi.FORMAT)


@dataclass(frozen=True)
class UnitObservation:
    """A unit, as systemd knows it."""

    load: str
    active: str
    sub: str
    result: str
    restarts: int
    running: bool
    since_s: float | None
    """Seconds for which it has been in that state."""
    memory: int | None
    """Bytes of the whole service."""


@dataclass(frozen=True)
class EngineObservation:
    """What came of asking an engine."""

    status: int
    """Of the answer of one token; 0 for none in time."""
    error: str
    took_s: float
    before: tuple[str, ...]
    """Lines of what it counts."""
    after: tuple[str, ...]
    apart_s: float
    silent_s: float
    """For which it has neither answered nor computed, as far as looks tell; 0 where it has."""
    counts: bool
    """Whether it could be seen whether it computes."""


@dataclass(frozen=True)
class CommandResult:
    """What a program has ended with."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class HealthFacts:
    """One look at a host."""

    units: Mapping[str, UnitObservation]
    engines: Mapping[str, EngineObservation]
    """By instance; only of those whose unit runs."""
    said: Mapping[str, tuple[str, ...]]
    """Instance -> lines of its log that betray something."""
    out: Mapping[str, str]
    """Instance -> why the gateway has taken it out."""
    cards: CommandResult
    jobs: tuple[str, ...]
    holder: str
    reboot: bool
    partial: tuple[str, ...] = ()
    """Instances of whose log only the newest lines were searched, as the search took too long."""


@dataclass(frozen=True)
class CardUse:
    """A card now; None for what it does not say."""

    index: int
    used_mib: float | None
    total_mib: float | None
    power_w: float | None
    limit_w: float | None
    temperature_c: float | None
    busy_percent: float | None


@dataclass(frozen=True)
class InstanceHealth:
    """An instance."""

    instance: str
    state: InstanceState
    note: str
    """Why it is called that, where that is not plain."""
    since_s: float | None
    restarts: int
    memory_bytes: int | None
    metrics: EngineMetrics
    tokens_a_second: float | None
    """Made, during the look; None where that is not counted, or nobody asked."""
    errors: tuple[str, ...]
    """What its log betrays, each with what helps."""

    @property
    def is_well(self) -> bool:
        """Whether it serves."""
        return self.state == "ready"


def health_request(rig: Rig | None) -> dict[str, object]:
    """What a look at a host asks (checks/survey/host/health.py); of one whose rig is not known, what anybody can."""
    return {
        "units": [one.unit for one in rig.instances] if rig else [],
        "asks": [_instance_request(rig.roots, one) for one in rig.instances] if rig else [],
        "seconds": ANSWER,
        "patience": PATIENCE,
        "smi": list(CARDS) if rig is None or rig.cards else [],
        "lock": DEPLOY_LOCK,
        "out": f"{ROUTER_RUNTIME}/out",
    }


def _instance_request(roots: Roots, instance: Instance) -> dict[str, object]:
    path, names = kind_of(instance).progress_metric(instance)
    body = {"model": instance.model_name, **(ONE_TOKEN.body or {})}
    return {
        "name": instance.name,
        "unit": instance.unit,
        "at": instance.socket,
        "key": credential_path(roots, instance),
        "probe": ONE_TOKEN.path,
        "body": json.dumps(body),
        "counts": path,
        "names": sorted(names.all),
        "progress": sorted(names.progress),
        "busy": [name for name in (names.running, names.waiting) if name],
        "patterns": [one.pattern for one in select_faults(kind_of(instance).causes) if is_lasting(one)],
    }


def assess_health(look: HealthFacts, instance: Instance) -> InstanceHealth:
    """How one of a rig's instances is doing."""
    unit, engine = look.units.get(instance.unit), look.engines.get(instance.name)
    state, note = describe_stopped_unit(unit) or (_engine_state(engine, look.out.get(instance.name, "")))
    names = kind_of(instance).metric_names
    now = parse_metrics("\n".join(engine.after), names) if engine else EngineMetrics()
    then = parse_metrics("\n".join(engine.before), names) if engine else EngineMetrics()
    rate = None
    if engine and engine.apart_s > 0 and now.tokens is not None and then.tokens is not None and now.is_busy:
        rate = round(max(0.0, now.tokens - then.tokens) / engine.apart_s, 1)
    return InstanceHealth(
        instance=instance.name,
        state=state,
        note=note,
        since_s=unit.since_s if unit else None,
        restarts=unit.restarts if unit else 0,
        memory_bytes=unit.memory if unit else None,
        metrics=now,
        tokens_a_second=rate,
        errors=(
            *describe_errors(look.said.get(instance.name, ()), kind_of(instance).causes),
            *([PARTIAL] if instance.name in look.partial else ()),
        ),
    )


def is_lasting(cause: Cause) -> bool:
    """Whether a cause is about the instance: neither about one request nor a mere form of messages."""
    return not (cause.harmless or cause.request or cause in FORMS)


def describe_errors(lines: tuple[str, ...], causes: tuple[Cause, ...]) -> tuple[str, ...]:
    """What lines betray, each once, the last first, with what helps."""
    found: dict[Cause, str] = {}
    for line in reversed(lines):
        if (cause := find_cause(causes, line)) and is_lasting(cause) and (match := cause.regex.search(line)):
            found.setdefault(cause, match[0])
    return tuple(f"{text}: {cause.text}" for cause, text in found.items())


def describe_stopped_unit(unit: UnitObservation | None) -> tuple[InstanceState, str] | None:
    """The state of a unit that does not run, and why it is called that; None of one that does."""
    if unit is None or unit.load == "not-found":
        return "not there", "nothing of it is installed: deploy"
    if unit.active == "failed":
        return "failed", f"systemd gave up: {unit.result}"
    if unit.active == "activating":
        if unit.sub == "auto-restart" or unit.restarts:
            return "failed", f"it ends and is started again: {unit.restarts} times, {unit.result}"
        return "loading", ""
    if unit.active in ("inactive", "deactivating"):
        return ("stopped", "") if unit.active == "inactive" else ("stopping", "")
    return None


def _engine_state(engine: EngineObservation | None, out: str) -> tuple[InstanceState, str]:
    if engine is None:
        return "failing", "it was not asked"
    if engine.status in UNWELL or engine.status in (401, 403):
        return "failing", f"it answers {engine.status} to one token"
    if engine.status:
        return "ready", ""
    if not engine.silent_s:
        return "ready", f"busy: one token took more than {ANSWER:g} s, and it computes"
    if engine.error not in ("", "no answer in time"):
        return "failing", engine.error
    if engine.counts and engine.silent_s >= WEDGED:
        return "wedged", f"no answer and no step for {engine.silent_s:.0f} s"
    if out:
        return "wedged", f"the gateway has taken it out: {out}"
    why = "no step was seen" if engine.counts else "it does not count steps"
    return "silent", f"no answer for {engine.silent_s:.1f} s, and {why}; look again after {WEDGED:g} s"


def parse_card_uses(answer: CommandResult) -> tuple[tuple[CardUse, ...], str]:
    """The cards that answer, and what is said of the others; nothing where nobody asked."""
    if answer.status == 127 and not answer.out:
        return (), ""
    rows = [line for line in answer.out.splitlines() if smi.ROW.match(line.strip())]
    failed = ""
    try:
        smi.answer(answer.status, answer.out, answer.err)
    except ValueError as error:
        failed = str(error)
    found = []
    for row in rows[:64]:
        try:
            index, *numbers = smi.fields(row, len(CARD_FIELDS))
            found.append(CardUse(int(index), *(smi.number(text) for text in numbers)))
        except (ValueError, TypeError) as error:
            failed = failed or str(error)
    return tuple(found), failed
