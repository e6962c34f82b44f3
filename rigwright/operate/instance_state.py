"""An instance's state, by the facts of one look at its host: the name that every verb prints for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal

from rigwright.gateway.gateway_units import PROBE_TIMEOUT
from rigwright.problems import format_count
from rigwright.serving.generation import Generation

InstanceState = Literal[
    "ready",
    "running",
    "starting",
    "asleep",
    "stopping",
    "stopped",
    "stopped by hand",
    "silent",
    "wedged",
    "failing",
    "out of rotation",
    "failed",
    "other generation",
    "not deployed",
    "unreachable",
]
WEDGED = float(PROBE_TIMEOUT)
"""Seconds without an answer and a step after which an engine is taken for wedged: the gateway's patience."""
ANSWER = 0.55
"""Seconds that a look waits for one token: with the rest it takes less than one."""
PATIENCE = 5.0
"""Seconds that a look waits for a token or a step after ANSWER, until it calls an instance silent for the first time in
a run of its unit: a process on a processor that others keep busy answers within them.
"""
UNWELL = (500, 502, 503, 504)
"""Statuses of an engine that fails, as the gateway's router judges them; with any other it answers."""
LATEST = 253402300799.0
"""Seconds since 1970 of the last moment that has a date of four digits."""


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
    started_from: str = ""
    """SHA-256 of the unit and environment files that its process was started from; empty without a record."""
    inputs_current: bool = True
    """Whether the key and the weights that its process has are those on disk."""

    def runs_declared(self, declared: DeclaredProcess | None) -> bool:
        """Whether its process was started from the declared unit, with the key and the weights on disk."""
        return bool(declared and self.started_from == declared.started_from and self.inputs_current)


@dataclass(frozen=True)
class EngineObservation:
    """An engine's answer to one token, and its counters."""

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
    """Whether it shows that it computes."""
    asleep: bool = False
    """Whether its model is unloaded until the next request."""


@dataclass(frozen=True)
class GenerationObservation:
    """The generation that `current` points to on a host."""

    number: int | None
    """None for none."""
    sealed: str
    """Its digest when it was written."""
    found: str
    """Its digest now."""


@dataclass(frozen=True)
class DeclaredProcess:
    """The declared generation and unit of an instance."""

    generation: str
    """Digest of the generation."""
    started_from: str
    """SHA-256 of the unit and environment files."""


@dataclass(frozen=True)
class StateFacts:
    """Facts that decide an instance's state."""

    unit: UnitObservation | None = None
    engine: EngineObservation | None = None
    """None where it was not asked for a token."""
    stopped_at: float | None = None
    """Seconds since 1970 at which `stop` has stopped it; None where it has not."""
    gateway_out: str = ""
    """Why the gateway has taken it out; empty where it has not."""
    generation: GenerationObservation | None = None
    """None where it was not read."""
    declared: DeclaredProcess | None = None
    """None where it is not known."""
    unreachable: str = ""
    """Why its host was not reached; empty where it was."""
    out_of_rotation: str = ""
    """Why its box keeps it out of the gateway's rotation; empty where it does not."""
    on_demand: bool = False
    """Whether requests start it."""
    failed_start: str = ""
    """Why its last start on demand failed; empty if that did not."""


@dataclass(frozen=True)
class AssessedState:
    """An instance's state."""

    instance: str
    state: InstanceState
    note: str = ""
    """The reason; empty where the state says all."""

    @property
    def remediation(self) -> tuple[str, ...]:
        """The next verb and its words; empty where there is nothing to do."""
        return tuple(self.instance if word == "INSTANCE" else word for word in REMEDIATIONS.get(self.state, ()))

    @property
    def is_ready(self) -> bool:
        """Whether it serves what the inventory declares."""
        return self.state in READY

    @property
    def may_answer(self) -> bool:
        """Whether a request may be answered now; else a wait for an answer is in vain."""
        return not self.is_down and self.state not in ("wedged", "failing")

    @property
    def is_down(self) -> bool:
        """Whether its unit is not active."""
        return self.state in DOWN

    @property
    def lead(self) -> str:
        """The instance and its state."""
        verb = {"failed": "has ", "other generation": "runs an"}.get(self.state, "is ")
        return f"{self.instance} {verb}{self.state}"

    def describe(self) -> str:
        """One sentence without its end: the instance, its state, and the reason."""
        if not self.note:
            return self.lead
        return f"{self.lead} {self.note}" if self.note.startswith("since ") else f"{self.lead}: {self.note}"


