"""The state of a rollout: a file beside the inventory, from which a killed controller's successor continues."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from rigwright.local_files import read_content, write_atomically
from rigwright.model.inventory_schema import WindowText
from rigwright.problems import FrozenModel, printable
from rigwright.validated_types import PLAIN, Digits, DriverVersion, Sha256, matching

MOST_BYTES = 4 << 20
HostName = Annotated[str, matching(r"[A-Za-z0-9_.@:-]{1,255}", "a host name")]
TreeName = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,254}", "the folder of an engine")]
RolloutMoment = Annotated[
    str,
    matching(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", "a moment, such as 2026-06-10T12:00:00Z"),
]
Reason = Annotated[str, matching(rf"{PLAIN}{{0,4000}}", "text of at most 4000 characters")]
ModelText = Annotated[str, matching(rf"{PLAIN}{{1,400}}", "a model's name")]
MOST_GENERATION, MOST_STEPS = 10**9, 10**6
Generation = Annotated[int, Field(ge=1, le=MOST_GENERATION, strict=True)]
Phase = Literal["running", "paused", "stopped", "aborted", "finished"]
Request = Literal["", "pause", "abort"]
"""A request of another process to the running controller."""
BoxState = Literal["waiting", "draining", "deploying", "checking", "soaking", "done", "restoring", "restored", "failed"]
RolloutAction = Literal["deploy", "upgrade", "rollback", "driver rollback"]
"""The change of each box."""


class BoxRecord(FrozenModel):
    """One box, written before each step that changes it."""

    state: BoxState = "waiting"
    step: Annotated[int, Field(ge=0, le=MOST_STEPS, strict=True)] = 0
    """How often the record has changed: of two records, the one with more steps holds."""
    is_out: bool = False
    """Whether gateways of other boxes send no requests to it."""
    before: Generation | None = None
    """The generation that it served before its first deploy; None if it served none."""
    generation: Generation | None = None
    """The generation that it served last; None if it served none, or is not known."""
    target: Generation | None = None
    """The generation to which a rollback returns it."""
    driver: DriverVersion | None = None
    """The driver to which a driver rollback returns it."""
    boot: Digits | None = None
    """Its boot before the first deploy: with another one it has rebooted, and does not reboot again."""
    reason: Reason = ""
    """Why it failed its gate, or was not restored."""

    def advance(self, changes: Mapping[str, object]) -> BoxRecord:
        """The record after one more step."""
        return self.model_copy(update={**changes, "step": min(self.step + 1, MOST_STEPS)})


class RolloutSettings(FrozenModel):
    """Options of a rollout, which `--resume` keeps."""

    action: RolloutAction = "deploy"
    to: Generation | None = None
    """Of a rollback of generations: the generation; None for the previous one of each box."""
    windows: Annotated[tuple[WindowText, ...], Field(max_length=100)] = ()
    """When batches may begin, by `--window`; empty for the windows of the boxes."""
    reboot: bool = False
    share_builds: bool = False
    """Whether boxes copy engines that two others have compiled."""
    soak_minutes: Annotated[int, Field(ge=0, le=10_080, strict=True)] = 0
    max_unavailable: Annotated[int, Field(ge=1, le=100_000, strict=True)] | None = None
    """Boxes that may be out of service at the same time; None for any number."""
    allowed_outages: Annotated[tuple[ModelText, ...], Field(max_length=1000)] = ()
    """Models, or aliases, whose last instance may be interrupted."""


class RolloutState(FrozenModel):
    """One rollout."""

    format: Literal["rigwright rollout"] = "rigwright rollout"
    version: Literal[1] = 1
    identifier: Digits
    """The same in the markers on boxes."""
    started: RolloutMoment
    inventory_digest: Sha256
    """Of the inventory, and of the catalogue and patches next to it."""
    supply_digest: Sha256
    """Of locks and bundles of all boxes."""
    settings: RolloutSettings
    windows: dict[HostName, Annotated[tuple[WindowText, ...], Field(max_length=100)]] = Field(default_factory=dict)
    """Box -> its windows, by the inventory; a box without any is absent."""
    builders: dict[TreeName, Annotated[tuple[HostName, ...], Field(max_length=2)]] = Field(default_factory=dict)
    """Tree of an engine -> the boxes that compile it for others."""
    phase: Phase = "running"
    batches: Annotated[tuple[tuple[HostName, ...], ...], Field(min_length=1, max_length=10_000)]
    boxes: dict[HostName, BoxRecord]

    @property
    def is_ended(self) -> bool:
        """Whether nothing is left to resume."""
        return self.phase in ("aborted", "finished")

    def with_records(self, records: Mapping[str, BoxRecord]) -> RolloutState:
        """The state with these records of boxes."""
        return self.model_copy(update={"boxes": {**self.boxes, **records}})

    def list_windows(self, names: Iterable[str]) -> list[tuple[str, ...]]:
        """The windows that count for boxes: those of `--window`, or each box's own."""
        return [self.settings.windows or self.windows.get(name, ()) for name in names]

    def with_phase(self, phase: Phase) -> RolloutState:
        """The state in another phase."""
        return self.model_copy(update={"phase": phase})

    def find_box(self, *states: BoxState) -> tuple[str, ...]:
        """Names of the boxes in one of these states, in the order of the batches."""
        return tuple(name for batch in self.batches for name in batch if self.boxes[name].state in states)


