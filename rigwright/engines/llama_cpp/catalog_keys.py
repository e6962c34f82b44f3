"""The keys of llama.cpp engines and of their variants."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from rigwright.model.engine_schema import PatchedKeys, VariantKeys
from rigwright.problems import format_count
from rigwright.validated_types import CatalogName, CmakeOption, CmakeValue, Commit, Flag, FlagValue, Subtree, Tokens

# llama.cpp's KV cache types (llama-server --help, --cache-type-k)
KvType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]

Share = Annotated[int, Field(ge=0, le=1000, strict=True)]

# ggml/cmake/common.cmake refuses all others in GGML_CUDA_FA_QUANTS
CUDA_KV_TYPES = ("f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1")
# Options of llama-server (its --help) that an instance's command line sets, that would fetch something that no lock
# knows or show a secret, that the readiness request could not pass, that would give a client a shell, or that print
# something and end. Their other spellings are in the version's help:
# rigwright.engines.llama_cpp.option_table.find_flag_problems.
MANAGED_FLAGS = frozenset(
    (
        *("model", "model-url", "hf-repo", "hf-file", "alias", "host", "port", "ctx-size", "parallel"),
        *("kv-unified-per-slot", "n-gpu-layers", "gpu-layers", "fit", "split-mode", "tensor-split"),
        *("cache-type-k", "cache-type-v", "flash-attn", "api-key", "api-key-file"),
        *("mmproj", "mmproj-url", "mmproj-auto", "spec-draft-hf", "hf-repo-draft", "spec-draft-model"),
        *("ssl-key-file", "ssl-cert-file", "api-prefix", "hf-token", "docker-repo", "models-dir", "models-preset"),
        *("embedding", "rerank"),
        *("tools", "tools-runtime", "agent", "ui-mcp-proxy", "webui-mcp-proxy"),
        *("mcp-servers-config", "mcp-servers-json"),
        *("help", "version", "cache-list", "completion-bash", "list-devices"),
    )
)
# llama.cpp's src/llama-cparams.h (LLAMA_MAX_SEQ)
MOST_SEQUENCES = 256
# llama.cpp's src/llama-context.cpp pads a sequence's context to a multiple of this
CONTEXT_STEP = 256
MANAGED_CMAKE_OPTIONS = frozenset(
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


class LlamaEngine(PatchedKeys):
    """A compiled llama.cpp."""

    needs_toolkit = True

    kind: Literal["llama.cpp"] = Field(description="Kind.")
    source: CatalogName = Field(description="The input, or locked artefact, to compile.")
    subtree: Subtree = Field(default="", description="Folder inside the archive's top folder with CMakeLists.txt.")
    commit: Commit = Field(description="The llama.cpp commit of the source.")
    options: dict[CmakeOption, CmakeValue] = Field(
        default_factory=dict,
        description="CMake options, verbatim; those determined by cards and variants are refused.",
    )

    @field_validator("options")
    @classmethod
    def _refuse_managed_options(cls, options: dict[str, str]) -> dict[str, str]:
        if taken := sorted(MANAGED_CMAKE_OPTIONS & set(options)):
            raise ValueError(f"options other than {', '.join(taken)}: cards and variants determine these")
        return options


class LlamaVariant(VariantKeys):
    """A serving recipe for llama.cpp."""

    RENAMED: ClassVar[dict[str, str]] = {"slots": "parallel"}

    context: Tokens = Field(description="Tokens of KV cache, over all sequences: each gets context / parallel.")
    parallel: int = Field(
        default=1, ge=1, le=MOST_SEQUENCES, strict=True, description="Parallel sequences: requests served at once."
    )
    cache_type_k: KvType = Field(
        default="f16", description="KV cache type for keys; on cards only one with a CUDA kernel."
    )
    cache_type_v: KvType = Field(default="f16", description="KV cache type for values.")
    flash_attention: Literal["on", "off", "auto"] = Field(default="auto", description="Whether to use flash attention.")
    split_mode: Literal["none", "layer", "row", "tensor"] | None = Field(
        default=None,
        description="How to split the model across cards: by layers (llama-server's default), by rows, or by tensors; "
        "`none` uses only the first.",
    )
    shares: tuple[Share, ...] | None = Field(
        default=None, min_length=2, description="Proportion of the model on each card, in card order."
    )
    memory_lock: bool = Field(default=False, strict=True, description="Keep the weights in RAM, never in swap.")
    thinking: Literal["on", "off", "auto"] | None = Field(
        default=None,
        description="Whether the model reasons by default; without it the server decides.",
    )
    flags: dict[Flag, FlagValue] = Field(
        default_factory=dict,
        description="Further llama-server options: name without dashes = value, or true for a switch.",
    )

    @property
    def capacity(self) -> tuple[int, int]:
        """Parallel sequences, and the tokens that each can have."""
        return self.parallel, self.context_per_sequence

    @property
    def context_per_sequence(self) -> int:
        """Tokens of KV cache that one request can have: the sequence's share, rounded up as llama-server does.

        The server gives no more than the model was trained for. With the flag kv-unified one may have it all.
        """
        whole = -(-self.context // CONTEXT_STEP) * CONTEXT_STEP
        if "kv-unified" in self.flags:
            return whole
        return -(-(whole // self.parallel) // CONTEXT_STEP) * CONTEXT_STEP

    @model_validator(mode="after")
    def _check_card_shares(self) -> LlamaVariant:
        if self.split_mode and self.cards < 2:
            raise ValueError(f"no split_mode: the variant uses {format_count(self.cards, 'card')}")
        if self.shares and len(self.shares) != self.cards:
            raise ValueError(f"{format_count(self.cards, 'share')}, one per card, not {len(self.shares)}")
        if self.shares and not any(self.shares):
            raise ValueError("shares with at least one above 0")
        return self

    @model_validator(mode="after")
    def _check_kv_kernels(self) -> LlamaVariant:
        for name in ("cache_type_k", "cache_type_v"):
            if self.cards and getattr(self, name) not in CUDA_KV_TYPES:
                raise ValueError(f"a {name} with a CUDA kernel: {', '.join(CUDA_KV_TYPES)}")
        return self
