"""The history of a box's check of itself, as the box has written it: a line for each change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rigwright.host import script_output
from rigwright.host.script_output import tolerant
from rigwright.problems import printable

Text = Annotated[str, Field(max_length=400), AfterValidator(printable)]
"""A box's own text, without control sequences of terminals."""
LATEST = 4e9  # seconds since 1970; a later moment is no moment of a box
MANY = 1000  # changes of one run


class SelfCheckChange(BaseModel):
    """One thing that began to fail, or holds again."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    check: Text
    severity: Text
    part: Text
    text: Text


class SelfCheckEvent(BaseModel):
    """One line: a run after which something was different."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    time: float = Field(ge=0, le=LATEST)
    """Seconds since 1970, by the box's clock."""
    outcome: Literal["ok", "failing", "skipped"]
    reason: Text
    """Why it was skipped; empty where it was not."""
    generation: int | None
    failed: tuple[SelfCheckChange, ...] = Field(max_length=MANY)
    recovered: tuple[SelfCheckChange, ...] = Field(max_length=MANY)
    waived: tuple[SelfCheckChange, ...] = Field(default=(), max_length=MANY)
    """Failures that a waiver of the inventory covers from this run on."""


def parse_event(line: str) -> SelfCheckEvent:
    """The type of a line.

    Raises:
        ValueError: it is invalid.
    """
    try:
        return SelfCheckEvent.model_validate_json(line)
    except ValidationError:
        raise ValueError("a line of a history") from None


SCHEMA: script_output.Schema = {"run": (tolerant(parse_event, None),)}
"""The output of templates/look/self_check.sh.j2. A line that a full disk has cut off does not count."""


def parse_history(output: Iterable[str]) -> tuple[SelfCheckEvent, ...]:
    """Read a history.

    Raises:
        ValueError: the host reports something else.
    """
    return tuple(one for one in script_output.parse_output(output, SCHEMA).all("run") if one)
