"""What vLLM says of itself: in the lines of its log, and by what it counts. Files are those of vLLM 0.21.0."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rigwright.engines.log_causes import StartupFacts
from rigwright.engines.metrics import MetricNames

STARTUP_PATTERNS = (" KV cache size: ", " attention backend", "Model loading took ", "init engine (profile")
# v1/metrics/loggers.py and v1/spec_decode/metrics.py
METRIC_NAMES = MetricNames(
    progress=("vllm:iteration_tokens_total_count",),
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_used="vllm:kv_cache_usage_perc",
    prompt_tokens=("vllm:prompt_tokens_total",),
    tokens="vllm:generation_tokens_total",
    prefix_hits="vllm:prefix_cache_hits_total",
    prefix_queries="vllm:prefix_cache_queries_total",
    preemptions="vllm:num_preemptions_total",
    drafts="vllm:spec_decode_num_drafts_total",
    draft_tokens="vllm:spec_decode_num_draft_tokens_total",
    accepted="vllm:spec_decode_num_accepted_tokens_total",
)
# v1/core/kv_cache_utils.py
TOKENS = re.compile(r".*\bKV cache size: ([0-9]{1,3}(?:,[0-9]{3}){0,4}) tokens\b.*")
# platforms/cuda.py; with another head size a model can have two
BACKEND = re.compile(r".*\bUsing ([A-Z][A-Z0-9_]{1,40}) attention backend\b.*")
# v1/worker/gpu_model_runner.py and v1/engine/core.py
SECONDS = re.compile(
    r".*\b(?:Model loading took [0-9.]{1,12} GiB(?: memory)? and|took) ([0-9]{1,6}(\.[0-9]{1,9})?) s.*"
)


def parse_startup(lines: Iterable[str]) -> StartupFacts:
    """What is said; of several workers the first counts, but of backends all do."""
    tokens: list[int] = []
    backends: set[str] = set()
    seconds: dict[str, float] = {}
    for line in lines:
        if found := TOKENS.fullmatch(line):
            tokens.append(int(found[1].replace(",", "")))
        elif found := BACKEND.fullmatch(line):
            backends.add(found[1])
        elif found := SECONDS.fullmatch(line):
            seconds.setdefault("load" if "Model loading" in line else "init", float(found[1]))
    load = round(sum(seconds.values()), 1) if seconds else None
    return StartupFacts(tokens[0] if tokens else None, ", ".join(sorted(backends)), load)
