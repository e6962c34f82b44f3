"""How instances are doing, from what one look at their host has told; all of it is a host's word."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from rigwright.engines import kind_of
from rigwright.engines.instance_request import ONE_TOKEN
from rigwright.engines.log_causes import Cause, find_cause, select_faults
from rigwright.engines.metrics import EngineMetrics, parse_metrics
from rigwright.engines.python_log_patterns import FORMS
from rigwright.gateway.gateway_units import ADMIN, ROUTER_RUNTIME
from rigwright.gateway.rotation import LAST_RESORT, ROTATION_FOLDER
from rigwright.host.deploy_lock_state import DEPLOY_LOCK
from rigwright.host.generation_layout import META, PROVEN
from rigwright.host.systemd import STARTED_FROM_FOLDER
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.nvidia.cards import smi
from rigwright.operate.instance_state import (
    ANSWER,
    PATIENCE,
    AssessedState,
    DeclaredProcess,
    EngineObservation,
    GenerationObservation,
    InstanceState,
    StateFacts,
    UnitObservation,
    assess_state,
    format_moment,
)
from rigwright.safe_text import mask_secrets
from rigwright.serving.instance_units import STOPPED, credential_path

PARTIAL = "the journal was searched in part, as its lines take long: `rigwright show report` searches all of it"
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
class CommandResult:
    """The end of a program."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class RotationReason:
    """Why a box keeps an instance out of the gateway's rotation."""

    text: str
    since: float
    """In seconds since 1970."""
    ended: float | None
    """When its condition ended; None while it lasts."""


@dataclass(frozen=True)
class RotationObservation:
    """An instance that is out of the rotation."""

    reasons: tuple[RotationReason, ...]
    last_resort: bool
    """Whether the gateway asks it where no other instance can answer."""

    def describe(self) -> str:
        """One sentence without its end."""
        lasting = [one for one in self.reasons if one.ended is None]
        texts = [f"{one.text} (since {format_moment(one.since)})" for one in lasting or self.reasons]
        if not lasting:
            texts.append("this has ended: it returns once the box's self-check has run and a completion has succeeded")
        elif self.last_resort:
            texts.append("requests reach it only if no other instance can answer")
        return "; ".join(texts) if self.reasons else "its reasons are not readable"


@dataclass(frozen=True)
class ResidencyObservation:
    """An instance on demand, by the ledger of its box and the counters of its gateway."""

    phase: str
    failed: str = ""
    """Why its last start or process failed, until one serves."""
    load_s: float = 0.0
    """Seconds of its last load; 0 if unknown."""
    waiting: int = 0
    """Clients that wait for it."""


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
    stopped: Mapping[str, float] = field(default_factory=dict)
    """Instance that `stop` has stopped -> when, in seconds since 1970."""
    generation: GenerationObservation | None = None
    """None where the rig is not known."""
    rotation: Mapping[str, RotationObservation] = field(default_factory=dict)
    """Of instances that the box keeps out of the rotation."""
    residency: Mapping[str, ResidencyObservation] = field(default_factory=dict)
    """Of instances on demand that the box's ledger has."""


BLANK_HOST_FACTS = HealthFacts(
    *({}, {}, {}, {}), CommandResult(127, "", ""), (), "", reboot=False, generation=GenerationObservation(None, "", "")
)
"""Facts of a host without Python and without a deployment, which no look can be taken of."""


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
    since_s: float | None = None
    """Seconds for which it has been in that state."""
    restarts: int = 0
    memory_bytes: int | None = None
    metrics: EngineMetrics = field(default_factory=EngineMetrics)
    tokens_a_second: float | None = None
    """Made, during the look; None where that is not counted, or no request was open."""
    errors: tuple[str, ...] = ()
    """The errors that its log betrays, each with its remedy."""
    on_demand: ResidencyObservation | None = None
    """None for an instance that its box loads at boot, or without a ledger."""

    @property
    def assessed(self) -> AssessedState:
        """Its state alone."""
        return AssessedState(self.instance, self.state, self.note)


def health_request(rig: Rig | None, *, evidence: bool = True) -> dict[str, object]:
    """The request of a look at a host (checks/survey/host/health.py); for an unknown rig, the part that needs no
    declaration.

    Args:
        rig: The host's rig.
        evidence: Whether cards, logs and long work are read, too; the states of instances need none of them.
    """
    return {
        "units": [one.unit for one in rig.instances] if rig else [],
        "asks": [_instance_request(rig.roots, one, evidence=evidence) for one in rig.instances] if rig else [],
        "seconds": ANSWER,
        "patience": PATIENCE,
        "smi": list(CARDS) if evidence and (rig is None or rig.cards) else [],
        "jobs": evidence,
        "lock": DEPLOY_LOCK,
        "out": f"{ROUTER_RUNTIME}/out",
        "rotation": ROTATION_FOLDER,
        "last_resort": LAST_RESORT,
        "config": rig.roots.config if rig else "",
        "stopped": STOPPED,
        "sealed": META,
        "unsealed": [META, PROVEN],
        "records": STARTED_FROM_FOLDER,
        "counters": ADMIN,
        "residency": f"{rig.roots.residency}/ledger.json"
        if rig and any(one.is_on_demand for one in rig.instances)
        else "",
    }


