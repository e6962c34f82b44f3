"""Causes in llama-server's log, at 0c1e570 and in the builds of 2026 around it."""

from __future__ import annotations

from rigwright.engines.log import Cause
from rigwright.engines.log_patterns import COMMON_CAUSES

MARKER = (
    r"\bllama_|\bllama-server\b|\bggml|\bgguf_|^srv +\w|^slot +\w|(?:^|\s)\d+\.\d+\.\d+\.\d+ "
    r"[IWED] |\bcommon_(?:init|params|fit)"
)
"""What only a log of llama.cpp contains: its functions' prefixes and its own time stamps."""

_LOWER_CONTEXT = "model and context do not fit in free card memory: lower context, or the number of GPU layers"
_DAMAGED = "the model's file is damaged or incomplete"

CAUSES = (
    Cause("cudamalloc-failed-out-of-memory", r"cudaMalloc failed: out of memory", _LOWER_CONTEXT),
    Cause("vmm-out-of-memory", r"CUDA error: out of memory|cuMemCreate|cuMemAddressReserve", _LOWER_CONTEXT),
    Cause(
        "failed-to-allocate-buffer-for-kv-cache",
        r"failed to allocate (buffer for )?(the )?(kv|KV) cache|failed to allocate .{0,200}memory cell",
        "the context does not fit in free card memory: lower context",
    ),
    Cause(
        "buffer-allocation",
        r"unable to allocate \w+ buffer|failed to allocate \w+ buffer of size|alloc_tensor_range: "
        r"failed|failed to allocate compute (pp )?buffers|ErrorOutOfDeviceMemory",
        _LOWER_CONTEXT,
    ),
    Cause(
        "fused-layer-on-cpu",
        r"is assigned to device CPU but .{0,200} is assigned to device",
        "a layer did not fit in card memory and runs on the CPU: lower the context, or use a smaller quantisation",
    ),
    Cause(
        "fit-params",
        r"failed to fit params to free device memory|context size too small",
        "the model does not fit in free card memory with these options: lower the context or free the cards",
    ),
    Cause(
        "host-memory-mmap",
        r"failed to mmap|mmap failed|unable to allocate CPU buffer|failed to allocate .{0,200} host memory",
        "the host's memory is full: raise memory_max, or use a smaller model",
    ),
    Cause(
        "invalid-magic-characters",
        r"invalid magic characters|invalid GGUF magic|magic number mismatch",
        "the file is not a GGUF, or is damaged",
        check="W06",
    ),
    Cause(
        "gguf-truncated",
        r"data is not within the file bounds|model is corrupted or incomplete|failed to read (tensor"
        r"|magic|key|header)|unexpectedly reached end of file|tensor data is out of bounds",
        _DAMAGED,
        check="W06",
    ),
    Cause(
        "gguf-split",
        r"invalid split (file|idx|count)|failed to load split|split file.{0,200}(missing|not found)"
        r"|missing tensor split",
        "a part of the split model is missing or has another name",
        check="W06",
    ),
    Cause(
        "gguf-missing",
        r"failed to open GGUF file|gguf_init_from_file: failed to open|No such file or directory.{0,200}\.gguf",
        "the model's file is missing or cannot be read",
        check="W06",
    ),
    Cause(
        "missing-tensor",
        r"missing tensor '|wrong number of tensors|tensor '.{0,200}' has wrong shape|done_getting_tensors",
        "the file does not fit this llama.cpp: another version or another conversion of the model is needed",
    ),
    Cause(
        "missing-key",
        r"key not found in model: |error loading model hyperparameters",
        "the file lacks a value that this llama.cpp needs: convert it anew, or use another build",
    ),
    Cause(
        "unknown-model-architecture",
        r"unknown model architecture",
        "this llama.cpp is older than the model: use a newer engine",
    ),
    Cause(
        "unknown-pre-tokenizer",
        r"unknown pre-tokenizer type|error loading model vocabulary|unknown tokenizer",
        "this llama.cpp is older than the model's tokenizer: use a newer engine",
    ),
    Cause(
        "unknown-quantisation",
        r"invalid ggml type|unknown type \d+|unsupported ggml type|has invalid ggml type",
        "this llama.cpp does not know the file's quantisation: use the fork or version that made it",
    ),
    Cause(
        "error-invalid-argument",
        r"error: (invalid|unknown) argument:|error while handling argument",
        "this llama-server has no such option: its version differs from the one checked",
    ),
    Cause(
        "no-flash-attention",
        r"flash_attn (is )?(not (supported|compatible) .{0,200})?forcing off"
        r"|Flash Attention .{0,200}not supported.{0,200}disabl",
        "flash attention does not work with this model or card, so a quantised V cache does not either: use f16 for it",
    ),
    Cause(
        "quantized-v-cache",
        r"(quantized )?V cache (quantization|was requested|is quantized).{0,200}[Ff]lash|quantized V cache",
        'a quantised V cache needs flash attention: flash_attention = "on"',
    ),
    Cause(
        "split-mode-tensor-not-implemented",
        r"SPLIT_MODE_TENSOR not implemented",
        'not supported for this model: use split_mode = "layer"',
    ),
    Cause(
        "draft-model",
        r"failed to (load|create) draft (model|context)|draft model .{0,200} (is not compatible"
        r"|incompatible)|speculative decoding .{0,200}not supported|draft model vocab \w+ must match",
        "the draft model cannot be used with this model: the line names the reason",
    ),
    Cause(
        "no-usable-card",
        r"no usable GPU found|no devices with dedicated memory found",
        "llama.cpp sees no card and computes on the CPU",
        check="N02",
        harmless=True,
    ),
    Cause(
        "context-shift",
        r"exceeds the available context size|[Cc]ontext size has been exceeded|input is too large to process",
        "a request is longer than the context: raise the context, or shorten the request",
    ),
    Cause(
        "split-mode-tensor",
        r"ggml_new_object: not enough space|ggml-backend-meta\.cpp|split_state",
        'a fault of split_mode = "tensor": use split_mode = "layer"',
    ),
    Cause(
        "device-lost",
        r"DeviceLostError|device lost on|ggml_vulkan: .{0,200}[Ll]ost",
        "the card hung or was reset: look at the kernel's log; a smaller batch or another driver may help",
    ),
    Cause(
        "vulkan-memory",
        r"ggml_vulkan: Device memory allocation of size \d+ failed",
        "the allocation does not fit in card memory, or exceeds the driver's largest one: lower context or batch",
    ),
    Cause(
        "template",
        r"Unable to generate parser for this template|System message must be at the beginning"
        r"|[Jj]inja.{0,200}([Ee]rror|exception)",
        "the chat template cannot be used, or refuses the order of messages: give another one as chat_template_file",
    ),
    Cause(
        "preset",
        r"option '?[\w-]+'? (is )?not recognized in preset",
        "the preset has an option that this llama-server lacks: remove it",
    ),
    Cause(
        "projector",
        r"unknown projector type",
        "this llama.cpp is older than the model's projector (mmproj): use a newer engine",
    ),
    Cause(
        "ggml-assert",
        r"GGML_ASSERT\(|GGML_ABORT",
        "llama.cpp stopped at its own assertion: an engine bug, or unsupported options; search for the line",
    ),
    Cause(
        "failed-to-mlock", r"failed to mlock", "not all weights are locked in RAM, but all are served", harmless=True
    ),
    Cause(
        "cuda-init-unknown",
        r"failed to initialize CUDA: unknown error",
        "the module nvidia_uvm is not loaded: `modprobe nvidia_uvm`",
        check="N03",
    ),
    *COMMON_CAUSES,
    Cause("cuda-init", r"ggml_cuda_init: failed to initialize CUDA", "no driver responds: see nvidia-smi", check="N02"),
    Cause(
        "model-load",
        r"error loading model|failed to load model|exiting due to model loading error",
        "the model could not be loaded: the reason stands above in the log",
        general=True,
    ),
)
