"""The catalogue: cards, models, engines, variants and inputs that inventories name. Data only, in TOML."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from rigwright import toml
from rigwright.nvidia.driver.tables import tables
from rigwright.problems import Frozen, Invalid, Problem, unknown
from rigwright.supply.inputs import Input
from rigwright.types import (
    Capability,
    CatalogName,
    CmakeOption,
    CmakeValue,
    Commit,
    Flag,
    FlagValue,
    ModelFile,
    PciId,
    Positive,
    Subtree,
    Text,
    VariantName,
)

# What the name of a driver's input, and of its group in the lock, begins with; the system follows.
DRIVER = "driver-"
# llama.cpp's KV cache types (llama-server --help, --cache-type-k)
KvType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]

# ggml/cmake/common.cmake refuses all others in GGML_CUDA_FA_QUANTS
CUDA_KV_TYPES = ("f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1")
# Of llama-server's options (its --help): what an instance's command line sets, what would fetch something that no
# lock knows or show a secret, what the readiness request could not pass, what would give a client a shell, and what
# prints something and ends. Their other spellings are in the version's help: rigwright.engines.llama_cpp.flags.judge.
OWN_FLAGS = frozenset(
    (
        *("model", "model-url", "hf-repo", "hf-file", "alias", "host", "port", "ctx-size", "parallel"),
        *("kv-unified-per-slot", "n-gpu-layers", "gpu-layers"),
        *("cache-type-k", "cache-type-v", "flash-attn", "api-key", "api-key-file"),
        *("mmproj", "mmproj-url", "mmproj-auto", "spec-draft-hf", "hf-repo-draft", "spec-draft-model"),
        *("ssl-key-file", "ssl-cert-file", "api-prefix", "hf-token", "docker-repo", "models-dir", "models-preset"),
        *("embedding", "rerank"),
        *("tools", "tools-runtime", "agent", "ui-mcp-proxy", "webui-mcp-proxy"),
        *("mcp-servers-config", "mcp-servers-json"),
        *("help", "version", "cache-list", "completion-bash", "list-devices"),
    )
)
# llama.cpp's src/llama-context.cpp pads a slot's context to a multiple of this
CONTEXT_STEP = 256
OWN_OPTIONS = frozenset(
    (
        *("GGML_CUDA", "CMAKE_CUDA_ARCHITECTURES", "CMAKE_CUDA_COMPILER", "CUDAToolkit_ROOT", "CMAKE_BUILD_RPATH"),
        *(
            "GGML_CUDA_FA_QUANTS",
            "GGML_CUDA_FA_ALL_QUANTS",
            "GGML_CUDA_NCCL",
            "LLAMA_BUILD_COMMIT",
            "LLAMA_BUILD_NUMBER",
        ),
    )
)


def cuda_architecture(capability: str) -> str:
    """A compute capability as CMAKE_CUDA_ARCHITECTURES has it: machine code for it alone, no PTX.

    12.x gets the `a` suffix: llama.cpp needs it for FP4 tensor cores and rewrites a plain 120 to it.
    """
    major, _, minor = capability.partition(".")
    return f"{major}{minor}{'a' if major == '12' else ''}-real"


class Card(Frozen):
    """A GPU model."""

    name: Text = Field(description="As nvidia-smi prints it.")
    pci_ids: tuple[PciId, ...] = Field(min_length=1, description="vendor:device of every board sold under the name.")
    capability: Capability = Field(description="CUDA compute capability.")
    vram_mib: Positive = Field(description="Memory, MiB.")
    module: Literal["either", "proprietary"] = Field(
        default="either",
        description="Which kernel modules it works with, beside what its generation allows; `proprietary` is a board "
        "that is known to fail with open ones.",
    )
    power_w: tuple[Positive, Positive] | None = Field(
        default=None,
        description="The lowest and highest power limit that its boards take, W, the widest where they differ, if "
        "known: what an inventory asks beyond them is refused.",
    )

    @property
    def cuda_architecture(self) -> str:
        """The value for CMAKE_CUDA_ARCHITECTURES."""
        return cuda_architecture(self.capability)


class Model(Frozen):
    """Weights."""

    file: ModelFile = Field(
        description="What is loaded. Of an input with many files: the one at PATH, with all its parts; without PATH "
        "its only GGUF that is no projector."
    )
    mmproj: ModelFile | None = Field(default=None, description="Its vision projector; without one it sees no images.")
    draft: ModelFile | None = Field(
        default=None, description="A small model that guesses its next tokens; `flags.spec-type` says how."
    )
    chat_template: ModelFile | None = Field(
        default=None, description="A Jinja template in place of the one in its own file."
    )


class Engine(Frozen):
    """What serves: so far, a compiled llama.cpp."""

    kind: Literal["llama.cpp"] = Field(description="What it is.")
    source: CatalogName = Field(description="The input, or the lock's artefact, it is compiled from.")
    subtree: Subtree = Field(default="", description="Folder inside the archive's top folder with CMakeLists.txt.")
    commit: Commit = Field(description="The llama.cpp commit the source is.")
    options: dict[CmakeOption, CmakeValue] = Field(
        default_factory=dict,
        description="CMake options, as they are; those that cards and variants decide are refused.",
    )

    @field_validator("options")
    @classmethod
    def _not_ours(cls, options: dict[str, str]) -> dict[str, str]:
        if taken := sorted(OWN_OPTIONS & set(options)):
            raise ValueError(f"other options than {', '.join(taken)}: the rig's cards and variants decide those")
        return options


class Variant(Frozen):
    """A serving recipe: model, engine, cards and flags."""

    engine: CatalogName = Field(description="An entry of the table `engines`.")
    model: CatalogName = Field(description="An entry of the table `models`.")
    cards: int = Field(
        default=0, ge=0, le=16, strict=True, description="Cards one instance takes; 0 serves on the CPU."
    )
    context: Positive = Field(description="Tokens of KV cache, over all slots: each slot gets context / slots.")
    slots: Positive = Field(default=1, description="Requests served at once.")
    cache_type_k: KvType = Field(
        default="f16", description="Type of the KV cache's keys; on cards only one with a CUDA kernel."
    )
    cache_type_v: KvType = Field(default="f16", description="The same of its values.")
    flash_attention: Literal["on", "off", "auto"] = Field(
        default="auto", description="Whether attention is computed in tiles, without its whole matrix in memory."
    )
    memory_lock: bool = Field(default=False, strict=True, description="Keep the weights in RAM, never in swap.")
    thinking: Literal["on", "off", "auto"] | None = Field(
        default=None,
        description="Whether the model thinks where a request does not say; without it the server decides.",
    )
    flags: dict[Flag, FlagValue] = Field(
        default_factory=dict,
        description="More llama-server options: name without dashes = value, or true for a bare one.",
    )
    ready_timeout: Positive = Field(default=600, description="Seconds from start to the first completion.")

    @property
    def context_per_slot(self) -> int:
        """Tokens of KV cache that one request can have: the slot's share, rounded up as llama-server does.

        The server gives no more than the model was trained for. With the flag kv-unified one slot may have it all.
        """
        whole = -(-self.context // CONTEXT_STEP) * CONTEXT_STEP
        if "kv-unified" in self.flags:
            return whole
        return -(-(whole // self.slots) // CONTEXT_STEP) * CONTEXT_STEP

    @model_validator(mode="after")
    def _kernels_exist(self) -> Variant:
        for name in ("cache_type_k", "cache_type_v"):
            if self.cards and getattr(self, name) not in CUDA_KV_TYPES:
                raise ValueError(f"a {name} with a CUDA kernel: {', '.join(CUDA_KV_TYPES)}")
        return self

    @field_validator("flags")
    @classmethod
    def _not_ours(cls, flags: dict[str, str | bool]) -> dict[str, str | bool]:
        if taken := sorted(OWN_FLAGS & set(flags)):
            raise ValueError(f"other options than {', '.join(taken)}: other keys set those")
        return flags


class CatalogFile(Frozen):
    """What one catalogue file may hold."""

    cards: dict[CatalogName, Card] = Field(default_factory=dict)
    models: dict[CatalogName, Model] = Field(default_factory=dict)
    engines: dict[CatalogName, Engine] = Field(default_factory=dict)
    variants: dict[VariantName, Variant] = Field(default_factory=dict)
    inputs: dict[CatalogName, Input] = Field(default_factory=dict)


def _misnamed(path: Path, inputs: dict[str, Input]) -> list[Problem]:
    """Refuse drivers that are not called after a system that has one, and all else that is."""
    if not any(one.kind == "deb" or name.startswith(DRIVER) for name, one in inputs.items()):
        return []
    try:
        known = tables(path.parent.parent)
    except Invalid as error:
        return error.problems
    names = {f"{DRIVER}{system}" for offer in known.offers for system in offer.systems}
    found = []
    for name, one in inputs.items():
        if one.kind == "deb" and name not in names:
            found.append(Problem(str(path), f"inputs.{name}", unknown("driver", name, names)))
        elif one.kind != "deb" and name in names:
            found.append(Problem(str(path), f"inputs.{name}.kind", f"{one.kind} is refused: must be deb, a driver"))
    return found


class Catalog(CatalogFile):
    """All files of several folders, a later folder's entries over an earlier one's."""

    snapshots: dict[str, Path] = Field(default_factory=dict, description="The files in flags/, by name.")

    @classmethod
    def load(cls, folders: list[Path]) -> Catalog:
        """Read every *.toml of the folders, and find every snapshot of options in their flags/.

        Raises:
            Invalid: a mistake in a file, or one name twice in one folder.
        """
        merged: dict[str, dict[str, object]] = {table: {} for table in CatalogFile.model_fields}
        problems: list[Problem] = []
        snapshots: dict[str, Path] = {}
        for folder in folders:
            snapshots |= {path.name: path for path in folder.glob("flags/*.txt")}
            here: dict[str, dict[str, object]] = {table: {} for table in merged}
            for path in sorted(folder.glob("*.toml")):
                try:
                    read = toml.parse(path, CatalogFile)
                except Invalid as error:
                    problems += error.problems
                    continue
                for table, entries in here.items():
                    added = getattr(read, table)
                    problems += [
                        Problem(str(path), f"{table}.{name}", "is there twice") for name in added if name in entries
                    ]
                    entries.update(added)
                problems += _misnamed(path, read.inputs)
            for table, entries in here.items():
                merged[table] |= entries
        if problems:
            raise Invalid(problems)
        return cls.model_construct(None, **merged, snapshots=snapshots)
