"""What is known to go wrong with instances of vLLM, and what they keep on cards."""

from __future__ import annotations

from fractions import Fraction
from typing import cast

from rigwright.declaration.models import Missing
from rigwright.engines import fit
from rigwright.engines.caution import Placed, Rule
from rigwright.engines.fit import Memory
from rigwright.engines.vllm.keys import Variant
from rigwright.engines.vllm.model import DRAFT, MODEL, of
from rigwright.weights.checkpoint import Checkpoint

# The patch by which prefix caching and MTP agree.
MENDED = "mamba-prefix-cache-mtp"
# Tokens of one prompt that one card of SMALL_CARD MiB has run out of memory with, and less.
CLIFF, SMALL_CARD = 50_000, 24 << 10
# Options that put a part of the model elsewhere, or make another of it.
ELSEWHERE = frozenset(
    (
        *("cpu-offload-gb", "offload-config", "hf-overrides", "load-format"),
        *("enable-expert-parallel", "kv-cache-memory-bytes"),
    )
)
# vLLM's own share of a card (0.21.0, vllm/config/cache.py).
SHARE = 0.92


def _variant(one: Placed) -> Variant:
    return cast(Variant, one.instance.variant)


def _checkpoint(one: Placed, option: str = MODEL) -> Checkpoint | None:
    try:
        return of(one.instance.parts, option)
    except Missing:
        return None


def _method(one: Placed) -> str:
    return str((_variant(one).speculative_config or {}).get("method", ""))


def _stale_state(one: Placed) -> str:
    model = _checkpoint(one)
    if not (_method(one).endswith("mtp") and "enable-prefix-caching" in _variant(one).flags and model and model.hybrid):
        return ""
    if MENDED in one.patches:
        return ""
    return (
        "prefix caching with MTP silently gives wrong answers on models with linear attention: use the patch "
        f"{MENDED}, or disable one of the two"
    )


def _cliff(one: Placed) -> str:
    model, length = _checkpoint(one), _variant(one).max_model_len
    small = len(one.cards) == 1 and one.cards[0].vram_mib <= SMALL_CARD
    if not (small and model and model.hybrid and isinstance(length, int) and length > CLIFF):
        return ""
    return (
        f"prompts longer than {CLIFF} tokens have run out of memory on one such card, regardless of "
        "max_model_len: use two cards, or llama.cpp"
    )


def memory(one: Placed) -> Memory | None:
    """What an instance keeps on its cards; None where that is not known."""
    variant, model = _variant(one), _checkpoint(one)
    if model is None or ELSEWHERE & variant.flags.keys() or (variant.quantization and not model.quantization):
        return None
    # of what is stored in four bytes a number, half would be loaded
    if model.dtype == "float32" and variant.dtype not in ("float32", "float"):
        return None
    draft = _checkpoint(one, DRAFT)
    number = _bytes(variant.kv_cache_dtype or "auto")
    length = variant.max_model_len
    known = isinstance(length, int) and number is not None
    return Memory(
        weights=(model.size + (draft.size if draft else 0)) * variant.data_parallel_size,
        key="max_model_len",
        tokens=length * variant.data_parallel_size if isinstance(length, int) else 0,
        requests=variant.data_parallel_size,
        cache=model.cache if known else None,
        key_bytes=number or Fraction(0),
        value_bytes=number or Fraction(0),
        share=variant.gpu_memory_utilization or SHARE,
    )


def _bytes(kind: str) -> Fraction | None:
    """Of one number in a KV cache of a type; None of those that are not so simple."""
    if kind in ("auto", "bfloat16", "float16"):
        return Fraction(2)
    return Fraction(1) if kind in ("fp8", "fp8_e4m3", "fp8_e5m2") else None


RULES = (
    Rule(_stale_state, "https://github.com/vllm-project/vllm/issues/43559"),
    Rule(_cliff, "club-3090, docs/CLIFFS.md"),
    *fit.rules(memory),
)
