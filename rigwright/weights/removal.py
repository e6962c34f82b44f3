"""What became of a model's files that were to be removed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rigwright.host import channel
from rigwright.host.channel import free_text
from rigwright.host.deploy_lock_state import parse_holder

SCHEMA: channel.Schema = {
    "held": (parse_holder,),
    "busy": (free_text,),
    "kept": (free_text,),
    # of files that somebody may have named as they like
    "removed": (free_text,),
    "stays": (free_text,),
}
"""What templates/removal/model.sh.j2 tells."""


@dataclass(frozen=True)
class RemovalOutcome:
    """What became of them."""

    refusal: str
    """Why nothing was done; empty where something was."""
    gone: tuple[str, ...]
    """Paths of files that were removed."""
    stays: tuple[str, ...]
    """Paths of files that were not, because they are somebody's."""


def parse_removal(output: Iterable[str]) -> RemovalOutcome:
    """Read it.

    Raises:
        ValueError: the host told something else, or was cut off.
    """
    told = channel.parse_output(output, SCHEMA)
    refusals = [str(one) for one in told.all("held")]
    refusals += [f"{unit} is running" for unit in told.all("busy")]
    refusals += [f"{file} refers to it" for file in told.all("kept")]
    return RemovalOutcome("; ".join(refusals), tuple(told.all("removed")), tuple(told.all("stays")))
