"""Causes in vLLM's log: parts of messages of vLLM 0.19 to 0.21, of torch, and of the libraries that vLLM loads."""

from __future__ import annotations

from rigwright.engines.log import Cause
from rigwright.engines.log_patterns import COMMON_CAUSES

MARKER = (
    r"\((?:APIServer|EngineCore|Engine_?\w*|Worker)[^()]{0,30} ?pid=\d+\)|\bvllm\b|\bvLLM\b"
    r"|\[(?:core|launcher|loggers|gpu_model_runner|gpu_worker|api_server|multiproc_executor"
    r"|async_llm|shm_broadcast|pynccl|envs"
    r"|kv_cache_utils|fa_utils|config|model|utils)\.py:\d+\]"
)
"""What only a log of vLLM contains: the names of its processes, its package and its source files."""

_SMALLER = "lower gpu_memory_utilization, max_num_seqs or max_num_batched_tokens"

CAUSES = (
    Cause(
        "is-less-than-desired-gpu-memory-utilization",
        r"is less than desired GPU memory utilization",
        "something else uses the card's memory: see nvidia-smi, or lower gpu_memory_utilization",
        check="N04",
    ),
    Cause(
        "kv-cache-is-needed-which-is-larger-than-the-avai",
        r"KV cache is needed, which is larger than the available KV cache memory",
        "max_model_len does not fit next to the weights: lower it, or raise gpu_memory_utilization",
    ),
    Cause(
        "no-available-memory-for-the-cache-blocks",
        r"No available memory for the cache blocks",
        "the weights leave no space: raise gpu_memory_utilization",
    ),
    Cause(
        "mamba-cache-blocks",
        r"exceeds available Mamba cache blocks",
        "each sequence needs a Mamba cache block: lower max_num_seqs to the number in the line, or "
        "raise gpu_memory_utilization",
    ),
    Cause("cuda-out-of-memory", r"CUDA out of memory|CUDA error: out of memory", _SMALLER),
    Cause(
        "max-model-len",
        r"User-specified max_model_len \(\d+\) is greater than the derived max_model_len",
        "max_model_len is above what the model's config.json allows: lower it, or declare rope scaling",
    ),
    Cause(
        "batched-tokens",
        r"max_num_batched_tokens \(\d+\) is (smaller|less) than|max_num_batched_tokens.{0,200}must be",
        "max_num_batched_tokens does not fit the other limits that the line names: raise it to the value in the line",
    ),
    Cause(
        "speculative-decoding",
        r"NotImplementedError: .{0,200}[Ss]peculative [Dd]ecoding|[Ss]peculative decoding .{0,200}not (yet )?supported",
        "this vLLM does not combine speculative decoding with the model: remove speculative_config",
    ),
    Cause(
        "reasoning-parser",
        r"reasoning parser could not locate think",
        "the reasoning_parser is another model's: use the one that the model's page names",
    ),
    Cause("lora-rank", r"LoRA rank \d+ is greater than max_lora_rank", "raise max_lora_rank to the rank in the line"),
    Cause("page-size", r"page size .{0,200}not divisible", "the block size does not fit the model: remove block_size"),
    Cause("pinned-memory", r"UVA is not available", "pinned memory is missing, as in WSL: VLLM_WSL2_ENABLE_PIN_MEMORY"),
    Cause(
        "cutlass-version",
        r"module 'cutlass[\w.]*' has no attribute|mlir_global_dtors",
        "nvidia-cutlass-dsl is of another version than the engine expects: redeploy the locked environment",
    ),
    Cause(
        "heads-not-divisible",
        r"attention heads \(\d+\) must be divisible by tensor parallel size|is not divisible by "
        r"(tensor parallel|tp|the tensor)|must be divisible by tensor_parallel_size|heads must be "
        r"divisible by",
        "the model cannot be split over this number of cards: choose a tensor_parallel_size that "
        "divides its attention heads",
    ),
    Cause(
        "world-size",
        r"World size \(\d+\) is larger than the number of available GPUs|tensor parallel "
        r"size.{0,200}(exceeds|larger than).{0,200}(GPUs|devices)",
        "the variant needs more cards than the instance sees: compare `cards` with tensor_parallel_size",
        check="N01",
    ),
    Cause(
        "failed-to-infer-device-type", r"Failed to infer device type", "no driver responds: see nvidia-smi", check="N02"
    ),
    Cause(
        "no-available-shared-memory-broadcast-block-found",
        r"No available shared memory broadcast block found",
        "a worker hangs: too little memory for the weights?",
    ),
    Cause(
        "vllm-is-using-nccl",
        r"vLLM is using nccl",
        'the cards cannot reach each other: set NCCL_P2P_DISABLE to "1"',
        last=True,
    ),
    Cause(
        "an-illegal-memory-access-was-encountered",
        r"an illegal memory access was encountered",
        'a kernel failed: compilation_config = {cudagraph_mode = "PIECEWISE"} is known to help',
    ),
    # whatever it guesses ahead is thrown away; 1 is what comes without
    Cause(
        "mean-acceptance-length-1-00",
        r"Mean acceptance length: 1\.00",
        "the draft model or MTP layers are not loaded, or their patch is missing",
        check="V04",
    ),
    Cause(
        "unrecognized-arguments",
        r"unrecognized arguments:",
        "this vLLM has no such option: its version differs from the one checked",
    ),
    Cause(
        "invalid-option",
        r"(vllm|api_server\.py): error: (argument|the following arguments)",
        "an option has a value that this vLLM refuses: the line names it",
    ),
    Cause(
        "concurrent-partial-prefill-is-not-supported",
        r"Concurrent Partial Prefill is not supported",
        "remove max_num_partial_prefills and related options",
    ),
    Cause(
        "bfloat16-is-only-supported-on-gpus",
        r"Bfloat16 is only supported on GPUs",
        'cards below compute capability 8.0 do not support it: use dtype = "half"',
    ),
    Cause(
        "quantization-capability",
        r"quantization method .{0,200} is not supported for the current GPU|Minimum capability: \d+\. "
        r"Current capability|fp8e4nv not supported in this architecture",
        "these cards do not support the model's quantisation: serve another variant",
    ),
    Cause(
        "no-attention-backend",
        r"No valid attention backend|Selected backend .{0,200} is not valid for this configuration|No "
        r"suitable attention backend",
        "no attention backend supports this head size, data type and compute capability: the line lists the reasons",
    ),
    Cause(
        "invalid-literal-for-int-with-base-10-gpu",
        r"invalid literal for int\(\) with base 10: 'GPU-",
        "this vLLM accepts card indexes, not UUIDs",
    ),
    Cause(
        "nccl-error",
        r"NCCL error: |ncclUnhandledCudaError|ncclSystemError|NCCL WARN Cuda failure",
        'the cards cannot reach each other: set NCCL_P2P_DISABLE to "1"',
    ),
    Cause(
        "worker-died",
        r"WorkerProc initialization failed|Worker proc .{0,200} died unexpectedly|VllmWorker-?\d+ died",
        "a worker process ended: its own error stands above in the log",
        general=True,
    ),
    Cause(
        "engine-core-died",
        r"Engine core initialization failed|EngineDeadError|EngineCore (encountered a fatal error|died unexpectedly)",
        "the engine's core process ended: its own error stands above in the log",
        general=True,
    ),
    Cause(
        "rpc-timeout",
        r"RPC call to \w+ timed out|TimeoutError: RPC",
        "a worker did not answer in time: a hung card or collective; look for an Xid: `journalctl -k --grep Xid`",
    ),
    Cause(
        "cannot-find-any-model-weights-with",
        r"Cannot find any model weights with",
        "files of the model are missing",
        check="W06",
    ),
    Cause(
        "weights-mismatch",
        r"There is no module or parameter named|Following weights were not initialized from checkpoint"
        r"|size mismatch for |KeyError: '(model|language_model|lm_head|layers)\.",
        "the weights do not fit the model code of this vLLM version: use the engine version that the "
        "model's page names",
    ),
    Cause(
        "tokenizer",
        r"Couldn't instantiate the backend tokenizer|Tokenizer class \w+ does not exist",
        "the tokenizer's files are missing, or need a newer transformers",
        check="W06",
    ),
    Cause(
        "chat-template",
        r"does not define a chat template|no chat template is (set|defined)|default chat template is "
        r"no longer allowed",
        "the model has no chat template: set `chat_template`, or use /v1/completions",
    ),
    Cause(
        "tool-parser",
        r"invalid tool call parser|invalid reasoning parser|tool choice requires --enable-auto-tool-choice",
        "tool calls need enable_auto_tool_choice and a tool_call_parser of this version",
    ),
    Cause(
        "custom-allreduce-is-disabled-because",
        r"Custom allreduce is disabled because",
        "cards communicate through NCCL instead",
        harmless=True,
    ),
    Cause(
        "support-for-transformers-v4-is-deprecated",
        r"Support for Transformers v4 is deprecated",
        "this vLLM version still supports it",
        harmless=True,
    ),
    Cause(
        "cannot-use-fa-version-2",
        r"Cannot use FA version 2",
        "cards below compute capability 8.0 need another backend",
        harmless=True,
    ),
    Cause(
        "unknown-vllm-environment-variable-detected",
        r"Unknown vLLM environment variable detected",
        "this version does not use it",
        harmless=True,
    ),
    *COMMON_CAUSES,
)
