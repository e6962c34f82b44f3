"""The ledger of a box: which instances on demand are loaded, which start, which go to sleep.

`decide` is a pure function: the same state, specifications and observation give the same next state and actions. It
reads no clock and no file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .admission import ARRIVAL_S, Admission
from .state import (
    ASLEEP,
    AWAKE,
    LEAVING,
    STARTING,
    STOPPING,
    Action,
    Entry,
    InstanceSpec,
    LedgerState,
    Observation,
    UnitObserved,
    Waiter,
    refusal,
)

STEADY_S = 60.0
"""After so long awake, earlier failures of an instance count no more."""
BACK_OFF_S, LONGEST_BACK_OFF_S = 5.0, 300.0
NO_START_S = 5.0
"""systemd takes an order to start within this; a unit that is still inactive then has failed."""
CUT_S = 3.0
"""From the end of the streams of an instance that a proof drains until it is stopped."""


@dataclass
class _Step:
    """One decision: a copy of the state that it changes, and the actions that it collects."""

    specs: Mapping[str, InstanceSpec]
    state: LedgerState
    seen: Observation
    drain: float
    actions: dict[Action, None] = field(default_factory=dict)
    """In the order in which they were added."""

    def act(self, kind: str, target: str, text: str = "") -> None:
        """Add an action, once."""
        self.actions.setdefault(Action(kind, target, text))

    def enter(self, name: str, phase: str) -> Entry:
        """Have an instance be in a phase from now on."""
        entry = self.state.entries[name]
        if entry.phase != phase:
            entry.phase, entry.since = phase, self.seen.now
        return entry

    def waiters_of(self, name: str) -> list[Waiter]:
        """The clients that wait for an instance, oldest first."""
        return sorted((one for one in self.state.waiters if one.instance == name), key=lambda one: (one.since, one.id))

    def answer(self, lines: Iterable[tuple[Waiter, str]]) -> None:
        """Answer clients, which wait no more."""
        answered = set()
        for waiter, line in lines:
            self.act("answer", waiter.id, line)
            answered.add(waiter.id)
        self.state.waiters = [one for one in self.state.waiters if one.id not in answered]

    def refuse(self, name: str, code: str, seconds: float, text: str) -> None:
        """Answer all clients of an instance with a refusal."""
        line = refusal(code, seconds, text)
        self.answer((one, line) for one in self.waiters_of(name))

    def fail(self, name: str, reason: str) -> None:
        """An instance ended, or did not start: its clients get the reason, and its next start has to wait."""
        entry = self.enter(name, STOPPING)
        entry.failures += 1
        back_off = min(LONGEST_BACK_OFF_S, BACK_OFF_S * 2.0 ** min(entry.failures - 1, 10))
        entry.retry_at, entry.reason = self.seen.now + back_off, reason
        entry.sleep_next = False
        self.act("stop", name)
        self.refuse(name, "failed", back_off, reason)

    def take_form(self, name: str, form: str) -> None:
        """Have an instance be another variant, or of another generation: failures count for their own form alone."""
        entry, unit = self.state.entries[name], self.seen.units.get(name, UnitObserved())
        entry.take_form(form)
        if entry.phase in (STARTING, AWAKE, LEAVING) and unit.state not in ("active", "activating"):
            # the other form has ended, and this one has not begun
            self.enter(name, ASLEEP).sleep_next = False

    # -- one instance and its unit ------------------------------------------------------------------------------------

    def reconcile(self, name: str, unit: UnitObserved) -> None:
        """Bring an entry to the state of its unit; systemd is right."""
        phase = self.state.entries[name].phase
        if unit.state == "active":
            self._reconcile_active(name, phase)
        elif unit.state == "activating":
            if phase == STOPPING:
                self.act("stop", name)
            else:
                self.enter(name, STARTING).seen_starting = True
        elif unit.state == "inactive" or (unit.state == "failed" and self._is_order_open(name, phase)):
            self._reconcile_inactive(name, phase)
        elif unit.state == "failed" and phase in (ASLEEP, STOPPING):
            self.enter(name, ASLEEP)
        elif phase == ASLEEP or self._is_stopped_by_others(phase, unit):
            self.enter(name, STOPPING)
            self.act("stop", name)
        elif phase == STOPPING:
            if unit.state != "deactivating":
                self.act("stop", name)
        else:
            self.fail(name, unit.reason or "its engine has ended")

    def _is_order_open(self, name: str, phase: str) -> bool:
        """Whether a start is written down, and may not be carried out yet: its unit shows an earlier failure."""
        entry = self.state.entries[name]
        return phase == STARTING and not entry.seen_starting and self.seen.now - entry.since <= NO_START_S

    def _is_stopped_by_others(self, phase: str, unit: UnitObserved) -> bool:
        """Whether another program stops a unit: an operator, or an activation, which stops one that starts, too."""
        phases = (STARTING, AWAKE, LEAVING) if self.seen.paused else (AWAKE, LEAVING)
        return phase in phases and unit.state == "deactivating" and unit.result == "success"

    def _reconcile_active(self, name: str, phase: str) -> None:
        if phase == STOPPING:
            if self.seen.requests.get(name) == 0:
                self.act("stop", name)
            else:
                # the order was not carried out, and requests may have come since
                self.enter(name, LEAVING)
                self.act("leave", name)
            return
        if phase in (AWAKE, LEAVING):
            return
        entry, now = self.state.entries[name], self.seen.now
        if phase == STARTING:
            entry.load_seconds = now - entry.since
        self.enter(name, AWAKE)
        entry.ready_at = entry.last_used = now
        entry.reason = ""
        # an announcement of its last stop may still hold
        self.act("stay", name)

    def _reconcile_inactive(self, name: str, phase: str) -> None:
        entry = self.state.entries[name]
        if phase != STARTING:
            self.enter(name, ASLEEP)
            entry.sleep_next = False
        elif name in self.seen.stopped_by_hand:
            self.enter(name, ASLEEP)
        elif self.seen.now - entry.since > NO_START_S:
            self.fail(name, "systemd did not start it")
        else:
            # written down, and not yet carried out
            self.act("start", name)

    def update_use(self, name: str) -> None:
        """Take note of requests."""
        entry = self.state.entries[name]
        if entry.phase not in (AWAKE, LEAVING):
            return
        if self.seen.requests.get(name) or name in self.seen.used:
            entry.last_used = self.seen.now
            entry.sleep_next = False
        if entry.phase == AWAKE and self.seen.now - entry.ready_at >= STEADY_S:
            entry.failures = 0

    # -- clients ------------------------------------------------------------------------------------------------------

    def answer_waiters(self, name: str) -> None:
        """Answer the clients of an instance that is awake, or that cannot be woken now."""
        entry, now = self.state.entries[name], self.seen.now
        waiters = self.waiters_of(name)
        if not waiters:
            return
        if entry.phase == AWAKE:
            are_proofs = all(one.proof for one in waiters)
            entry.last_used = now
            entry.answered_at = entry.answered_at if are_proofs else now
            entry.sleep_next = are_proofs and not self.specs[name].keep_warm
            self.answer((one, "ready") for one in waiters)
        elif name in self.seen.stopped_by_hand and not any(one.proof for one in waiters):
            self.refuse(name, "failed", 60.0, "it was stopped by hand")
        elif entry.phase == ASLEEP and entry.retry_at > now and not any(one.proof for one in waiters):
            self.refuse(name, "failed", entry.retry_at - now, entry.reason or "its last start has failed")

    # -- sleep --------------------------------------------------------------------------------------------------------

    def is_unused(self, name: str) -> bool:
        """Whether an instance that is loaded has been without requests for as long as its specification says."""
        entry, spec, now = self.state.entries[name], self.specs[name], self.seen.now
        if spec.keep_warm or self.seen.requests.get(name) != 0 or self.waiters_of(name):
            return False
        if now - entry.answered_at < ARRIVAL_S:
            return False
        if entry.sleep_next:
            return True
        if self.seen.paused or not spec.idle:
            return False
        return now - entry.last_used >= spec.idle and now - entry.ready_at >= spec.residence

    def put_to_sleep(self, name: str, victims: set[str], proof_victims: set[str]) -> None:
        """Announce that an instance leaves, and stop it once nothing is under way there."""
        entry, now = self.state.entries[name], self.seen.now
        leaves = name in victims or self.is_unused(name)
        if entry.phase == AWAKE and leaves:
            self.enter(name, LEAVING)
            self.act("leave", name)
        elif entry.phase == LEAVING and not leaves:
            self.enter(name, AWAKE)
            self.act("stay", name)
        elif entry.phase == LEAVING:
            late = now - entry.since - self.drain
            if self.seen.requests.get(name) == 0 or (name in proof_victims and late >= CUT_S):
                self.enter(name, STOPPING)
                self.act("stop", name)
                # it has not ended by itself: two failures with this between them are not in a row
                entry.failures = 0
            else:
                self.act("cut" if name in proof_victims and late >= 0 else "leave", name)


def decide(
    specs: Mapping[str, InstanceSpec], before: LedgerState, seen: Observation, drain: float = 30.0
) -> tuple[LedgerState, list[Action]]:
    """The next state and the actions that lead to it.

    The state is written down before the actions are carried out, answers excepted: clients do not wait for the disk,
    unless a proof has woken an instance.

    Args:
        specs: Name -> the specification of each instance on demand.
        before: The state.
        seen: The box as it is now.
        drain: Seconds after which a proof ends the streams of an instance that is in its way.
    """
    state = LedgerState(copy.deepcopy(before.entries), list(before.waiters))
    step = _Step(specs, state, seen, drain)
    entries = step.state.entries
    for name in [name for name in entries if name not in specs]:
        step.refuse(name, "forbidden", 60.0, "it is no instance on demand")
        del entries[name]
    for name in specs:
        entry = entries.setdefault(name, Entry())
        if entry.form != specs[name].form:
            step.take_form(name, specs[name].form)
        if name in seen.units:
            step.reconcile(name, seen.units[name])
            step.update_use(name)
    unknown = refusal("forbidden", 60.0, "it is no instance on demand")
    step.answer((one, unknown) for one in step.state.waiters if one.instance not in specs)
    for name in specs:
        step.answer_waiters(name)
    admission = Admission(specs, step.state, seen)
    admission.decide()
    step.answer(admission.refusals)
    for name in admission.starts:
        step.enter(name, STARTING).seen_starting = False
        step.act("start", name)
        # clients come with its link: none is to find an announcement of its last stop
        step.act("stay", name)
    for name in specs:
        step.put_to_sleep(name, admission.victims, admission.proof_victims)
    return step.state, list(step.actions)


def admit_clients(
    specs: Mapping[str, InstanceSpec], before: LedgerState, seen: Observation, name: str
) -> tuple[LedgerState, list[Action]]:
    """The next state where an instance that starts has its link, and the actions: its clients wait for no observation.

    Args:
        specs: Name -> the specification of each instance on demand.
        before: The state.
        seen: An earlier observation, with the present time.
        name: The instance.
    """
    step = _Step(specs, LedgerState(copy.deepcopy(before.entries), list(before.waiters)), seen, drain=0.0)
    step.reconcile(name, UnitObserved("active"))
    step.answer_waiters(name)
    return step.state, list(step.actions)


def estimates(
    specs: Mapping[str, InstanceSpec], state: LedgerState, now: float, seen: Observation | None = None
) -> dict[str, str]:
    """Client -> the line with its position and the seconds until its instance is ready, `-` if unknown.

    Args:
        specs: Name -> the specification of each instance on demand.
        state: The state.
        now: The present time.
        seen: The latest observation: of the memory that others have to leave first.
    """
    queue = sorted(state.waiters, key=lambda one: (not one.proof, one.since, one.id))
    texts: dict[str, str] = {}
    for name in {one.instance for one in queue}:
        entry, spec = state.entries.get(name), specs.get(name)
        seconds = (entry and entry.load_seconds) or (spec and spec.seconds) or 0.0
        if entry and entry.phase == STARTING and seconds:
            seconds = max(1.0, seconds - (now - entry.since))
        if entry and entry.phase == ASLEEP and seconds and seen:
            seconds += _seconds_to_room(specs, state, name, replace(seen, now=now))
        texts[name] = str(math.ceil(seconds)) if seconds else "-"
    return {one.id: f"waiting {place} {texts[one.instance]}" for place, one in enumerate(queue, 1)}


def _seconds_to_room(specs: Mapping[str, InstanceSpec], state: LedgerState, name: str, seen: Observation) -> float:
    """Seconds that the first instance in the way of a sleeping one serves at least; 0 where none is."""
    if name not in specs or not (devices := specs[name].need.keys()) <= seen.devices.keys():
        return 0.0
    coming = Admission(specs, state, seen).coming
    if all(size <= coming[device] for device, size in specs[name].need.items()):
        return 0.0
    ways = [
        (specs[one].residence - (seen.now - entry.ready_at)) * (entry.phase == AWAKE)
        for one, entry in state.entries.items()
        if one in specs and entry.phase in (AWAKE, LEAVING) and specs[one].need.keys() & devices
        # one that stays loaded is never out of the way
        if not specs[one].keep_warm
    ]
    return max(0.0, min(ways, default=0.0))
