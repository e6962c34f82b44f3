"""The run of a rollout: batches in order, each box through its gate, and the stop at the first that fails."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeGuard

from rigwright.model.maintenance_window import HORIZON, find_common_opening
from rigwright.problems import printable
from rigwright.rollout.box_marker import BoxMarker, describe_marker_refusal, format_moment, read_clock
from rigwright.rollout.state_file import BoxRecord, Phase, Request, RolloutState, save_state

POLL_SECONDS = 1.0  # between two looks for a request during a soak, or outside of a window
MOST_STEPS_AHEAD = 500
"""Steps of a box that another controller may have taken since the state was copied; an attempt has about ten."""
UNDER_WAY = {"draining", "deploying", "checking", "soaking"}


@dataclass(frozen=True)
class BoxBefore:
    """A box, observed before a step."""

    generation: int | None
    boot: str
    marker: BoxMarker | None = None
    digest: str = ""
    """Of the marker; empty without one."""
    previous: int | None = None
    """The generation to which a rollback without a number returns."""


class BoxUnreachable(Exception):
    """A box does not answer, or its answer cannot be used; the text has the reason."""


class ForeignRollout(Exception):
    """Another rollout, or another controller of this one, is on boxes; `reasons` has each box."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        super().__init__("\n".join(f"{name}: {reason}" for name, reason in self.reasons.items()))


class RolloutSteps(Protocol):
    """The actions of a rollout on boxes: the code of `deploy`, `check` and `rollback`."""

    def observe(self, names: Collection[str]) -> Mapping[str, BoxBefore | BoxUnreachable]:
        """The served generation, the boot and the marker of boxes."""

    def mark(self, markers: Mapping[str, tuple[BoxMarker, str]]) -> Mapping[str, str | BoxUnreachable | None]:
        """Replace the markers of boxes, if they have these digests, and take them out of rotation or back; returns the
        digest of the marker that is there, or None if it was another one.
        """

    def share_builds(self, names: Collection[str], builders: Mapping[str, Sequence[str]]) -> None:
        """Copy engines from the boxes that have compiled them, to those of these that lack them; others build."""

    def drain(self, names: Collection[str]) -> None:
        """Wait for the requests of other boxes' gateways, at most as long as those have."""

    def await_gateways(self, names: Collection[str]) -> None:
        """Wait until gateways of other boxes send requests to these boxes again."""

    def deploy(self, names: Collection[str], *, reboot: bool | None, driver: str = "") -> Mapping[str, str]:
        """Deploy boxes at the same time, or return them to a driver; returns the reason for each on which that failed.

        `reboot` is the consent, None without a word on it: the inventory's holds then.
        """

    def run_gate(self, name: str, *, speed: bool) -> str:
        """Why a box fails its gate; empty if it passes."""

    def roll_back(self, name: str, generation: int) -> str:
        """Return a box to a generation; the reason if that failed."""


