"""Keys of instances in an inventory, and those of all instances on demand."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rigwright.address_types import Port
from rigwright.model.secret_sources import SecretEntry
from rigwright.problems import InventoryModel
from rigwright.validated_types import (
    CardIndex,
    MemorySize,
    Tasks,
    VariantReference,
)

_OF_VARIANT = (
    "belongs in a variant of the catalogue, as context, model, cards or one of its flags: choose one with `rigwright "
    'show variants`, or declare your own as [variants."ENGINE/NAME"] in catalog/*.toml next to the inventory'
)

StartMode = Literal["boot", "on-demand"]
IdleSeconds = Annotated[int, Field(ge=0, le=604_800, strict=True)]
WakePriority = Annotated[int, Field(ge=-100, le=100, strict=True)]


class InstanceEntry(InventoryModel):
    """One instance, as declared."""

    EXAMPLE: ClassVar[str] = '{"variant": "llamacpp/65k", "cards": [0], "port": 8020}'
    FOREIGN: ClassVar[dict[str, str]] = {
        **dict.fromkeys(
            (
                *("context", "contextsize", "contextlength", "ctx", "ctxsize", "nctx", "maxmodellen", "model", "quant"),
                *("ngpulayers", "gpulayers", "ngl", "tensorparallel", "tensorparallelsize", "tp", "parallel", "slots"),
                *("flags", "options", "args", "extraargs", "command", "engine", "environment", "env", "temperature"),
                *("gpumemoryutilization", "maxnumseqs", "dtype", "quantization", "kvcachedtype", "batchsize", "hfrepo"),
            ),
            _OF_VARIANT,
        ),
        **dict.fromkeys(("gpu", "gpus", "gpuids", "device", "devices", "cudavisibledevices", "card"), "cards"),
        **dict.fromkeys(("memory", "memorylimit", "ram", "mem"), "memory_max"),
        **dict.fromkeys(
            ("host", "listen", "address", "bind", "tls", "ssl", "public"),
            'an instance listens only on the loopback interface: a "gateway" of the rig serves the network',
        ),
        "name": "the name of an instance is the key of its table",
        **dict.fromkeys(("apikey", "key", "token"), "api_key_file"),
        **dict.fromkeys(("ttl", "idletimeout", "keepalive", "unloadafter"), "idle"),
        **dict.fromkeys(("ondemand", "lazy", "autostart"), "start"),
        **dict.fromkeys(("pinned", "persistent", "preload"), "keep_warm"),
    }

    variant: VariantReference = Field(description="Catalogue variant to serve.")
    port: Port = Field(description="TCP port of its API on the loopback interface.")
    cards: tuple[CardIndex, ...] = Field(
        default=(),
        examples=["[0]: a GPU index for each card that the variant needs"],
        description="GPU indexes, as many as the variant needs; each card serves one instance, or several on demand.",
    )
    api_key_file: SecretEntry | None = Field(
        default=None,
        description="A file on your machine, relative to the inventory, with the API key, or a command that prints it; "
        "default: generated on the host.",
    )
    memory_max: MemorySize = Field(
        default="90%",
        examples=['"48G" or "80%"'],
        description="Host memory limit, including weights in the page cache: an amount or a share of the total; "
        "processes that exceed it are killed.",
    )
    tasks_max: Tasks = Field(default=4096, description="Limit of processes and threads.")
    start: StartMode = Field(
        default="boot",
        description="`boot` keeps it loaded; `on-demand` loads it with the first request, and other instances may "
        "declare its cards. Needs a gateway.",
    )
    idle: IdleSeconds = Field(
        default=0,
        examples=["900"],
        description="Seconds without requests after which an instance on demand is stopped; 0: only if another one "
        "needs its memory.",
    )
    priority: WakePriority = Field(
        default=0, description="Among instances on demand, those with a lower priority are stopped first."
    )
    keep_warm: bool = Field(
        default=False,
        strict=True,
        description="Whether an instance on demand is loaded at boot and never stopped for another one.",
    )


ResidenceSeconds = Annotated[int, Field(ge=0, le=3600, strict=True)]


class OnDemandEntry(InventoryModel):
    """Settings for all instances on demand of a rig."""

    EXAMPLE: ClassVar[str] = '{"host_memory": "64G"}'
    FOREIGN: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("memory", "ram", "budget", "memorymax"), "host_memory"),
        **dict.fromkeys(("residence", "minimumresidence", "ttl", "keepalive"), "residence"),
        **dict.fromkeys(("idle", "priority", "keepwarm"), "a key of each instance, not of all"),
    }

    host_memory: MemorySize | None = Field(
        default=None,
        description="Host memory for all instances on demand without cards; by default all that is available.",
        examples=['"48G" or "80%"'],
    )
    residence: ResidenceSeconds = Field(
        default=15,
        description="Seconds for which a loaded instance serves at least before another one may take its memory.",
    )
