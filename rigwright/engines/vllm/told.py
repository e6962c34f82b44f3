"""What vLLM says of itself: in the lines of its log, and by what it counts. Files are those of vLLM 0.21.0."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rigwright.engines.log import OF_CUDA, Begun, Cause
from rigwright.engines.metrics import Names

MARKS = (" KV cache size: ", " attention backend", "Model loading took ", "init engine (profile")
# Each is a part of a message of vLLM's, torch's or the driver's.
CAUSES = (
    Cause(
        "is less than desired GPU memory utilization",
        "something else holds memory of the card: look at nvidia-smi, or lower gpu_memory_utilization",
        check="N04",
    ),
    Cause(
        "KV cache is needed, which is larger than the available KV cache memory",
        "max_model_len is more than fits beside the weights: lower it, or raise gpu_memory_utilization",
    ),
    Cause("No available memory for the cache blocks", "the weights leave no room: raise gpu_memory_utilization"),
    Cause("CUDA out of memory", "lower gpu_memory_utilization, max_num_seqs or max_num_batched_tokens"),
    Cause("Failed to infer device type", "no driver answers: look at nvidia-smi", check="N02"),
    *OF_CUDA,
    Cause("Could not find nvcc", "FlashInfer has no compiler: deploy again, it brings the toolkit", check="K01"),
    Cause("No available shared memory broadcast block found", "a worker hangs: too little memory for the weights?"),
    Cause("vLLM is using nccl", 'the cards do not reach each other: set NCCL_P2P_DISABLE to "1"', last=True),
    Cause(
        "an illegal memory access was encountered",
        'a kernel went wrong: compilation_config = {cudagraph_mode = "PIECEWISE"} is known to help',
    ),
    # whatever it guesses ahead is thrown away; 1 is what comes without
    Cause("Mean acceptance length: 1.00", "what guesses ahead is not loaded, or its patch is not", check="V04"),
    Cause("unrecognized arguments:", "this vLLM has no such option: its version is another than was judged"),
    Cause("Concurrent Partial Prefill is not supported", "leave max_num_partial_prefills and its like out"),
    Cause("Bfloat16 is only supported on GPUs", 'cards before compute capability 8.0 have none: dtype = "half"'),
    Cause("is not compatible with the current PyTorch installation", "its torch has no machine code for these cards"),
    Cause("invalid literal for int() with base 10: 'GPU-", "this vLLM takes cards by their index, not by their UUID"),
    Cause("NCCL error: ", 'the cards do not reach each other: set NCCL_P2P_DISABLE to "1"'),
    Cause("Failed to find C compiler", "what compiles kernels at run time finds no gcc: deploy brings it"),
    Cause(
        "No such file or directory: 'ninja'", "its environment's programs are not on PATH: deploy writes the unit anew"
    ),
    Cause("Cannot find any model weights with", "files of the model are missing", check="W06"),
    Cause("Address already in use", "another program has its port: look at `ss -ltnp`"),
    Cause("Custom allreduce is disabled because", "cards exchange through NCCL in its place", harmless=True),
    Cause("Support for Transformers v4 is deprecated", "this version of vLLM still serves with it", harmless=True),
    Cause("Cannot use FA version 2", "cards before compute capability 8.0 have another backend", harmless=True),
    Cause("Unknown vLLM environment variable detected", "nothing of this version reads it", harmless=True),
)
# v1/metrics/loggers.py and v1/spec_decode/metrics.py
COUNTS = Names(
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


def begun(lines: Iterable[str]) -> Begun:
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
    return Begun(tokens[0] if tokens else None, ", ".join(sorted(backends)), load)