def _instance_request(roots: Roots, instance: Instance, *, evidence: bool) -> dict[str, object]:
    path, names = kind_of(instance).progress_metric(instance)
    sleep, asleep = kind_of(instance).sleep_query(instance)
    body = {"model": instance.model_name, **(ONE_TOKEN.body or {})}
    return {
        "name": instance.name,
        "unit": instance.unit,
        "at": instance.socket,
        "key": credential_path(roots, instance),
        "probe": ONE_TOKEN.path,
        "body": json.dumps(body),
        "sleep": sleep,
        "asleep": asleep,
        "counts": path,
        "names": sorted(names.all),
        "progress": sorted(names.progress),
        "busy": [name for name in (names.running, names.waiting) if name],
        "patterns": [one.pattern for one in select_faults(kind_of(instance).causes) if is_lasting(one)]
        if evidence
        else [],
    }


def state_facts(look: HealthFacts, instance: Instance, declared: DeclaredProcess | None = None) -> StateFacts:
    """The facts of a look that decide an instance's state.

    Args:
        look: A look at its host.
        instance: The instance.
        declared: Its declared process; None where it is not known.
    """
    return StateFacts(
        unit=look.units.get(instance.unit),
        engine=look.engines.get(instance.name),
        stopped_at=look.stopped.get(instance.name),
        gateway_out=look.out.get(instance.name, ""),
        out_of_rotation=look.rotation[instance.name].describe() if instance.name in look.rotation else "",
        generation=look.generation,
        declared=declared,
        on_demand=instance.is_on_demand,
        failed_start=look.residency[instance.name].failed if instance.name in look.residency else "",
    )


def assess_health(look: HealthFacts, instance: Instance, declared: DeclaredProcess | None = None) -> InstanceHealth:
    """How one of a rig's instances is doing; as `state_facts`."""
    unit, engine = look.units.get(instance.unit), look.engines.get(instance.name)
    one = assess_state(instance.name, state_facts(look, instance, declared))
    names = kind_of(instance).metric_names
    now = parse_metrics("\n".join(engine.after), names) if engine else EngineMetrics()
    then = parse_metrics("\n".join(engine.before), names) if engine else EngineMetrics()
    rate = None
    if engine and engine.apart_s > 0 and now.tokens is not None and then.tokens is not None and now.is_busy:
        rate = round(max(0.0, now.tokens - then.tokens) / engine.apart_s, 1)
    return InstanceHealth(
        instance=instance.name,
        state=one.state,
        note=one.note,
        since_s=unit.since_s if unit else None,
        restarts=unit.restarts if unit else 0,
        memory_bytes=unit.memory if unit else None,
        metrics=now,
        tokens_a_second=rate,
        errors=(
            *describe_errors(look.said.get(instance.name, ()), kind_of(instance).causes),
            *([PARTIAL] if instance.name in look.partial else ()),
        ),
        on_demand=look.residency.get(instance.name) if instance.is_on_demand else None,
    )


LONGEST_WORD = 200


def is_lasting(cause: Cause) -> bool:
    """Whether a cause is about the instance: neither about one request nor a mere form of messages."""
    return not (cause.harmless or cause.request or cause in FORMS)


def describe_errors(lines: tuple[str, ...], causes: tuple[Cause, ...]) -> tuple[str, ...]:
    """The errors that lines betray, each once, the last first, with their remedies; general ones only if alone."""
    found: dict[Cause, str] = {}
    for line in map(mask_secrets, reversed(lines)):
        if (cause := find_cause(causes, line)) and is_lasting(cause) and (match := cause.regex.search(line)):
            word = line.rfind(" ", 0, match.start()) + 1  # a path from its beginning
            found.setdefault(cause, line[max(word, match.start() - LONGEST_WORD) : match.end()])
    specific = {cause: text for cause, text in found.items() if not cause.general}
    return tuple(f"{text}: {cause.text}" for cause, text in (specific or found).items())


def parse_card_uses(answer: CommandResult) -> tuple[tuple[CardUse, ...], str]:
    """The cards that answer, and the messages about the others; empty if none was asked."""
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
