"""A rig's weights on its host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

from checks.survey.section import Section, SurveyScope
from rigwright.model.instance import loaded_weights
from rigwright.weights.verification import REHASH_UNITS, recorded_file, records_folder

TIMER, SERVICE = REHASH_UNITS
FEW = 16 << 20  # bytes of a file that is read each time: a tenth of a second at most
SLOW = 50e6  # bytes a second: a disk of before, read by a processor that has other work


@dataclass(frozen=True)
class WeightFileState:
    """A locked file, as it lies there."""

    kind: str
    """`file`, `link`, ... or `none`."""
    mode: int
    uid: int
    size: int
    state: str
    """The state in its record, valid while the file is untouched."""
    changed: float
    """When it was last touched, seconds since the epoch."""
    recorded: str
    """The state that was recorded; empty without a record."""
    record_of: str
    """The path that its record is about."""
    hashed: float | None
    """When its bytes were last hashed, and right, as that was written down."""
    wrong: str
    """The SHA-256 of the bytes instead, and when; empty where they were right."""
    read: str
    """SHA-256 of its bytes, or why they cannot be read; empty if unread."""

    @property
    def is_untouched(self) -> bool:
        """Whether it is as it was when its bytes were verified."""
        return bool(self.recorded) and self.state == self.recorded


@dataclass(frozen=True)
class WeightFolder:
    """A folder."""

    path: str
    kind: str
    mode: int
    uid: int
    inherits: bool
    """Whether what is made in it gets rights from it (acl(5), default entries)."""


@dataclass(frozen=True)
class WeightSurvey:
    """The weights there, and the facts about them."""

    now: float
    """The host's clock, seconds since the epoch."""
    files: dict[str, WeightFileState]
    """By absolute path."""
    folders: list[WeightFolder]
    """That lead to them, below the models' root."""
    extra: list[str]
    """The objects next to them."""
    units: dict[str, dict[str, str]]
    """Of what hashes again: unit -> systemd's properties."""
    stamp: float | None
    """When the timer has last gone off."""

    def unit_moment(self, unit: str, name: str) -> float:
        """A moment of a unit's, seconds since the epoch, as `systemctl --timestamp=unix` writes it; 0 for never.

        Timers' next moments are written as days all the same.
        """
        word = self.units.get(unit, {}).get(name, "")
        if said := re.fullmatch(r"@([0-9]{1,15})", word):
            return float(said[1])
        try:
            day = datetime.strptime(word.partition(" ")[2], "%Y-%m-%d %H:%M:%S UTC")
        except ValueError:
            return 0.0
        return day.replace(tzinfo=timezone.utc).timestamp()


def _asks(scene: SurveyScope) -> object | None:
    rig = scene.rig
    if not loaded_weights(rig.instances):
        return None
    rows = [(recorded_file(rig.roots, one), one.size) for one in loaded_weights(rig.instances)]
    files = [{"path": r.absolute, "record": r.record, "sha256": r.sha256, "size": size} for r, size in rows]
    return {
        "root": rig.roots.models,
        "records": records_folder(rig.roots),
        "files": files,
        "deep": scene.deep,
        "few": FEW,
        "units": [TIMER, SERVICE],
    }


def _limit(scene: SurveyScope) -> float:
    # a link or copy of a hundred gigabytes touches them: all are read then
    return 60 + sum(one.size for one in loaded_weights(scene.rig.instances)) / SLOW


WEIGHTS: Section[WeightSurvey] = Section(
    "weights",
    WeightSurvey,
    _asks,
    _limit,
    blind="silent disk corruption in files whose inode, size and times are unchanged: --deep reads them",
    start_order=11,
)