READY: tuple[InstanceState, ...] = ("ready", "asleep")
DOWN: tuple[InstanceState, ...] = (
    *("starting", "stopping", "stopped", "stopped by hand", "failed", "not deployed", "unreachable"),
)
REMEDIATIONS: Mapping[InstanceState, tuple[str, ...]] = {
    "starting": ("status", "--watch"),
    "stopping": ("status",),
    "stopped": ("start", "INSTANCE"),
    "stopped by hand": ("start", "INSTANCE"),
    "silent": ("doctor", "--instance", "INSTANCE"),
    "wedged": ("restart", "INSTANCE"),
    "failing": ("logs", "--instance", "INSTANCE"),
    "out of rotation": ("doctor", "--instance", "INSTANCE"),
    "failed": ("logs", "--instance", "INSTANCE"),
    "other generation": ("deploy",),
    "not deployed": ("deploy",),
    "unreachable": ("doctor",),
}
"""State -> the next verb and its words; a state without one needs nothing."""


def declared_processes(generation: Generation) -> dict[str, DeclaredProcess]:
    """Unit of an instance -> what its process should be started from."""
    digest = generation.digest
    return {one.name: DeclaredProcess(digest, one.unit_state.started_from) for one in generation.units}


def assess_state(instance: str, facts: StateFacts) -> AssessedState:
    """The state of an instance, by facts of one moment."""
    state, note = _name_state(facts)
    return AssessedState(instance, state, note)


def _name_state(facts: StateFacts) -> tuple[InstanceState, str]:
    if facts.unreachable:
        return "unreachable", facts.unreachable
    unit, generation = facts.unit, facts.generation
    if unit is None or unit.load == "not-found" or unit.active == "inactive":
        if generation and generation.number is None:
            return "not deployed", "the host has no generation"
        if unit is None or unit.load == "not-found":
            return "not deployed", f"generation {generation.number} has no such instance" if generation else ""
    if facts.stopped_at is not None and unit.active in ("inactive", "failed"):
        return "stopped by hand", f"since {format_moment(facts.stopped_at)}"
    if unit.active == "failed":
        return "failed", f"systemd gave up: {unit.result}"
    if unit.active == "activating":
        if unit.sub == "auto-restart" or unit.restarts:
            again = f"; restarted {format_count(unit.restarts, 'time')}" if unit.restarts else ""
            return "failed", f"its process ends ({unit.result}){again}"
        return "starting", ""
    if facts.on_demand and unit.active == "inactive" and unit.load == "loaded":
        if facts.failed_start or unit.result not in ("", "success"):
            # the ledger stops a unit that systemd would restart, which then is inactive
            return "failed", facts.failed_start or f"its process ended ({unit.result})"
        other = _describe_other_host_generation(facts)
        return ("other generation", other) if other else ("asleep", "the next request loads its model")
    if unit.active == "inactive":
        masked = unit.load == "masked"
        return "stopped", "its unit is masked" if masked else "`rigwright stop` has no record of it"
    if unit.active == "deactivating":
        return "stopping", ""
    state, note = _name_engine_state(facts.engine, facts.gateway_out) if facts.engine else ("running", "")
    if state in ("ready", "asleep", "running") and facts.out_of_rotation:
        return "out of rotation", facts.out_of_rotation
    if state in ("ready", "asleep", "running") and (other := _describe_other_generation(facts, unit)):
        return "other generation", other
    return state, note


def _name_engine_state(engine: EngineObservation, out: str) -> tuple[InstanceState, str]:
    if engine.asleep:
        return "asleep", "the next request loads its model"
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


def _describe_other_host_generation(facts: StateFacts) -> str:
    """How the host's generation differs from the declared one; empty where it does not, or where that is not known."""
    generation, declared = facts.generation, facts.declared
    if generation is None or declared is None:
        return ""
    if generation.number is None:
        return "it runs, and the host has no generation"
    if generation.sealed != declared.generation:
        return f"the host runs generation {generation.number}, and the inventory declares another"
    if generation.found != generation.sealed:
        return f"the files of generation {generation.number} were changed after it was written"
    return ""


def _describe_other_generation(facts: StateFacts, unit: UnitObservation) -> str:
    """How the box differs from the declared generation; empty where it does not, or where that is not known."""
    generation, declared = facts.generation, facts.declared
    if (other := _describe_other_host_generation(facts)) or generation is None or declared is None:
        return other
    if unit.started_from != declared.started_from:
        return f"its process was started from other settings than those of generation {generation.number}"
    if not unit.inputs_current:
        return "its process has another key or other weights than those on disk"
    return ""


def format_moment(seconds: float) -> str:
    """A moment in UTC, to the minute."""
    return f"{datetime.fromtimestamp(min(max(seconds, 0.0), LATEST), timezone.utc):%Y-%m-%d %H:%M} UTC"
