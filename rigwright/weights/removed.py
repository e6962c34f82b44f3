"""What became of a model's files that were to be removed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rigwright.host import channel
from rigwright.host.channel import said
from rigwright.host.deploy_lock import holder

SCHEMA: channel.Schema = {
    "held": (holder,),
    "busy": (said,),
    "kept": (said,),
    # of files that somebody may have named as they like
    "removed": (said,),
    "stays": (said,),
}
"""What templates/removal/model.sh.j2 tells."""


@dataclass(frozen=True)
class Removed:
    """What became of them."""

    refusal: str
    """Why nothing was done; empty where something was."""
    gone: tuple[str, ...]
    """Paths of files that were removed."""
    stays: tuple[str, ...]
    """Paths of files that were not, because they are somebody's."""


def parse(output: Iterable[str]) -> Removed:
    """Read it.

    Raises:
        ValueError: the host told something else, or was cut off.
    """
    told = channel.read(output, SCHEMA)
    refusals = [str(one) for one in told.all("held")]
    refusals += [f"{unit} is running" for unit in told.all("busy")]
    refusals += [f"{file} refers to it" for file in told.all("kept")]
    return Removed("; ".join(refusals), tuple(told.all("removed")), tuple(told.all("stays")))
