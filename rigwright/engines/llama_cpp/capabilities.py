"""Capabilities of llama.cpp: API features of a variant and names of metrics."""

from __future__ import annotations

from typing import cast

from rigwright.engines.capabilities import Ability
from rigwright.engines.llama_cpp.catalog_keys import LlamaVariant
from rigwright.engines.llama_cpp.model_files import OPTIONS
from rigwright.engines.metrics import MetricNames
from rigwright.model.instance import Instance


def declared_abilities(instance: Instance) -> frozenset[Ability]:
    """Of an instance, by its keys, flags, model and purpose.

    Only the GGUF file tells whether its template knows tools: a model for agents has to call them.
    """
    variant = cast("LlamaVariant", instance.variant)
    flags, parts = variant.flags, {part.option for part in instance.parts}
    found: dict[Ability, object] = {
        "tools": variant.purpose and "agents" in variant.purpose.workloads,
        "thinking": variant.thinking in ("on", "auto") or flags.get("reasoning-format") not in (None, "none"),
        "drafts": OPTIONS["draft"] in parts or flags.get("spec-type") not in (None, "none"),
        "schema": True,
        "images": OPTIONS["mmproj"] in parts,
    }
    if variant.thinking == "off":
        found["thinking"] = False
    return frozenset(name for name, value in found.items() if value)


# Of the KV cache it says nothing. Calls of llama_decode() are counted without those of a draft, and tokens once their
# request has ended.
METRIC_NAMES = MetricNames(
    progress=("llamacpp:n_decode_total", "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total"),
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
    prompt_tokens=("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
    tokens="llamacpp:tokens_predicted_total",
    drafts="llamacpp:spec_decode_num_drafts_total",
    draft_tokens="llamacpp:spec_decode_num_draft_tokens_total",
    accepted="llamacpp:spec_decode_num_accepted_tokens_total",
)
