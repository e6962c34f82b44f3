"""An engine's own report of its memory at a start, or of the lack of it, from lines of its log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MIB, GIB = 1 << 20, 1 << 30
MOST_DEVICES = 64


@dataclass(frozen=True)
class ReportedMemory:
    """Figures of a start; 0 and empty where the engine reports none."""

    model: int = 0
    """Bytes of weights, over all devices."""
    cache: int = 0
    """Bytes of the KV cache."""
    work: int = 0
    """Bytes of computation: buffers, peak activations or graphs."""
    sequences: int = 0
    sequence_tokens: int = 0
    """Tokens of one sequence."""
    kv_tokens: int = 0
    """Tokens over all sequences."""
    devices: tuple[str, ...] = ()
    """Names of the devices that it has buffers on."""


# llama-model.cpp, llama-kv-cache.cpp, llama-context.cpp; shown with --verbosity 4.
_BUFFER = re.compile(
    r"[0-9.]{0,20} ?[A-Z]? ?(?:load_tensors|llama_kv_cache|llama_context|sched_reserve|llama_memory_recurrent): {1,40}"
    r"(\S{1,40}) {1,2}(model|KV|RS|output|compute) buffer size = {1,16}([0-9]{1,9}\.[0-9]{2}) MiB"
)
_SLOTS = re.compile(r".{0,120}\bn_slots = ([0-9]{1,4}), n_ctx_slot = ([0-9]{1,9})\b.{0,80}")
# v1/worker/gpu_worker.py, gpu_model_runner.py, v1/core/kv_cache_utils.py
_LOADED = re.compile(r".{0,200}\bModel loading took ([0-9]{1,5}(?:\.[0-9]{1,4})?) GiB\b.{0,200}")
_AVAILABLE = re.compile(r".{0,200}\bAvailable KV cache memory: ([0-9]{1,5}(?:\.[0-9]{1,4})?) GiB\b.{0,200}")
_TOKENS = re.compile(r".{0,200}\bKV cache size: ([0-9]{1,3}(?:,[0-9]{3}){0,4}) tokens\b.{0,200}")
_GRAPHS = re.compile(
    r".{0,200}\bGraph capturing finished in \S{1,12} secs?, took ([0-9]{1,5}\.[0-9]{1,4}) GiB\b.{0,80}"
)
# Texts by which a line of a failed start is kept, and whole lines that report a lack of memory.
FAILURE_PATTERNS = (
    "cudaMalloc failed: out of memory",
    "failed to allocate ",
    "unable to allocate ",
    "insufficient memory (attempted",
    "CUDA error: out of memory",
    "CUDA out of memory",
    "No available memory for the cache blocks",
    "larger than the available KV cache memory",
    "less than desired GPU memory utilization",
    "std::bad_alloc",
)
_FAILURES = (
    # ggml-cuda.cu, ggml-alloc.c, ggml.c, llama-model.cpp, llama-kv-cache.cpp, llama-context.cpp
    (
        re.compile(
            r".{0,120}(?:cudaMalloc failed: out of memory|\bunable to allocate [A-Za-z0-9_]{1,40} buffer"
            r"|\bfailed to allocate [A-Za-z0-9_]{1,40} buffer of size [0-9]{1,16}"
            r"|\bfailed to allocate (?:compute (?:pp )?buffers|buffer for (?:kv|rs) cache)"
            r"|\binsufficient memory \(attempted to allocate {1,6}[0-9]{1,9}\.[0-9]{2} MB\))"
        ),
        "the engine did not get a buffer",
    ),
    (
        re.compile(r".{0,120}(?:CUDA error: out of memory|(?:torch\.)?OutOfMemoryError: CUDA out of memory\..{0,200})"),
        "CUDA had no memory left",
    ),
    # vllm: v1/core/kv_cache_utils.py, v1/worker/gpu_worker.py
    (
        re.compile(
            r".{0,120}ValueError: (?:No available memory for the cache blocks\..{0,180}"
            r"|To serve at least one request with the models?'s max seq len .{0,120}larger than the available KV cache "
            r"memory .{0,120}|Free memory on device .{0,120}less than desired GPU memory utilization .{0,120})"
        ),
        "vLLM had too little memory for its KV cache",
    ),
    (re.compile(r".{0,120}std::bad_alloc"), "the engine had no RAM left"),
)


def describe_memory_failure(lines: Iterable[str]) -> str:
    """The lack of memory that lines of a failed start report, in words of this table; empty without one."""
    texts = (text for line in lines for pattern, text in _FAILURES if pattern.fullmatch(line))
    return next(texts, "")


def parse_llama_memory(lines: Iterable[str]) -> ReportedMemory:
    """llama.cpp's buffers of all devices together, and its slots."""
    sums: dict[str, int] = {}
    devices: dict[str, None] = {}
    slots = tokens = 0
    for line in lines:
        if found := _BUFFER.fullmatch(line):
            kind = {"RS": "KV", "output": "compute"}.get(found[2], found[2])
            sums[kind] = sums.get(kind, 0) + round(float(found[3]) * MIB)
            if len(devices) < MOST_DEVICES:
                devices[found[1]] = None
        elif found := _SLOTS.fullmatch(line):
            slots, tokens = int(found[1]), int(found[2])
    return ReportedMemory(
        sums.get("model", 0), sums.get("KV", 0), sums.get("compute", 0), slots, tokens, slots * tokens, tuple(devices)
    )


def parse_vllm_memory(lines: Iterable[str]) -> ReportedMemory:
    """vLLM's figures; of several workers the largest, for each has a card of its own."""
    largest: dict[str, float] = {}
    for line in lines:
        for name, pattern in (("model", _LOADED), ("cache", _AVAILABLE), ("tokens", _TOKENS), ("work", _GRAPHS)):
            if found := pattern.fullmatch(line):
                largest[name] = max(largest.get(name, 0.0), float(found[1].replace(",", "")))
    return ReportedMemory(
        model=round(largest.get("model", 0.0) * GIB),
        cache=round(largest.get("cache", 0.0) * GIB),
        work=round(largest.get("work", 0.0) * GIB),
        kv_tokens=int(largest.get("tokens", 0.0)),
    )
