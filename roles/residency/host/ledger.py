"""The ledger of a box: which instances on demand are loaded, which start, which go to sleep.

`decide` is a pure function: the same state, specifications and observation give the same next state and actions. It
reads no clock and no file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .admission import Admission
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
    actions: list[Action] = field(default_factory=list)

    def act(self, kind: str, target: str, text: str = "") -> None:
        """Add an action, once."""
        one = Action(kind, target, text)
        if one not in self.actions:
            self.actions.append(one)

    def enter(self, name: str, phase: str) -> Entry:
        """Have an instance be in a phase from now on."""
        entry = self.state.entries[name]
        if entry.phase != phase:
            entry.phase, entry.since = phase, self.seen.now
        return entry

    def waiters_of(self, name: str) -> list[Waiter]:
        """The clients that wait for an instance, oldest first."""
        return sorted((one for one in self.state.waiters if one.instance == name), key=lambda one: (one.since, one.id))

    def answer(self, waiter: Waiter, line: str) -> None:
        """Answer a client, which waits no more."""
        self.act("answer", waiter.id, line)
        self.state.waiters.remove(waiter)

    def refuse(self, name: str, code: str, seconds: float, text: str) -> None:
        """Answer all clients of an instance with a refusal."""
        for waiter in self.waiters_of(name):
            self.answer(waiter, refusal(code, seconds, text))

    def fail(self, name: str, reason: str) -> None:
        """An instance ended, or did not start: its clients get the reason, and its next start has to wait."""
        entry = self.enter(name, STOPPING)
        entry.failures += 1
        back_off = min(LONGEST_BACK_OFF_S, BACK_OFF_S * 2.0 ** min(entry.failures - 1, 10))
        entry.retry_at, entry.reason = self.seen.now + back_off, reason
        entry.sleep_next = False
        self.act("stop", name)
        self.refuse(name, "failed", back_off, reason)

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
                self.enter(name, STARTING)
        elif unit.state == "inactive":
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

    def _is_stopped_by_others(self, phase: str, unit: UnitObserved) -> bool:
        """Whether another program stops a unit: an operator, or an activation, which stops one that starts, too."""
        phases = (STARTING, AWAKE, LEAVING) if self.seen.paused else (AWAKE, LEAVING)
        return phase in phases and unit.state == "deactivating" and unit.result == "success"

    def _reconcile_active(self, name: str, phase: str) -> None:
        if phase == STOPPING:
            self.act("stop", name)
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
            entry.last_used = entry.answered_at = now
            entry.sleep_next = any(one.proof for one in waiters) and not self.specs[name].keep_warm
            for waiter in waiters:
                self.answer(waiter, "ready")
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
            else:
                self.act("cut" if name in proof_victims and late >= 0 else "leave", name)


def decide(
    specs: Mapping[str, InstanceSpec], before: LedgerState, seen: Observation, drain: float = 30.0
) -> tuple[LedgerState, list[Action]]:
    """The next state and the actions that lead to it; the state is written down before the actions are carried out.

    Args:
        specs: Name -> the specification of each instance on demand.
        before: The state.
        seen: The box as it is now.
        drain: Seconds after which a proof ends the streams of an instance that is in its way.
    """
    step = _Step(specs, copy.deepcopy(before), seen, drain)
    entries = step.state.entries
    for name in [name for name in entries if name not in specs]:
        step.refuse(name, "forbidden", 60.0, "it is no instance on demand")
        del entries[name]
    for name in specs:
        entries.setdefault(name, Entry())
        if name in seen.units:
            step.reconcile(name, seen.units[name])
            step.update_use(name)
    for waiter in [one for one in step.state.waiters if one.instance not in specs]:
        step.answer(waiter, refusal("forbidden", 60.0, "it is no instance on demand"))
    for name in specs:
        step.answer_waiters(name)
    admission = Admission(specs, step.state, seen)
    admission.decide()
    for waiter, line in admission.refusals:
        step.answer(waiter, line)
    for name in admission.starts:
        step.enter(name, STARTING)
        entries[name].short_since = None
        step.act("start", name)
    for name in specs:
        step.put_to_sleep(name, admission.victims, admission.proof_victims)
    return step.state, step.actions


def estimate(specs: Mapping[str, InstanceSpec], state: LedgerState, waiter: Waiter, now: float) -> str:
    """The line that tells a client its position and the seconds that its instance takes to load, `-` if unknown."""
    queue = sorted(state.waiters, key=lambda one: (not one.proof, one.since, one.id))
    place = next((number for number, one in enumerate(queue, 1) if one.id == waiter.id), 1)
    entry, spec = state.entries.get(waiter.instance), specs.get(waiter.instance)
    seconds = (entry and entry.load_seconds) or (spec and spec.seconds) or 0.0
    if entry and entry.phase == STARTING and seconds:
        seconds = max(1.0, seconds - (now - entry.since))
    return f"waiting {place} {math.ceil(seconds) if seconds else '-'}"
