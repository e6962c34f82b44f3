"""Known problems of instances of llama-server, and their memory on cards.

Files are llama.cpp's at 0c1e570.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import cast

from rigwright.engines import memory_fit
from rigwright.engines.known_issue_rule import KnownIssue, PlacedInstance
from rigwright.engines.llama_buffers import MICRO_BATCH, WorkShape, llama_windowed_cells
from rigwright.engines.llama_cpp.catalog_keys import LlamaVariant
from rigwright.engines.llama_cpp.model_files import OPTIONS
from rigwright.engines.memory_fit import MemoryNeed
from rigwright.supply.artefact import KvCacheSize

# Bytes of one number in a KV cache of each type (ggml.h: blocks of 32 numbers, with what scales them).
BYTES = {
    **{"f32": Fraction(4), "f16": Fraction(2), "bf16": Fraction(2), "q8_0": Fraction(34, 32)},
    **{"q4_0": Fraction(18, 32), "q4_1": Fraction(20, 32), "iq4_nl": Fraction(18, 32)},
    **{"q5_0": Fraction(22, 32), "q5_1": Fraction(24, 32)},
}
DRAFT_TYPES = {
    "k": ("spec-draft-type-k", "cache-type-k-draft"),
    "v": ("spec-draft-type-v", "cache-type-v-draft"),
}
MOST_TOKENS = 1 << 24  # of any context
WHOLE_NUMBERS = ("f32", "f16", "bf16")
# Options that leave a part of the model in RAM, of a size that is unknown beforehand.
LLAMA_UNSIZED = frozenset({"cpu-moe", "n-cpu-moe", "override-tensor", "device", "spec-draft-ngl", "n-gpu-layers-draft"})
# llama-arch.cpp, llm_arch_supports_sm_tensor, by the names that files have
NO_TENSOR_SPLIT = frozenset(
    (
        *("grok", "mpt", "plamo2", "minicpm3", "gemma3n", "mamba", "mamba2", "jamba", "falcon-h1", "olmo2", "olmoe"),
        *("deepseek2", "deepseek32", "hy_v4", "dots3note", "glm-dsa", "bitnet", "t5", "nemotron_h", "nemotron_h_moe"),
        *("granitehybrid", "minimax-01", "minimax-m2", "minimax-m3", "mistral4", "kimi-linear", "bailingmoe3"),
        *("kimi-k3", "glm5-next", "qwen3tts", "qwen4exp"),
    )
)


def _llama_variant(one: PlacedInstance) -> LlamaVariant:
    return cast("LlamaVariant", one.instance.variant)


def _quantised_values(one: PlacedInstance) -> str:
    variant = _llama_variant(one)
    if variant.cache_type_v in WHOLE_NUMBERS or variant.flash_attention != "off":
        return ""
    return f'cache_type_v {variant.cache_type_v} needs flash attention: flash_attention = "on"'


def _bfloat16(one: PlacedInstance) -> str:
    variant = _llama_variant(one)
    oldest = min((tuple(map(int, card.capability.split("."))) for card in one.cards), default=(8, 0))
    if "bf16" not in (variant.cache_type_k, variant.cache_type_v) or oldest >= (8, 0):
        return ""
    return f"a bf16 KV cache is slow on compute capability {'.'.join(map(str, oldest))}: f16 has the same size"


def _tensor_split(one: PlacedInstance) -> str:
    variant = _llama_variant(one)
    if variant.split_mode != "tensor":
        return ""
    if variant.flash_attention == "off":
        return 'split_mode tensor needs flash attention: flash_attention = "on"'
    headers = (part.files[0].header for part in one.instance.parts if part.option == OPTIONS["file"])
    unable = [found.architecture for found in headers if found and found.architecture in NO_TENSOR_SPLIT]
    return (
        f'split_mode tensor: llama.cpp does not support it for {unable[0]}: use split_mode = "layer"' if unable else ""
    )


def _split_and_in_ram(one: PlacedInstance) -> str:
    variant = _llama_variant(one)
    both = sorted(variant.flags.keys() & {"cpu-moe", "n-cpu-moe", "override-tensor"})
    if variant.split_mode not in ("row", "tensor") or not both:
        return ""
    return f'split_mode {variant.split_mode} and flags.{both[0]} are mutually exclusive: use split_mode = "layer"'


def estimate_memory(one: PlacedInstance) -> MemoryNeed | None:
    """The memory of an instance on its cards; None where the lock has no headers of its model."""
    variant, flags = _llama_variant(one), _llama_variant(one).flags
    if LLAMA_UNSIZED & flags.keys():
        return None
    loaded = [
        part
        for part in one.instance.parts
        if part.option != OPTIONS["chat_template"]
        and not (part.option == OPTIONS["mmproj"] and "no-mmproj-offload" in flags)
    ]
    sizes = [file.size - file.header.off_card for part in loaded for file in part.files if file.header]
    headers = [file.header for part in loaded for file in part.files if file.header]
    own = one.instance.parts[0].files[0].header
    if own is None or len(sizes) != sum(len(part.files) for part in loaded):
        return None
    sequences = 1 if "kv-unified" in flags else variant.parallel
    batch = _batch(flags)
    kept, drafts = _add_draft(one, own.cache)
    if kept and kept.window:
        window = variant.context if "swa-full" in flags else llama_windowed_cells(MOST_TOKENS, kept.window, batch)
        kept = kept.model_copy(update={"window": window})
    return MemoryNeed(
        weights=sum(sizes),
        key="context",
        tokens=variant.context_per_sequence * sequences,
        requests=sequences,
        cache=None if "no-kv-offload" in flags else kept,
        key_bytes=BYTES[variant.cache_type_k],
        value_bytes=BYTES[variant.cache_type_v],
        work=WorkShape(
            own.work.width,
            own.work.feed_forward,
            own.work.heads,
            batch,
            flash=variant.flash_attention != "off",
            windowed=bool(kept and kept.window),
        )
        if own.work
        else None,
        repacked=sum(one.work.repacked for one in headers if one.work),
        parts=_divide(one),
        has_unknown=not drafts,
    )


def _draft_type(flags: Mapping[str, str | bool], letter: str) -> str:
    return str(next((flags[name] for name in DRAFT_TYPES[letter] if name in flags), "f16"))


def _add_draft(one: PlacedInstance, own: KvCacheSize | None) -> tuple[KvCacheSize | None, bool]:
    """A model's KV cache with that of its draft, in numbers of the model's types, and whether that is all."""
    variant, flags = _llama_variant(one), _llama_variant(one).flags
    drafts = [part.files[0].header for part in one.instance.parts if part.option == OPTIONS["draft"]]
    if not drafts:
        # layers for drafting that are in the model itself have a KV cache that its header does not state
        return own, not any(word in str(flags.get("spec-type", "")) for word in ("mtp", "draft", "eagle"))
    found = drafts[0].cache if drafts[0] else None
    types = (_draft_type(flags, "k"), _draft_type(flags, "v"))
    if own is None or found is None or any(name not in BYTES for name in types):
        return own, False
    key, value = BYTES[types[0]] / BYTES[variant.cache_type_k], BYTES[types[1]] / BYTES[variant.cache_type_v]
    added = {
        "keys": own.keys + ceil(found.keys * key),
        "values": own.values + ceil(found.values * value),
        "window": max(own.window, found.window),
        "window_keys": own.window_keys + ceil(found.window_keys * key),
        "window_values": own.window_values + ceil(found.window_values * value),
    }
    return own.model_copy(update=added), True


def _divide(one: PlacedInstance) -> tuple[float, ...] | None:
    """Proportion of the model on each card: as declared, else as memory; None by rows, whose KV cache is on one."""
    variant, number = _llama_variant(one), len(one.cards)
    if number < 2:
        return ()
    if variant.split_mode == "none":
        return None if "main-gpu" in variant.flags else (1.0, *(0.0,) * (number - 1))
    if variant.split_mode == "row" or (variant.shares and len(variant.shares) != number):
        return None
    return tuple(map(float, variant.shares or (card.vram_mib for card in one.cards)))


def _batch(flags: Mapping[str, str | bool]) -> int:
    """Tokens that are computed at once."""
    given = flags.get("ubatch-size", MICRO_BATCH)
    text = str(given)
    return int(text) if text.isdecimal() and 0 < int(text) <= MOST_TOKENS else MICRO_BATCH


RULES = (
    KnownIssue(_quantised_values, "llama.cpp, src/llama-context.cpp", refused=True),
    KnownIssue(_tensor_split, "llama.cpp, src/llama-arch.cpp and src/llama-context.cpp", refused=True),
    KnownIssue(_split_and_in_ram, "club-3090, scripts/preflight.sh", refused=True),
    KnownIssue(_bfloat16, "NVIDIA, CUDA C++ Programming Guide: bfloat16 in tensor cores from 8.0 on"),
    *memory_fit.memory_issues(estimate_memory),
)
