"""Known problems of instances of vLLM, and their memory on cards."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import cast

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rigwright.engines import memory_fit
from rigwright.engines.known_issue_rule import KnownIssue, PlacedInstance
from rigwright.engines.memory_fit import MemoryNeed
from rigwright.engines.vllm.catalog_keys import VllmVariant
from rigwright.engines.vllm.model_files import DRAFT, MODEL, find_checkpoint
from rigwright.model.catalog_schema import MissingModelFile
from rigwright.weights.checkpoint import Checkpoint

# The patch by which prefix caching and MTP agree.
PREFIX_CACHE_PATCH = "mamba-prefix-cache-mtp"
# Tokens of one prompt that one card of SMALL_CARD MiB has run out of memory with, and less.
CLIFF, SMALL_CARD = 50_000, 24 << 10
# FlashInfer's prefill kernels reserve placeholders of 16 bytes beside the 64 KiB of shared memory that a block has on
# TURING (k_sf_smem in include/flashinfer/attention/prefill.cuh of each version's wheel).
TURING, PADDED = "7.5", SpecifierSet(">=0.6.10,<0.6.16")
# The FlashInfer that a vLLM requires, of images: their packages are in no lock.
REQUIRED = {"0.22.0": "0.6.11.post2", "0.23.0": "0.6.12"}
# Versions of vLLM whose FlashInfer backend begins with compute capability 8.0.
ABOVE_TURING = SpecifierSet(">=0.24")
# Options that put a part of the model elsewhere, or make another of it.
VLLM_UNSIZED = frozenset(
    (
        *("cpu-offload-gb", "offload-config", "hf-overrides", "load-format"),
        *("enable-expert-parallel", "kv-cache-memory-bytes"),
    )
)
# vLLM's own share of a card (0.21.0, vllm/config/cache.py).
SHARE = 0.92


def _vllm_variant(one: PlacedInstance) -> VllmVariant:
    return cast("VllmVariant", one.instance.variant)


def _checkpoint(one: PlacedInstance, option: str = MODEL) -> Checkpoint | None:
    try:
        return find_checkpoint(one.instance.parts, option)
    except MissingModelFile:
        return None


def _method(one: PlacedInstance) -> str:
    return str((_vllm_variant(one).speculative_config or {}).get("method", ""))


def _stale_state(one: PlacedInstance) -> str:
    model = _checkpoint(one)
    if not (
        _method(one).endswith("mtp") and "enable-prefix-caching" in _vllm_variant(one).flags and model and model.hybrid
    ):
        return ""
    if PREFIX_CACHE_PATCH in one.patches:
        return ""
    return (
        "prefix caching with MTP silently gives wrong answers on models with linear attention: use the patch "
        f"{PREFIX_CACHE_PATCH}, or disable one of the two"
    )


def _prompt_cliff(one: PlacedInstance) -> str:
    model, length = _checkpoint(one), _vllm_variant(one).max_model_len
    small = len(one.cards) == 1 and one.cards[0].vram_mib <= SMALL_CARD
    if not (small and model and model.hybrid and isinstance(length, int) and length > CLIFF):
        return ""
    return (
        f"prompts longer than {CLIFF} tokens have run out of memory on one such card, regardless of "
        "max_model_len: use two cards, or llama.cpp"
    )


def _eager(one: PlacedInstance) -> str:
    if not (one.cards and _vllm_variant(one).flags.get("enforce-eager")):
        return ""
    return "enforce-eager switches CUDA graphs and compilation off: one model fell to 5 tokens a second with it"


def _version(one: PlacedInstance, distribution: str) -> str:
    """The locked version of a package that the instance runs with, or "" if no lock has it."""
    return next((row.version for row in one.instance.artefacts if canonicalize_name(row.name) == distribution), "")


def _vllm_version(one: PlacedInstance) -> str:
    return str(getattr(one.instance.engine, "version", "")) or _version(one, "vllm")


def _is_in(version: str, versions: SpecifierSet) -> bool:
    with suppress(InvalidVersion):
        return Version(version) in versions
    return False


def _has_flashinfer(one: PlacedInstance) -> bool:
    """Whether vLLM may choose FlashInfer for attention on a card of Turing."""
    backend = str(_vllm_variant(one).flags.get("attention-backend", "FLASHINFER")).upper()
    return backend == "FLASHINFER" and any(card.capability == TURING for card in one.cards)


def _padded_attention(one: PlacedInstance) -> str:
    version = _version(one, "flashinfer-python") or REQUIRED.get(_vllm_version(one), "")
    if not _has_flashinfer(one) or _is_in(_vllm_version(one), ABOVE_TURING) or not _is_in(version, PADDED):
        return ""
    return (
        f"FlashInfer {version} fails at the first prompt on compute capability {TURING} (invalid argument): use 0.6.9 "
        "or older, or 0.6.16 or newer; vLLM 0.21.0 has 0.6.8.post1"
    )


def _no_flashinfer(one: PlacedInstance) -> str:
    version = _vllm_version(one)
    if not _has_flashinfer(one) or not _is_in(version, ABOVE_TURING):
        return ""
    return (
        f"vLLM {version} has no FlashInfer for compute capability {TURING}: attention is Triton's there, which refuses "
        "a kv_cache_dtype of eight bits; vLLM 0.21.0 has it"
    )


def estimate_memory(one: PlacedInstance) -> MemoryNeed | None:
    """The memory of an instance on its cards; None where that is not known."""
    variant, model = _vllm_variant(one), _checkpoint(one)
    if model is None or VLLM_UNSIZED & variant.flags.keys() or (variant.quantization and not model.quantization):
        return None
    # of what is stored in four bytes a number, half would be loaded
    if model.dtype == "float32" and variant.dtype not in ("float32", "float"):
        return None
    draft = _checkpoint(one, DRAFT)
    number = _kv_number_bytes(variant.kv_cache_dtype or "auto")
    length = variant.max_model_len
    known = isinstance(length, int) and number is not None
    return MemoryNeed(
        weights=(model.size + (draft.size if draft else 0)) * variant.data_parallel_size,
        key="max_model_len",
        tokens=length * variant.data_parallel_size if isinstance(length, int) else 0,
        requests=variant.data_parallel_size,
        cache=model.cache if known else None,
        key_bytes=number or Fraction(0),
        value_bytes=number or Fraction(0),
        share=variant.gpu_memory_utilization or SHARE,
        takes_share="kv-cache-memory-bytes" not in variant.flags,
    )


def _kv_number_bytes(kind: str) -> Fraction | None:
    """Of one number in a KV cache of a type; None of those that are not so simple."""
    if kind in ("auto", "bfloat16", "float16"):
        return Fraction(2)
    return Fraction(1) if kind in ("fp8", "fp8_e4m3", "fp8_e5m2") else None


RULES = (
    KnownIssue(_stale_state, "https://github.com/vllm-project/vllm/issues/43559"),
    KnownIssue(_prompt_cliff, "club-3090, docs/CLIFFS.md"),
    KnownIssue(_eager, "a write-up of one RTX 5090, vLLM 0.17 and 0.18"),
    KnownIssue(_padded_attention, "https://github.com/flashinfer-ai/flashinfer/issues/3528"),
    KnownIssue(_no_flashinfer, "https://github.com/vllm-project/vllm/issues/47549"),
    *memory_fit.memory_issues(estimate_memory),
)
