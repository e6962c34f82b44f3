"""Changes to a host, the checks that must notice them, the actions of a deploy, and the cure: as data.

tests/hosts/drifts/AREA.toml has them, a table each, named after the change:

    ["other limits of a process"]
    box = "serving"       # a host of tests/hosts/drift_boxes.py
    do = "prlimit ..."    # shell, as root on it
    red = ["S16"]         # exactly the checks that turn red: failures, and classes of changes that are not accepted;
                          # further classes of changes may turn red beside them
    deploy = "heals"      # or "refuses"; "names" it and fails; "leaves" it as it is, for it is not a deploy's
    may = []              # checks that may turn red, too, as the row says why (default)
    cure = ""             # shell: the repair where a deploy does none, and a red line is an instruction
    cleanup = ""          # shell: removes the rest of the drift, once a deploy has healed it (default: nothing)
    alone = true          # where it cannot be there together with others (default: false)
    earlier = true        # where it happens to a generation before the current one (default: false)

Where all red lines of a drift print commands, these are run as printed, and `cure` only after a failure: then it puts
the host right for the next drift.

In `do` and `cure` a line that is `reboot` or `deploy` and nothing else is that, done from outside.
harmless.toml has changes that no check may report: `box`, `do`, `undo`, and `changed`, the classes of changes that it
is reported in as an operator's own. elsewhere.toml lists the checks that no host here can turn red, and the tests that
show them red instead: `shown`.

By hand, against a throwaway host that is up: `python -m tests.hosts.drift_boxes INVENTORY [AREA] [-k WORDS]`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from checks.change_review.class_checks import CLASS_CHECKS
from checks.required_check_ids import OWNED
from rigwright.toml import tomllib

FOLDER = Path(__file__).with_name("drifts")
HARMLESS, ELSEWHERE = "harmless", "elsewhere"
TOGETHER = 12
"""Drifts of one batch, at most: of one that does not go as it should, each is looked at alone."""
Identifier = Annotated[str, Field(pattern=r"^[A-Z][0-9]{2}$")]
BoxName = Literal["serving", "cards", "containers", "watching"]


class DriftTableRow(BaseModel):
    """A table of a file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DriftRow(DriftTableRow):
    """A change to a host."""

    box: BoxName
    do: str
    red: list[Identifier] = Field(min_length=1)
    deploy: Literal["heals", "refuses", "names", "leaves"]
    may: list[Identifier] = []
    cure: str = ""
    cleanup: str = ""
    alone: bool = False
    earlier: bool = False

    @model_validator(mode="after")
    def _one_cure(self) -> DriftRow:
        if (self.deploy == "heals") == bool(self.cure):
            raise ValueError("what a deploy heals has no other cure, and what it does not heal has one")
        if len(set(self.red)) < len(self.red):
            raise ValueError("red: a check is named twice")
        if self.deploy == "names" and not {*self.red, *self.may} & OWNED:
            raise ValueError("deploy: names only what checks of a deploy's own find")
        return self

    @property
    def is_left(self) -> bool:
        """Whether it is still there after a deploy."""
        return self.deploy in ("names", "leaves")


class HarmlessRow(DriftTableRow):
    """A change to a host that no check reports."""

    box: BoxName
    do: str
    undo: str
    changed: list[Identifier] = []


class UndriftedCheckRow(DriftTableRow):
    """A check that no drift here turns red."""

    shown: str
    """The test that does, or why none can."""


def load_table(name: str, row: type[DriftTableRow]) -> dict[str, DriftTableRow]:
    """A file's tables.

    Raises:
        ValueError: one is not as it should be; says which, and what is wrong.
    """
    found: dict[str, DriftTableRow] = {}
    for title, table in tomllib.loads((FOLDER / f"{name}.toml").read_text()).items():
        try:
            found[title] = row.model_validate(table)
        except ValueError as error:
            raise ValueError(f"{name}.toml: [{title!r}]: {error}") from None
    return found


def area_names() -> list[str]:
    """The files of drifts."""
    return sorted({path.stem for path in FOLDER.glob("*.toml")} - {HARMLESS, ELSEWHERE})


def load_drifts(*wanted: str) -> dict[str, DriftRow]:
    """Change, with its area -> the drift; of some areas, or of all.

    Raises:
        ValueError: as `load`.
    """
    return {  # type: ignore[return-value]
        f"{area}: {title}": row for area in wanted or area_names() for title, row in load_table(area, DriftRow).items()
    }


def load_harmless() -> dict[str, HarmlessRow]:
    """Load the changes that no check may report."""
    return load_table(HARMLESS, HarmlessRow)  # type: ignore[return-value]


CHANGED_ONLY = frozenset(one.id for one in CLASS_CHECKS)
"""Checks that are changed, and never red."""


def load_undrifted_checks() -> dict[str, UndriftedCheckRow]:
    """Check -> what shows it red."""
    return load_table(ELSEWHERE, UndriftedCheckRow)  # type: ignore[return-value]


def make_batches(rows: dict[str, DriftRow]) -> list[dict[str, DriftRow]]:
    """Drifts that are there together: no two turn the same check red, and a deploy refuses one of them at most.

    The fullest first.
    """
    made: list[dict[str, DriftRow]] = []
    for name, row in rows.items():
        for batch in made:
            if len(batch) < TOGETHER and all(is_compatible(row, other) for other in batch.values()):
                batch[name] = row
                break
        else:
            made.append({name: row})
    return sorted(made, key=len, reverse=True)


def is_compatible(one: DriftRow, other: DriftRow) -> bool:
    """Whether two drifts can be there together.

    The repair of one by a deploy may restart a process that another has broken: those are looked at apart.
    """
    refused = one.deploy == other.deploy == "refuses"
    apart = one.is_left != other.is_left
    return not (one.alone or other.alone or refused or apart or set(one.red) & set(other.red))
