"""What an inventory declares of an instance, as it is written."""

from __future__ import annotations

from pydantic import Field

from rigwright.addresses import Port
from rigwright.problems import InventoryModel
from rigwright.types import CardIndex, MemorySize, Tasks, VariantName


class InstanceEntry(InventoryModel):
    """One instance, as declared."""

    variant: VariantName = Field(description="Catalogue variant to serve.")
    port: Port = Field(description="TCP port of its API on the loopback interface.")
    cards: tuple[CardIndex, ...] = Field(
        default=(),
        description="GPU indexes, as many as the variant needs; each card serves one instance.",
    )
    api_key_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file on your machine, relative to the inventory, with the API key; default: "
        "generated on the host.",
    )
    memory_max: MemorySize = Field(
        default="90%",
        description="Host memory limit, including weights in the page cache: an amount or a share of the total; "
        "processes that exceed it are killed.",
    )
    tasks_max: Tasks = Field(default=4096, description="Limit of processes and threads.")
