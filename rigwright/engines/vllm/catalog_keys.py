"""The keys of vLLM engines and of their variants: vLLM's own names, with underscores."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from rigwright.model.engine_schema import EngineKeys, VariantKeys
from rigwright.problems import FrozenModel
from rigwright.validated_types import (
    CatalogName,
    Flag,
    MemorySize,
    Name,
    OptionValue,
    Requests,
    Table,
    Text,
    Tokens,
    Variable,
)

# Keys that are written as an option each where they are set; `flags` may not name them.
PLAIN = (
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_model_len", "max_num_seqs"),
    *("max_num_batched_tokens", "dtype", "quantization", "kv_cache_dtype", "gpu_memory_utilization"),
    *("reasoning_parser", "tool_call_parser"),
)

# Cards, or processes on the CPU: a host has no more.
Parts = Annotated[int, Field(ge=1, le=64, strict=True)]


class VllmEngine(EngineKeys):
    """vLLM in an environment."""

    kind: Literal["vllm"] = Field(description="Kind.")
    env: CatalogName = Field(description="An entry of the table `envs`, with vLLM in it.")

    @property
    def environment(self) -> str:
        """The one that it names."""
        return self.env


class Warmup(FrozenModel):
    """Requests that are made before an instance is ready: the first ones compile."""

    requests: int = Field(ge=1, le=1000, strict=True, description="Number of requests, up to 64 at once.")
    max_tokens: Tokens = Field(default=16, description="Tokens of each answer.")


class VllmVariant(VariantKeys):
    """A serving recipe for vLLM. vLLM's own default applies to every key that is not set."""

    tensor_parallel_size: Parts | None = Field(
        default=None,
        description="Tensor parallel size: cards per layer; default: all that the other two leave. On the "
        "CPU: processes.",
    )
    pipeline_parallel_size: Parts = Field(default=1, description="Pipeline parallel size.")
    data_parallel_size: Parts = Field(default=1, description="Data parallel size.")
    max_model_len: Tokens | Literal["auto"] | None = Field(
        default=None,
        description="Context length of a request and its answer, tokens; `auto` is what fits on the cards.",
    )
    max_num_seqs: Requests | None = Field(default=None, description="Parallel sequences.")
    max_num_batched_tokens: Tokens | None = Field(default=None, description="Tokens per scheduler step.")
    dtype: Text | None = Field(default=None, description="Data type of weights and activations.")
    quantization: Text | None = Field(
        default=None, description="Quantisation of the weights, if their own config is wrong."
    )
    kv_cache_dtype: Text | None = Field(default=None, description="Data type of the KV cache.")
    gpu_memory_utilization: float | None = Field(
        default=None, gt=0, le=1, strict=True, description="Share of each card's memory to use."
    )
    reasoning_parser: Text | None = Field(default=None, description="Reasoning parser.")
    tool_call_parser: Text | None = Field(default=None, description="Tool call parser; enables automatic tool choice.")
    thinking: Literal["on", "off"] | None = Field(
        default=None, description="Whether the model reasons by default; without it its template decides."
    )
    trust_remote_code: bool = Field(
        default=False,
        strict=True,
        description="Whether to run the Python files in the model's folder: all of them are hashed.",
    )
    speculative_config: Table | None = Field(
        default=None, description="Speculative decoding; with a model's `draft`, that model is used."
    )
    compilation_config: Table | None = Field(default=None, description="Compilation settings.")
    shm_size: MemorySize = Field(default="16G", description="Size limit of /dev/shm.")
    warmup: Warmup | None = Field(default=None, description="Warm-up requests before it is ready.")
    mode: Name | None = Field(
        default=None,
        description="The mode in which a plugin of its environment starts it, if that has several.",
    )
    environment: dict[Variable, Text] = Field(default_factory=dict, description="Environment variables.")
    flags: dict[Flag, OptionValue] = Field(
        default_factory=dict,
        description="Further options of `vllm serve`: name without dashes = value, or true for a switch.",
    )

    @property
    def capacity(self) -> tuple[int, int] | None:
        """Requests at once, and the tokens that each can have, where both are set."""
        if self.max_num_seqs is None or not isinstance(self.max_model_len, int):
            return None
        return self.max_num_seqs, self.max_model_len

    @property
    def options(self) -> dict[str, Any]:
        """Its keys that are options by themselves, as vLLM spells them."""
        found = {key: getattr(self, key) for key in (*PLAIN, "speculative_config", "compilation_config")}
        found["tensor_parallel_size"] = self.tensor_parallel
        if self.trust_remote_code:
            found["trust_remote_code"] = True
        return {key.replace("_", "-"): value for key, value in found.items() if value is not None}

    @property
    def tensor_parallel(self) -> int:
        """Processes that share each layer."""
        others = self.pipeline_parallel_size * self.data_parallel_size
        return self.tensor_parallel_size or max(1, self.cards // others)

    @model_validator(mode="after")
    def _check_card_count(self) -> VllmVariant:
        sizes = (self.tensor_parallel, self.pipeline_parallel_size, self.data_parallel_size)
        product = sizes[0] * sizes[1] * sizes[2]
        if self.cards and product != self.cards:
            said = " x ".join(map(str, sizes))
            raise ValueError(f"tensor, pipeline and data parallel sizes with the product {self.cards}, not {said}")
        return self

    @field_validator("shm_size")
    @classmethod
    def _check_shm_size(cls, value: str) -> str:
        if value.endswith("%"):
            raise ValueError("an amount, such as 16G")
        return value
