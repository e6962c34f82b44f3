"""The history of a box's check of itself, as the box has written it: a line for each change."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, ValidationError

from rigwright.host import script_output
from rigwright.host.script_output import free_text


class SelfCheckChange(BaseModel):
    """One thing that began to fail, or holds again."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    check: str
    severity: str
    part: str
    text: str


class SelfCheckEvent(BaseModel):
    """One line: a run after which something was different."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    time: float
    """Seconds since 1970, by the box's clock."""
    outcome: str
    """`ok`, `failing` or `skipped`."""
    reason: str
    """Why it was skipped; empty where it was not."""
    generation: int | None
    failed: tuple[SelfCheckChange, ...]
    recovered: tuple[SelfCheckChange, ...]


SCHEMA: script_output.Schema = {"run": (free_text,)}
"""What templates/look/self_check.sh.j2 reports."""


def parse_history(output: Iterable[str]) -> tuple[SelfCheckEvent, ...]:
    """Read a history; a line that a full disk has cut off is left out.

    Raises:
        ValueError: the host reports something else.
    """
    events = []
    for line in script_output.parse_output(output, SCHEMA).all("run"):
        try:
            events.append(SelfCheckEvent.model_validate_json(line))
        except ValidationError:
            continue
    return tuple(events)