class UnreadableState(ValueError):
    """The state file is refused; the text has the file and the reason."""


def state_path(inventory: str) -> Path:
    """The state file of an inventory: `fleet.rollout.json` next to `fleet.py`."""
    return Path(inventory).absolute().with_suffix(".rollout.json")


def lock_path(inventory: str) -> Path:
    """The lock that the controller of a running rollout holds."""
    return Path(inventory).absolute().with_suffix(".rollout.lock")


def request_path(inventory: str) -> Path:
    """The file by which `--pause` and `--abort` reach the running controller."""
    return Path(inventory).absolute().with_suffix(".rollout.request")


def load_state(path: Path) -> RolloutState | None:
    """Read a state file; None if there is none.

    Raises:
        UnreadableState: it is no state file, or another user owns it or can read or write it.
    """
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableState(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(facts.st_mode):
        raise UnreadableState(f"{path}: is refused: not a regular file")
    if facts.st_uid not in (os.geteuid(), path.parent.stat().st_uid):
        raise UnreadableState(f"{path}: is refused: another user owns it")
    if facts.st_mode & 0o077:
        raise UnreadableState(
            f"{path}: is refused: open to other users (mode {stat.S_IMODE(facts.st_mode):04o}): chmod 600 {path}"
        )
    try:
        state = RolloutState.model_validate_json(read_content(path, MOST_BYTES))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "content"
        fault = printable(f"{where}: {first['msg']}")
        raise UnreadableState(f"{path}: is no rollout's state: {fault}") from None
    except ValueError as error:
        raise UnreadableState(f"{path}: {error}") from None
    listed = [name for batch in state.batches for name in batch]
    if len({*listed}) < len(listed) or {*listed} != state.boxes.keys():
        raise UnreadableState(f"{path}: is no rollout's state: batches and boxes name different hosts")
    return state


def save_state(path: Path, state: RolloutState) -> None:
    """Write a state file with mode 0600, whole or not at all.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    content = json.dumps(json.loads(state.model_dump_json()), indent=1)
    write_atomically(path, content + "\n", private=True)


def describe_other_inputs(state: RolloutState, inventory_digest: str, supply: str) -> str:
    """Why the inputs are not those that a rollout began with; empty if they are."""
    changed = [
        word
        for word, before, now in (
            ("the inventory (or catalog/ or patches/ next to it)", state.inventory_digest, inventory_digest),
            ("a lock or a bundle", state.supply_digest, supply),
        )
        if before != now
    ]
    return f"{' and '.join(changed)} changed since the rollout of {state.started} began" if changed else ""


def describe_box(name: str, record: BoxRecord) -> str:
    """One line on a box: its state and its generation."""
    serves = f"generation {record.generation}" if record.generation else "no generation"
    words: Mapping[BoxState, str] = {
        "waiting": "untouched",
        "draining": "drain not finished",
        "deploying": "deploy not finished",
        "checking": "deployed, gate not finished",
        "soaking": "passed its gate, soak not finished",
        "done": "done",
        "restoring": "failed its gate, rollback not finished",
        "restored": "failed its gate, rolled back",
        "failed": "failed its gate, not rolled back",
    }
    known = serves if record.generation or record.state != "waiting" else ""
    out = "out of rotation" if record.is_out else ""
    reason = f": {record.reason}" if record.reason else ""
    return f"{name}: {', '.join(part for part in (words[record.state], known, out) if part)}{reason}"
