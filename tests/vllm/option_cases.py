"""Command lines for vLLM's engine and for rules.py, and where they differ, with reasons."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.vllm.sample_configs import CONFIGS

Options = Mapping[str, Any]


def _draft_options(**keys: Any) -> Options:
    return {"speculative-config": keys}


_NGRAM = {"method": "ngram", "num_speculative_tokens": 2}
OPTIONS: tuple[Options, ...] = (
    {},
    *({"dtype": one} for one in ("half", "bfloat16", "float32")),
    *({"tensor-parallel-size": one} for one in (0, 2, 3, 4, 5, 6, 8, 12)),
    *({f"{one}-parallel-size": 2} for one in ("pipeline", "data")),
    {"tensor-parallel-size": 2, "pipeline-parallel-size": 2},
    {"enable-expert-parallel": True},
    {"enable-expert-parallel": True, "enable-eplb": True},
    {"enable-expert-parallel": True, "enable-eplb": True, "tensor-parallel-size": 2},
    {"enable-eplb": True, "tensor-parallel-size": 2},
    {"decode-context-parallel-size": 2},
    {"decode-context-parallel-size": 2, "tensor-parallel-size": 2},
    {"decode-context-parallel-size": 3, "tensor-parallel-size": 12},
    {"decode-context-parallel-size": 2, "tensor-parallel-size": 12},
    {"dcp-comm-backend": "a2a"},
    {"numa-bind-nodes": [0]},
    {"numa-bind": True, "numa-bind-nodes": [0]},
    {"ray-workers-use-nsight": True},
    *({"quantization": one} for one in ("awq", "awq_marlin", "gptq", "gptq_marlin", "fp8", "experts_int8", "mxfp8")),
    *({"quantization": one} for one in ("bitsandbytes", "humming", "compressed-tensors", "moe_wna16", "nope")),
    {"quantization": "fbgemm_fp8"},
    {"quantization": "awq", "dtype": "half"},
    *({"max-model-len": one} for one in (2048, "4k", "8k", "16K", "auto", 0)),
    *({"max-num-seqs": 16, "max-num-batched-tokens": one} for one in (8, "8k")),
    *({"max-num-seqs": one} for one in (0, 1, 256, 9000)),
    {"no-enable-chunked-prefill": True},
    {"no-enable-chunked-prefill": True, "max-num-batched-tokens": 2048},
    {"no-enable-chunked-prefill": True, "max-num-batched-tokens": 2048, "max-model-len": 1024},
    {"max-num-partial-prefills": 2},
    {"max-long-partial-prefills": 2},
    *({"gpu-memory-utilization": one} for one in (0, 0.5, 1, 1.5)),
    _draft_options(method="mtp", num_speculative_tokens=2),
    _draft_options(method="mtp"),
    _draft_options(method="eagle3", num_speculative_tokens=2),
    _draft_options(method="suffix", num_speculative_tokens=2),
    _draft_options(method="nope", num_speculative_tokens=2),
    _draft_options(**_NGRAM),
    _draft_options(**{**_NGRAM, "num_speculative_tokens": 0}),
    _draft_options(**_NGRAM, prompt_lookup_min=4, prompt_lookup_max=2),
    _draft_options(**_NGRAM, tensor_parallel_size=1),
    _draft_options(**_NGRAM, rejection_sample_method="synthetic"),
    _draft_options(**_NGRAM, synthetic_acceptance_length=1.5),
    _draft_options(**_NGRAM, no_such_key=1),
    {**_draft_options(**_NGRAM), "async-scheduling": True},
    *({"kv-cache-dtype": one} for one in ("fp8", "fp8_e5m2", "nvfp4", "int8_per_token_head", "turboquant_k8v4")),
    *({"attention-backend": one} for one in ("auto", "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "NOPE")),
    *({"attention-backend": one, "kv-cache-dtype": "fp8"} for one in ("FLASH_ATTN", "FLASHINFER", "FLEX_ATTENTION")),
    {"attention-backend": "FLASHINFER", "attention-config": {"backend": "FLASHINFER"}},
    *({"attention-config": {"backend": one}} for one in ("FLASH_ATTN", "flash_attn", "TRITON_ATTN", "NOPE")),
    {"attention-config": {"backend": "FLASH_ATTN"}, "kv-cache-dtype": "fp8"},
    {"max-cudagraph-capture-size": 8, "compilation-config": {"max_cudagraph_capture_size": 8}},
    {"cudagraph-capture-sizes": [1, 2, 4]},
    {"compilation-config": {"cudagraph_mode": "PIECEWISE", "mode": 3}},
    {"enable-auto-tool-choice": True},
    {"enable-auto-tool-choice": True, "tool-call-parser": "hermes"},
    {"enable-log-outputs": True},
    {"enable-log-outputs": True, "enable-log-requests": True},
    {"enable-mamba-cache-stochastic-rounding": True},
    {"mamba-block-size": 64},
    *({"optimization-level": one} for one in (3, 7)),
    {"load-format": "nope"},
    # as guides have it: two RTX 2080 Ti, and 32 GB cards of Blackwell
    {
        **{"tensor-parallel-size": 2, "dtype": "half", "max-model-len": 4096, "max-num-seqs": 1},
        **{"max-num-batched-tokens": 8192, "kv-cache-dtype": "fp8", "disable-custom-all-reduce": True},
        **{"enable-prefix-caching": True, "trust-remote-code": True, "compilation-config": {"cudagraph_mode": "NONE"}},
    },
    {
        **{"tensor-parallel-size": 4, "max-model-len": "auto", "max-num-seqs": 8, "gpu-memory-utilization": 0.9},
        **{"enable-auto-tool-choice": True, "tool-call-parser": "qwen3_coder"},
        **{"speculative-config": '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'},
    },
)
CAPABILITIES = ("7.5", "8.6", "12.0")
# ... others do not differ by cards
ON_ALL = ("qwen3", "awq", "fp8", "gemma3")

# Refusals of command lines that the engine lets through: the beginning of the text -> why
STRICTER = {
    "4 KV heads cannot be": "it ends later, while the model is made: QKVParallelLinear",
    "load-format does not know": "it ends later, while weights are looked for",
    "mamba-block-size needs": "it ends there where the model has such layers, and has no use for it elsewhere",
}
# Command lines that are let through and that the engine refuses: a part of its text -> why
LOOSER = {"TurboQuant KV cache is not supported for hybrid": "0.20.2 alone, of models with several kinds of layers"}


def option_cases() -> Iterator[tuple[str, str, Options, int]]:
    """Model, compute capability, options, and as many cards as they ask for."""
    for model in CONFIGS:
        for capability in CAPABILITIES if model in ON_ALL else CAPABILITIES[1:2]:
            for options in OPTIONS:
                ranks = [int(options.get(f"{one}-parallel-size", 1)) for one in ("tensor", "pipeline", "data")]
                yield model, capability, options, max(1, ranks[0] * ranks[1] * ranks[2])
