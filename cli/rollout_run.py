"""The run of a rollout: batches in order, each box through its gate, and the stop at the first that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rigwright.problems import printable
from rigwright.rollout.state_file import Phase, Request, RolloutState, save_state

POLL_SECONDS = 1.0  # between two looks for a request during a soak


@dataclass(frozen=True)
class BoxBefore:
    """A box, observed before a deploy."""

    generation: int | None
    boot: str


class BoxUnreachable(Exception):
    """A box that cannot be reached, with the reason, if it is known."""

    def __str__(self) -> str:
        from roles.connection_failures import describe_unreachable_host

        return describe_unreachable_host(str(self.args[0]))


class RolloutSteps(Protocol):
    """The actions of a rollout on boxes: the code of `deploy`, `check` and `rollback`."""

    def observe(self, name: str) -> BoxBefore:
        """The served generation and the boot of a box; raises BoxUnreachable."""

    def deploy(self, names: Collection[str], *, reboot: bool) -> Mapping[str, str]:
        """Deploy boxes at the same time; returns the reason for each box on which it failed."""

    def run_gate(self, name: str, *, speed: bool) -> str:
        """Why a box fails its gate; empty if it passes."""

    def roll_back(self, name: str, generation: int) -> str:
        """Return a box to a generation; the reason if that failed."""


@dataclass
class RolloutRun:
    """A rollout under way. The state is saved before each step, so that a killed run resumes."""

    path: Path
    state: RolloutState
    steps: RolloutSteps
    say: Callable[[str], None]
    read_request: Callable[[], Request]
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def run(self) -> Phase:
        """Run to the end, to a request, or to the first box that fails its gate; returns the phase."""
        self._save(self.state.with_phase("running"))
        # a rollback that a kill has cut off comes first: its box serves a generation that failed
        if cut_off := self.state.find_box("restoring"):
            self._restore(cut_off)
            return self._end("stopped")
        for number, batch in enumerate(self.state.batches, 1):
            if not [name for name in batch if self.state.boxes[name].state != "done"]:
                continue
            if request := self.read_request():
                return self._end("paused" if request == "pause" else "aborted")
            self.say(f"batch {number} of {len(self.state.batches)}: {', '.join(batch)}")
            if phase := self._run_batch(batch):
                return self._end(phase)
        return self._end("finished")

    def _run_batch(self, batch: Sequence[str]) -> Phase | None:
        """Bring a batch to `done`; the phase that ends the rollout, or None."""
        soak = self.state.settings.soak_minutes
        failed = self._deploy([name for name in batch if self._in(name, "waiting", "deploying", "restored", "failed")])
        for name in batch:
            if self._in(name, "checking") and name not in failed:
                if reason := self.steps.run_gate(name, speed=True):
                    failed[name] = reason
                else:
                    self._mark([name], state="soaking" if soak else "done", reason="")
                    self.say(f"{name}: passed its gate")
        soaking = [name for name in batch if self._in(name, "soaking")]
        if soaking and not failed:
            if request := self._soak(soak):
                return "paused" if request == "pause" else "aborted"
            failed = {name: reason for name in soaking if (reason := self.steps.run_gate(name, speed=False))}
            self._mark([name for name in soaking if name not in failed], state="done")
        if failed:
            self._restore(tuple(failed), failed)
            return "stopped"
        return None

    def _deploy(self, names: Sequence[str]) -> dict[str, str]:
        """Deploy boxes; returns the reason for each that failed."""
        consent: dict[bool, list[str]] = {True: [], False: []}
        failed: dict[str, str] = {}
        for name in names:
            record = self.state.boxes[name]
            try:
                found = self.steps.observe(name)
            except BoxUnreachable as error:
                failed[name] = str(error)
                continue
            is_first = record.boot is None
            if is_first:
                self._mark([name], before=found.generation, boot=found.boot)
            may_reboot = self.state.settings.reboot and (is_first or record.boot == found.boot)
            if self.state.settings.reboot and not may_reboot:
                self.say(f"{name}: has rebooted in this rollout: no second reboot")
            consent[may_reboot].append(name)
        for reboot, group in consent.items():
            if group:
                self._mark(group, state="deploying", reason="")
                failed |= self.steps.deploy(group, reboot=reboot)
                done = [name for name in group if name not in failed]
                for name in done:
                    self._mark([name], state="checking", generation=self._read_generation(name))
        return failed

    def _restore(self, names: Sequence[str], reasons: Mapping[str, str] = {}) -> None:
        """Return boxes that failed to their generations before the rollout."""
        for name in names:
            record = self.state.boxes[name]
            reason = reasons.get(name, record.reason)
            self.say(f"{name}: failed its gate: {reason}")
            self._mark([name], state="restoring", reason=_one_line(reason))
            try:
                served = self.steps.observe(name).generation
            except BoxUnreachable as error:
                self._mark([name], state="failed", reason=_one_line(f"{reason}; not rolled back: {error}"))
                continue
            if record.before is None or served == record.before:
                why = "the deploy activated no other generation" if served == record.before else "it had no generation"
                self._mark([name], state="failed", generation=served, reason=_one_line(f"{reason} ({why})"))
                continue
            wrong = self.steps.roll_back(name, record.before)
            note = f"{reason}; not rolled back: {wrong}" if wrong else reason
            self._mark(
                [name],
                state="failed" if wrong else "restored",
                generation=self._read_generation(name),
                reason=_one_line(note),
            )

    def _soak(self, minutes: int) -> Request:
        """Wait for the soak; the request that ends it early, or nothing."""
        self.say(f"soaking for {minutes} min")
        end = self.clock() + 60 * minutes
        while (left := end - self.clock()) > 0:
            if request := self.read_request():
                return request
            self.wait(min(POLL_SECONDS, left))
        return ""

    def _read_generation(self, name: str) -> int | None:
        try:
            return self.steps.observe(name).generation
        except BoxUnreachable:
            return None

    def _in(self, name: str, *states: str) -> bool:
        return self.state.boxes[name].state in states

    def _mark(self, names: Collection[str], **changes: object) -> None:
        if names:
            self._save(self.state.with_boxes(names, **changes))

    def _save(self, state: RolloutState) -> None:
        self.state = state
        save_state(self.path, state)

    def _end(self, phase: Phase) -> Phase:
        self._save(self.state.with_phase(phase))
        return phase


def _one_line(text: str) -> str:
    """A reason as the state has it: one line of at most 4000 characters."""
    return printable(" ".join(text.split()))[:4000]
