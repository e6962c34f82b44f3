"""Changes of a host as data: new changes, harmless ones, and the rows of drifts.

first.toml, second.toml and third.toml have 100 new changes each, written by reviewers without knowledge of the checks:

    ["a second account with uid 0"]
    do = "useradd ..."    # shell, as root
    undo = "userdel ..."  # shell that restores everything
    area = "accounts"
    reaches = "yes"       # whether it gives access, runs code as root, or changes or observes the served models

harmless.toml has changes that never fail:

    ["apt reads its lists"]
    do = "apt-get -q update"
    undo = "true"         # without it, the host returns to a snapshot
    expect = "explained"  # the strongest report that is correct: or "listed", or "changed"
    prepare = ""          # shell before the change; the operator accepts its result (default: nothing)
    recorded = ""         # the program that `do` imitates, where no throwaway host can run it (default: none)

In `do`, `undo` and `prepare` a line that is `reboot` or `deploy` and nothing else runs from outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from rigwright.toml import tomllib
from tests.hosts.drift_tables import BoxName, DriftRow, DriftTableRow

FOLDER = Path(__file__).parent
NEW_FILES = ("first", "second", "third")
HARMLESS_FILE = "harmless"
Expectation = Literal["explained", "listed", "changed"]


class NewChange(DriftTableRow):
    """A change that a check must report."""

    do: str = Field(min_length=1)
    undo: str = Field(min_length=1)
    area: str = Field(pattern="^[a-z]+$")
    reaches: Literal["yes", "no"]


class HarmlessChange(DriftTableRow):
    """A change that no check may fail for."""

    do: str = Field(min_length=1)
    expect: Expectation
    undo: str = ""
    prepare: str = ""
    recorded: str = ""

    @model_validator(mode="after")
    def _restored_after_preparation(self) -> HarmlessChange:
        if self.prepare and self.undo:
            raise ValueError("undo: must not be there with `prepare`, after which the host returns to a snapshot")
        return self


@dataclass(frozen=True)
class ChangeCase:
    """A change of any of these files, as the runner needs it."""

    name: str
    """`FILE: words`."""
    do: str
    undo: str = ""
    """Empty: the host returns to a snapshot."""
    area: str = ""
    reaches: bool = True
    """Whether a list without an alarm is too little."""
    expect: Expectation | None = None
    """Of harmless changes: the strongest report that is correct."""
    prepare: str = ""
    box: BoxName = "serving"
    red: tuple[str, ...] = ()
    """Of drifts: the checks that fail for it."""
    earlier: bool = False
    """Of drifts: whether it needs a generation before the current one."""


def load_changes(*paths: Path) -> dict[str, ChangeCase]:
    """All changes of these files, by name.

    Raises:
        ValueError: a row is invalid: names file, row, key and value.
        OSError: a file cannot be read.
    """
    return {
        change.name: change
        for path in paths
        for words, table in tomllib.loads(path.read_text()).items()
        for change in [parse_change(path.stem, words, table)]
    }


def parse_change(stem: str, words: str, table: object) -> ChangeCase:
    """The change that a table of a file describes.

    Raises:
        ValueError: the table is invalid.
    """
    name = f"{stem}: {words}"
    keys = table if isinstance(table, dict) else {}
    try:
        if "expect" in keys:
            row = HarmlessChange.model_validate(table)
            return ChangeCase(name, row.do, row.undo, HARMLESS_FILE, expect=row.expect, prepare=row.prepare)
        if "red" in keys:
            drift = DriftRow.model_validate(table)
            return ChangeCase(name, drift.do, area=stem, box=drift.box, red=tuple(drift.red), earlier=drift.earlier)
        new = NewChange.model_validate(table)
        return ChangeCase(name, new.do, new.undo, new.area, new.reaches == "yes")
    except ValueError as error:
        raise ValueError(f"{stem}.toml: [{words!r}]: {error}") from None


def new_change_paths() -> list[Path]:
    """The files of new changes."""
    return [FOLDER / f"{name}.toml" for name in NEW_FILES]


def harmless_path() -> Path:
    """The file of harmless changes."""
    return FOLDER / f"{HARMLESS_FILE}.toml"
