"""What an inventory declares of an instance, as it is written."""

from __future__ import annotations

from pydantic import Field

from rigwright.addresses import Port
from rigwright.problems import Frozen
from rigwright.types import CardIndex, MemorySize, Tasks, VariantName


class InstanceEntry(Frozen):
    """One instance, as declared."""

    variant: VariantName = Field(description="The catalogue's recipe that it serves.")
    port: Port = Field(description="The TCP port on the loopback interface through which its API is reached.")
    cards: tuple[CardIndex, ...] = Field(
        default=(),
        description="Indices into the rig's cards, as many as the variant takes; no card is in two instances.",
    )
    api_key_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file on the operator's machine, from the inventory's folder, that holds the API key; "
        "without it the host makes one.",
    )
    memory_max: MemorySize = Field(
        default="90%",
        description="Host memory limit, including weights in the page cache, as an amount or a share of the total; "
        "beyond it its processes are killed.",
    )
    tasks_max: Tasks = Field(default=4096, description="Limit of processes and threads.")
