"""One instance of vLLM as it is judged: its options, its model and its cards."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from rigwright.engines.vllm.option_snapshot import OptionSetting, VllmSnapshot
from rigwright.engines.vllm.option_validation import parse_count

_DTYPES = {"half": "float16", "float": "float32"}


class CheckpointFacts(Protocol):
    """The facts that are read of a checkpoint (rigwright.weights.checkpoint.Checkpoint)."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Its config.json."""

    @property
    def architectures(self) -> tuple[str, ...]:
        """The classes that can load it."""

    @property
    def heads(self) -> int:
        """Of attention; here and below 0 and empty where the file has no value."""

    @property
    def kv_heads(self) -> int:
        """Of keys and values."""

    @property
    def layers(self) -> int:
        """How many."""

    @property
    def vocabulary(self) -> int:
        """Tokens."""

    @property
    def dtype(self) -> str:
        """The type of weights that are not quantised."""

    @property
    def quantization(self) -> str:
        """How the others were quantised."""

    @property
    def max_positions(self) -> int:
        """The longest text that it was made for, tokens."""

    @property
    def experts(self) -> int:
        """0 where it has none."""


@dataclass(frozen=True)
class LaunchSpec:
    """The launch that the rules judge."""

    snapshot: VllmSnapshot
    options: Mapping[str, OptionSetting]
    """All of a command line's: name without dashes -> value, each of which `find_option_problems` takes."""
    model: CheckpointFacts
    capabilities: Collection[str]
    """Of the cards that it runs on; none for the CPU."""
    cards: int
    environment: Mapping[str, str]
    draft: CheckpointFacts | None
    """The one that speculative_config names."""

    def has(self, name: str) -> bool | None:
        """Whether a switch is on; None where the request has no value."""
        return True if name in self.options else False if f"no-{name}" in self.options else None

    def number(self, name: str) -> float | None:
        """The number that an option has; None where it has none."""
        value = self.options.get(name)
        if value is None or isinstance(value, list | dict) or str(value).lower() in ("auto", "none", ""):
            return None
        return parse_count(str(value))

    def size(self, name: str) -> int:
        """The same of one that is 1 by itself."""
        found = self.number(name)
        return 1 if found is None else int(found)

    def text(self, name: str) -> str:
        """The text that an option has; empty where it has none."""
        value = self.options.get(name, "")
        return "" if value == "None" else str(value)

    def table(self, name: str) -> Mapping[str, Any]:
        """The JSON object that an option has; empty where it has none."""
        value = self.options.get(name, {})
        found: object = value
        if isinstance(value, str) and value.strip().startswith("{"):
            with suppress(ValueError):  # the option's own validation refuses it
                found = json.loads(value)
        return found if isinstance(found, dict) else {}

    @property
    def model_type(self) -> str:
        """As the config says it, of its language model where it has several parts."""
        inner = next(
            (one for key in ("text_config", "llm_config") if isinstance(one := self.model.config.get(key), dict)), {}
        )
        return str(inner.get("model_type") or self.model.config.get("model_type") or "")

    @property
    def model_types(self) -> set[str]:
        """The same, and what the config says of the whole."""
        return {self.model_type, str(self.model.config.get("model_type") or "")}

    @property
    def least_capability(self) -> str:
        """The least compute capability; empty without cards."""
        return min(self.capabilities, key=capability_number, default="")

    @property
    def dtype(self) -> str:
        """The type of its computations (_get_and_verify_dtype in vllm/config/model.py)."""
        said = self.text("dtype") or "auto"
        if said != "auto":
            return _DTYPES.get(said, said)
        half = [] if self.model_types & self.types_without_float16 else ["float16"]
        taken = [
            *(["bfloat16"] if not self.capabilities or capability_number(self.least_capability) >= 80 else []),
            *half,
            "float32",
        ]
        own = self.model.dtype or "float32"
        return own if own in taken and own != "float32" else taken[0]

    @property
    def types_without_float16(self) -> set[str]:
        """The types of models that do not compute in float16."""
        return {*self.snapshot.registered.get("no-float16", ())}


def capability_number(capability: str) -> int:
    """A compute capability as vLLM writes it, 75 for 7.5."""
    major, _, minor = capability.partition(".")
    return 10 * int(major) + int(minor)