@dataclass
class RolloutRun:
    """A rollout under way. Marker and state are written before each step, so that a killed run resumes."""

    path: Path
    state: RolloutState
    steps: RolloutSteps
    say: Callable[[str], None]
    read_request: Callable[[], Request]
    controller: str
    replaced: str = ""
    """The controller that this one replaces, by the operator's consent."""
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = read_clock
    digests: dict[str, str] = field(default_factory=dict)
    """Box -> the digest of its marker, as this controller has read or written it last."""
    process: str = field(default_factory=lambda: secrets.token_hex(6))
    """In the markers that this run writes: another process with the same name writes another one."""
    find_refusal: Callable[[Sequence[str]], str] = lambda batch: ""
    """Why boxes may not begin after a wait for their window; empty if they may."""

    def claim_boxes(self) -> None:
        """Read the markers of all boxes that are not done, and take over records with more steps than this state has.

        Raises:
            ForeignRollout: another rollout, or another controller, is on one of them. Nothing was changed.
        """
        self._claim([name for name, record in self.state.boxes.items() if record.state != "done"])

    def _claim(self, names: Collection[str]) -> None:
        looks = self.steps.observe(names) if names else {}
        found = {name: box for name, box in looks.items() if isinstance(box, BoxBefore)}
        self._judge_markers(found)
        for name, box in found.items():
            self._adopt(name, box)

    def _claim_late(self, names: Collection[str]) -> None:
        """Claim boxes that have not answered before."""
        self._claim([name for name in names if name not in self.digests and not self._in(name, "done")])

    def _judge_markers(self, found: Mapping[str, BoxBefore]) -> None:
        refused = {name: self._describe_refusal(name, box.marker) for name, box in found.items()}
        if reasons := {name: reason for name, reason in refused.items() if reason}:
            raise ForeignRollout(reasons)

    def _describe_refusal(self, name: str, marker: BoxMarker | None) -> str:
        if reason := describe_marker_refusal(marker, self.state.identifier, self.controller, self.replaced):
            return reason
        if self._is_ahead(marker, name, MOST_STEPS_AHEAD):
            steps = self.state.boxes[name].step
            return f"{marker.describe()} has {marker.record.step} steps, and this controller's state {steps}"
        return ""

    def _is_ahead(self, marker: BoxMarker | None, name: str, steps: int = 0) -> TypeGuard[BoxMarker]:
        """Whether a box has a marker of this rollout with more steps than the state, by more than `steps`."""
        if marker is None or marker.rollout != self.state.identifier:
            return False
        return marker.record.step > self.state.boxes[name].step + steps

    def _is_written_by_another(self, name: str, marker: BoxMarker | None) -> bool:
        """Whether another process has replaced the marker of a box since this one has read it."""
        return name in self.digests and marker is not None and marker.process != self.process

    def _require_present(self, name: str, box: BoxBefore) -> None:
        """Refuse a box on which another controller has taken steps since this one claimed it."""
        self._judge_markers({name: box})
        if self._is_ahead(marker := box.marker, name):
            raise ForeignRollout({name: f"{marker.describe()} has gone on"})
        self.digests[name] = box.digest

    def _adopt(self, name: str, box: BoxBefore) -> None:
        self.digests[name] = box.digest
        if self._is_ahead(marker := box.marker, name):
            self.state = self.state.with_records({name: marker.record})

    def run(self) -> Phase:
        """Run to the end, to a request, or to the first box that fails its gate; returns the phase.

        Raises:
            ForeignRollout: another controller has replaced this one.
        """
        self._save(self.state.with_phase("running"))
        try:
            phase = self._run_batches()
        except ForeignRollout:
            self._save(self.state.with_phase("paused"))
            raise
        self._save(self.state.with_phase(phase))
        under_way = [name for name in self.digests if self.state.boxes[name].state not in ("waiting", "done")]
        self._write_markers({name: self.state.boxes[name] for name in under_way}, is_released=True)
        return phase

    def _run_batches(self) -> Phase:
        # a rollback that a kill has cut off comes first: its box serves a generation that failed
        self._claim_late(self.state.find_box("restoring"))
        if cut_off := self.state.find_box("restoring"):
            self._restore(cut_off)
            return "stopped"
        for number, batch in enumerate(self.state.batches, 1):
            if not [name for name in batch if not self._in(name, "done")]:
                continue
            if request := self.read_request() or self._await_window(batch):
                return "paused" if request == "pause" else "aborted"
            self.say(f"batch {number} of {len(self.state.batches)}: {', '.join(batch)}")
            if phase := self._run_batch(batch):
                return phase
        return "finished"

    def _run_batch(self, batch: Sequence[str]) -> Phase | None:
        """Bring a batch to `done`; the phase that ends the rollout, or None."""
        self._claim_late(batch)
        if cut_off := [name for name in batch if self._in(name, "restoring")]:
            self._restore(cut_off)
            return "stopped"
        soak = self.state.settings.soak_minutes
        failed = self._change([name for name in batch if not self._in(name, "checking", "soaking", "done")])
        returned: list[str] = []
        for name in batch:
            if self._in(name, "checking") and name not in failed:
                if reason := self.steps.run_gate(name, speed=True):
                    failed[name] = reason
                else:
                    failed |= self._mark([name], state="soaking" if soak else "done", is_out=False, reason="")
                    self.say(f"{name}: passed its gate")
                    returned.append(name)
        if returned and not failed:
            # the next batch would take the only instances that gateways know to answer
            self.steps.await_gateways(returned)
        soaking = [name for name in batch if self._in(name, "soaking")]
        if soaking and not failed:
            if request := self._soak(soak):
                return "paused" if request == "pause" else "aborted"
            failed = {name: reason for name in soaking if (reason := self.steps.run_gate(name, speed=False))}
            failed |= self._mark([name for name in soaking if name not in failed], state="done")
        if failed:
            self._restore(tuple(failed), failed)
            return "stopped"
        return None

    def _change(self, names: Sequence[str]) -> dict[str, str]:
        """Drain and deploy boxes, or roll them back; returns the reason for each that failed."""
        from roles.connection_failures import describe_unreachable_host

        settings = self.state.settings
        failed: dict[str, str] = {}
        found: dict[str, BoxBefore] = {}
        for name, box in self.steps.observe(names).items():
            if isinstance(box, BoxUnreachable):
                failed[name] = describe_unreachable_host(str(box))
                continue
            found[name] = box
            self._require_present(name, box)
        # the boot before the first step of the rollout: later steps see whether the box has rebooted
        records = {
            name: {"before": box.generation, "boot": box.boot, "target": settings.to or box.previous}
            for name, box in found.items()
            if self.state.boxes[name].boot is None
        }
        claims = {name: {"state": "draining", "reason": "", **records.get(name, {})} for name in found}
        if self.state.builders:
            # copies change boxes: after the marker, and before the boxes leave rotation
            failed |= self._mark_each(claims)
            self.steps.share_builds([name for name in found if name not in failed], self.state.builders)
        failed |= self._mark_each({name: {**claims[name], "is_out": True} for name in claims if name not in failed})
        self.steps.drain([name for name in found if name not in failed])
        groups: dict[tuple[bool | None, str], list[str]] = {}
        for name, box in ((name, box) for name, box in found.items() if name not in failed):
            record, consent = self.state.boxes[name], True if settings.reboot else None
            if record.boot != box.boot:
                consent = False
                self.say(f"{name}: has rebooted in this rollout: no second reboot")
            groups.setdefault((consent, record.driver or ""), []).append(name)
        for (reboot, driver), group in groups.items():
            failed |= self._mark(group, state="deploying")
            group = [name for name in group if name not in failed]
            if not group:
                continue
            if settings.action == "rollback":
                failed |= {name: reason for name in group if (reason := self._return_to_target(name, found[name]))}
            else:
                failed |= self.steps.deploy(group, reboot=reboot, driver=driver)
            done = [name for name in group if name not in failed]
            served = self._read_generations(done)
            failed |= self._mark_each({name: {"state": "checking", "generation": served[name]} for name in done})
        return failed

    def _return_to_target(self, name: str, box: BoxBefore) -> str:
        target = self.state.boxes[name].target
        if target is None:
            return "it has no earlier generation that has served"
        # a killed controller's rollback continues on the box by itself
        return "" if box.generation == target else self.steps.roll_back(name, target)

    def _restore(self, names: Sequence[str], reasons: Mapping[str, str] = {}) -> None:
        """Return boxes that failed to their generations before the rollout."""
        for name in names:
            record = self.state.boxes[name]
            reason = reasons.get(name, record.reason)
            self.say(f"{name}: failed its gate: {reason}")
            box = self.steps.observe([name])[name]
            if isinstance(box, BoxUnreachable):
                self._mark([name], state="failed", reason=_one_line(f"{reason}; not rolled back: {box}"))
                continue
            self._require_present(name, box)
            if wrong := self._mark([name], state="restoring", reason=_one_line(reason)).get(name):
                self._mark([name], state="failed", reason=_one_line(f"{reason}; not rolled back: {wrong}"))
                continue
            if record.before is None or box.generation == record.before:
                is_same = record.before is not None and not record.driver
                why = "the deploy activated no other generation" if is_same else "it had no generation"
                why = "no driver goes back by itself: that takes another reboot" if record.driver else why
                changes = {"generation": box.generation, "reason": _one_line(f"{reason} ({why})")}
                self._mark([name], state="failed", is_out=not is_same, **changes)
                continue
            wrong = self.steps.roll_back(name, record.before)
            self._mark(
                [name],
                state="failed" if wrong else "restored",
                is_out=bool(wrong),
                generation=self._read_generations([name])[name],
                reason=_one_line(f"{reason}; not rolled back: {wrong}" if wrong else reason),
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

    def _await_window(self, batch: Sequence[str]) -> Request:
        """Wait until a batch may begin, or a box that failed may begin again; the request that ends the wait, or ""."""
        left = [name for name in batch if not self._in(name, "done")]
        states = {self.state.boxes[name].state for name in left}
        if states & UNDER_WAY and not states & {"failed", "restored"}:
            return ""
        windows, is_announced = self.state.list_windows(left), False
        while (opening := find_common_opening(windows, now := self.now())) is None or opening > now:
            if not is_announced:
                begin = f"at {format_moment(opening)}" if opening else f"in none of the next {HORIZON.days} days"
                self.say(f"outside of the maintenance windows of {', '.join(left)}: this batch begins {begin}")
                is_announced = True
            if request := self.read_request():
                return request
            self.wait(POLL_SECONDS)
        if is_announced and (reason := self.find_refusal(left)):
            self.say(f"paused after the wait: {reason}")
            return "pause"
        return ""

    def _read_generations(self, names: Collection[str]) -> dict[str, int | None]:
        found = self.steps.observe(names) if names else {}
        return {name: box.generation if isinstance(box, BoxBefore) else None for name, box in found.items()}

    def _in(self, name: str, *states: str) -> bool:
        return self.state.boxes[name].state in states

    def _mark(self, names: Collection[str], **changes: object) -> dict[str, str]:
        return self._mark_each(dict.fromkeys(names, changes))

    def _mark_each(self, changes: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
        """Write the records of boxes, first on the boxes; returns the reason for each box on which that failed.

        Raises:
            ForeignRollout: another controller has written one of them.
        """
        if not changes:
            return {}
        records = {name: self.state.boxes[name].advance(one) for name, one in changes.items()}
        failed = self._write_markers(records)
        self._save(self.state.with_records(records))
        return failed

    def _write_markers(self, records: Mapping[str, BoxRecord], *, is_released: bool = False) -> dict[str, str]:
        markers = {
            name: (
                BoxMarker(
                    rollout=self.state.identifier,
                    started=self.state.started,
                    controller=self.controller,
                    process=self.process,
                    moment=format_moment(self.now()),
                    is_released=is_released,
                    is_closed=record.state == "done",
                    record=record,
                ),
                self.digests.get(name, ""),
            )
            for name, record in records.items()
        }
        written = dict(self.steps.mark(markers)) if markers else {}
        if other := [name for name, digest in written.items() if digest is None]:
            # this run may have written the marker, and the connection may have lost the answer
            found = {name: box for name, box in self.steps.observe(other).items() if isinstance(box, BoxBefore)}
            self._judge_markers(found)
            if twins := [name for name, box in found.items() if self._is_written_by_another(name, box.marker)]:
                raise ForeignRollout(dict.fromkeys(twins, "another process of this controller has written its marker"))
            again = {name: (markers[name][0], box.digest) for name, box in found.items()}
            written |= dict.fromkeys(other, BoxUnreachable("no answer")) | dict(self.steps.mark(again))
        if replaced := [name for name, digest in written.items() if digest is None]:
            raise ForeignRollout(dict.fromkeys(replaced, "another controller writes the marker of the rollout"))
        self.digests |= {name: digest for name, digest in written.items() if isinstance(digest, str)}
        return {name: f"its marker: {one}" for name, one in written.items() if isinstance(one, BoxUnreachable)}

    def _save(self, state: RolloutState) -> None:
        self.state = state
        save_state(self.path, state)


def _one_line(text: str) -> str:
    """A reason as the state has it: one line of at most 4000 characters."""
    return printable(" ".join(text.split()))[:4000]
