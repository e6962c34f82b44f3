"""Causes in llama-server's log, at 0c1e570 and in the builds of 2026 around it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from rigwright.engines.card_log_patterns import INSPECT_CARD
from rigwright.engines.llama_cpp.option_log_patterns import OPTION_CAUSES
from rigwright.engines.log_causes import UNKNOWN_CAUSE, Cause
from rigwright.engines.log_patterns import COMMON_CAUSES
from rigwright.engines.python_log_patterns import FORMS

# Of a start's memory: rigwright/engines/reported_memory.py
MEMORY_PATTERNS = (" buffer size = ", "n_ctx_slot = ")
MARKER = (
    r"\bllama_|\bllama-server\b|\bggml|\bgguf_|^srv {1,20}\w|^slot {1,20}\w|(?:^"
    r"|\s)\d{1,20}\.\d{1,20}\.\d{1,20}\.\d{1,20} [IWED] |\bcommon_(?:init|params|fit)"
    r"|\"error\": ?\{\s{0,20}\"code\": ?\d"
)
"""Patterns that only a log of llama.cpp contains: its functions' prefixes and its own time stamps."""

REQUEST_LOG = (
    r"(?:[0-9.]+ )?(?:(?:I )?(?:slot +\S+ id +\d+ \||srv +(?:update_slots: all slots are idle|params_from_: "
    r"|log_server_r: .* 200$))|(?:W )?slot +\S+ id +\d+ .*(?:need to evaluate at least 1 token|n_past was set to))"
)
"""Lines of each request: a slot is selected, launched and released, with its times."""

_LOWER_CONTEXT = "model and context do not fit in free card memory: lower context, or the number of GPU layers"
_DAMAGED = "the model's file is damaged or incomplete"

# Causes that any engine's log can show, as they appear here: their remedies are options of vLLM or packages of Python.
_MEANINGS = {
    "cuda-capture": "an operation is not allowed during the capture of a CUDA graph: set "
    "GGML_CUDA_DISABLE_GRAPHS=1, or "
    "use another version",
    "cuda-peer-fault": "a card cannot reach another card's memory: NVLink or PCI peer access fails: turn the IOMMU's "
    f"ACS off; {INSPECT_CARD}",
    "cuda-initialisation": "CUDA does not start in this process: the container lacks /dev/nvidia-uvm",
    "cards-not-shared": "cards cannot share memory or map it, for example in WSL, virtual machines and some "
    "containers: use one "
    "card, or a build with GGML_CUDA_NO_VMM",
    "launch-sizes": f"{UNKNOWN_CAUSE}CUDA refuses the arguments of a call, most often a fault of this build "
    "with this model "
    "or these options: try another build",
    "not-for-this-card": "a kernel does not exist for these cards with this quantisation or option: use another build, "
    "or the model in another quantisation",
    "cublas-version": "cuBLAS or cuDNN refuses or fails a call: another version than the build's is loaded (unset "
    "LD_LIBRARY_PATH), it lacks these shapes or types for the card (another quantisation or build), or a kernel before "
    f"it failed: {INSPECT_CARD}",
    "rocm-card": "the ROCm libraries have no kernels for this AMD card: hide it (HIP_VISIBLE_DEVICES), or use a build "
    "for its architecture",
    "libcudart": "the loader does not find CUDA's library of the version in the name: install the build of the "
    "engine for the CUDA version that is installed, or that version's libraries (LD_LIBRARY_PATH)",
    "undefined-symbol": "a compiled library was built for another version of one that it loads: keep the libraries of "
    "one build together (LD_LIBRARY_PATH)",
    "nvcc-architecture": "the compiler (nvcc) is too old for these cards: use a newer CUDA toolkit",
    "kernel-source": "compiler and sources do not fit: use another CUDA toolkit, or another version of the sources",
    "address-missing": "no interface of this host (or container) has the address that the program binds or connects "
    "from: correct host",
}
_FOREIGN = re.compile(
    r"\b(?:VLLM_|PYTORCH_|TORCH|vLLM|torch|[Tt]riton|flashinfer|FlashInfer|transformers|trust_remote_code|enforce_eager"
    r"|cudagraph_|tensor_parallel_size|gpu_memory_utilization|max_num_|max_model_len|speculative_config|kv_cache_dtype"
    r"|disable_custom_all_reduce|(?:attention|moe|all2all)_backend)"
)
"""Words of vLLM's options and of Python's packages: no remedy of llama-server has them."""


def _adapt_causes(causes: Iterable[Cause]) -> Iterator[Cause]:
    """Causes with a remedy that llama-server has; without those that have none, for a line is then unknown."""
    for one in causes:
        own = replace(one, means=_MEANINGS[one.id]) if one.id in _MEANINGS else one
        if own.harmless or not _FOREIGN.search(own.means):
            yield own


CAUSES = (
    Cause("cudamalloc-failed-out-of-memory", r"cudaMalloc failed: out of memory", _LOWER_CONTEXT),
    Cause(
        "vmm-unsupported",
        r"CUDA error: operation not supported",
        "CUDA's management of virtual memory does not work here (vGPU, MIG, WSL and some containers): use a build with "
        "GGML_CUDA_NO_VMM",
        context=r"cuMem(?:Create|Map|AddressReserve|SetAccess)",
    ),
    Cause(
        "memory-query",
        r"CUDA error: out of memory",
        "the query of the card's memory fails: another process, or this server before it slept, holds "
        "nearly all of it: free the card or restart the server, and turn off its sleep when idle",
        context=r"cudaMemGetInfo\(",
    ),
    Cause("vmm-out-of-memory", r"CUDA error: out of memory|cuMemCreate|cuMemAddressReserve", _LOWER_CONTEXT),
    Cause(
        "failed-to-allocate-buffer-for-kv-cache",
        r"failed to allocate (buffer for )?(the )?(kv|KV|rs|recurrent)[- ]cache|failed to allocate .{0,200}memory "
        r"cell|failed to create "
        r"memory module|llama_kv_cache\w{0,80}: failed|failed to allocate memory for prompt cache",
        "the context does not fit in free memory: lower context or parallel requests, or quantise the KV cache",
    ),
    Cause(
        "buffer-allocation",
        r"unable to allocate \w{1,80} buffer|failed to allocate \w{1,80} buffer of size|alloc_tensor_range: "
        r"failed|failed to allocate compute (pp )?buffers|OutOfDeviceMemory|failed to allocate \S{1,80} buffer"
        r"|ggml_gallocr_reserve\w{0,80}: failed",
        _LOWER_CONTEXT,
    ),
    Cause(
        "fused-layer-on-cpu",
        r"is assigned to device CPU but .{0,200} is assigned to device",
        "a layer did not fit in card memory and runs on the CPU: lower the context, or use a smaller quantisation",
    ),
    Cause(
        "fit-params",
        r"failed to fit params to free device memory(?!.{0,80}already set)|context size too small",
        "the model does not fit in free card memory with these options: lower the context or free the cards",
        broad=True,
    ),
    Cause(
        "host-memory-mmap",
        r"failed to mmap|mmap failed|unable to allocate CPU buffer|failed to allocate .{0,200} host memory",
        "the host's memory is full: raise memory_max, or use a smaller model",
    ),
    Cause(
        "invalid-magic-characters",
        r"invalid magic characters|invalid GGUF magic|magic number mismatch|bad GGUF|GGUFv1 is no longer supported"
        r"|only supports up to "
        r"version|invalid model: tensor",
        "the file is not a GGUF, or is damaged",
        check="W06",
    ),
    Cause(
        "gguf-truncated",
        r"data is not within the file bounds|model is corrupted or incomplete|failed to read (tensor"
        r"|magic|key|header)|unexpectedly reached end of file|tensor data is out of bounds|failed to read (key-value"
        r"|tensor|the) |corrupted model|read error: "
        r"|failed to seek|gguf_init_from_\w{1,80}: failed to (?:read|seek)|mmap.{0,40}beyond",
        _DAMAGED + ": fetch it again and compare its size",
        check="W06",
    ),
    Cause(
        "gguf-split",
        r"invalid split (file|idx|count)|failed to load (GGUF )?split|split file.{0,200}(missing|not found)"
        r"|missing tensor split|illegal split|invalid split|n_split",
        "a part of the split model is missing or has another name: keep all -0000N-of-0000M files in one folder and "
        "name the first",
        check="W06",
    ),
    Cause(
        "gguf-missing",
        r"failed to open GGUF file|gguf_init_from_file: failed to open|No such file or directory.{0,200}\.gguf"
        r"|(?:file|model) .{0,100}\.gguf"
        r"['\"]? (?:does not exist|not found(?! in repository))|\.gguf.{0,20}: No such file|file does not exist or "
        r"cannot be opened",
        "the model's file is missing or cannot be read: check its path, its mount into the container and its "
        "permissions",
        check="W06",
        names=r"([^'\"/\\]{1,70}\.gguf)",
    ),
    Cause(
        "missing-tensor",
        r"missing tensor '|hyperparameters: invalid n_\w{1,80}|wrong number of tensors|tensor '.{0,200}' (has wrong "
        r"shape|not found)|done_getting_tensors"
        r"|duplicated tensor"
        r"|check_tensor_dims|tensor .{0,80}has offset",
        "the file does not match this llama.cpp: use another version or another conversion of the model",
        names=r"tensor '([^']{1,80})'|(expected \d{1,20}, got \d{1,20})",
    ),
    Cause(
        "missing-key",
        r"key not found in model: |missing key \S{1,80} in GGUF|found array for key|is not a string/float32|error "
        r"loading model hyperparameters|wrong type .{0,60}for key|key \S{1,80} has wrong (type|array)",
        "the file lacks a value that this llama.cpp needs: convert it again, or use another build",
        names=r"in model: (\S{1,80})",
    ),
    Cause(
        "unknown-model-architecture",
        r"unknown (?:model )?architecture|unsupported model architecture",
        "this llama.cpp does not know the model's architecture: use a newer engine; an empty name, or one for images "
        "or sound (such as of a diffusion model), is not a language model and needs another program",
        names=r"architecture: '([^']{1,80})'",
    ),
    Cause(
        "unknown-pre-tokenizer",
        r"unknown pre-tokenizer type|error loading model vocabulary|unknown tokenizer|cannot find tokenizer (?:merges"
        r"|vocab)|tokenizer .{0,40}"
        r"not found",
        "this llama.cpp does not know the model's tokenizer, or the file lacks it: use a newer engine, or convert "
        "the file again",
        names=r"(?:type|tokenizer): '([^']{1,60})'",
    ),
    Cause(
        "unknown-quantisation",
        r"invalid ggml type|unknown type \d{1,20}|unsupported ggml type|has invalid ggml type|not a multiple of "
        r"block size|unknown ftype",
        "this llama.cpp does not know the file's quantisation: use the fork or version that made it",
    ),
    Cause(
        "error-invalid-argument",
        r"(?<!CUDA )(?<!HIP )error: (invalid|unknown) argument:?|unrecognized (argument|option)",
        "this llama-server has no such option (another version, or a misspelling): remove or rename it",
        names=r"argument:? \"?(-[\w-]{1,60})",
    ),
    Cause(
        "no-flash-attention",
        r"flash_attn (is )?(not (supported|compatible) .{0,200})?forcing off|[Ff]lash.?[Aa]ttention .{0,80}not "
        r"supported"
        r"|Flash Attention .{0,200}not supported.{0,200}disabl",
        "flash attention does not work with this model or card, so a quantised V cache does not either: use f16 for it",
    ),
    Cause(
        "quantized-v-cache",
        r"(quantized )?V cache (quantization|was requested|is quantized).{0,200}[Ff]lash|quantized V cache",
        'a quantised V cache needs flash attention: flash_attention = "on", with the same type for K and V; where '
        "the model "
        "or card has none, use f16 for V",
    ),
    Cause(
        "split-mode-tensor-not-implemented",
        r"SPLIT_MODE_TENSOR not (implemented|supported)",
        'not supported for this model: use split_mode = "layer"',
    ),
    Cause(
        "no-usable-card",
        r"no usable GPU found|no devices with dedicated memory found",
        "llama.cpp sees no card and computes on the CPU",
        check="N02",
        harmless=True,
    ),
    Cause(
        "split-mode-tensor",
        r"ggml-backend-meta\.cpp|split_state",
        'a fault of split_mode = "tensor": use split_mode = "layer"',
    ),
    Cause(
        "device-lost",
        r"DeviceLostError|ErrorDeviceLost|UR_RESULT_ERROR_DEVICE_LOST|device lost on|ggml_vulkan: .{0,200}[Ll]ost",
        "the card hung or was reset: look at the kernel's log; a smaller batch or another driver may help",
    ),
    Cause(
        "vulkan-memory",
        r"ggml_vulkan: Device memory allocation of size \d{1,20} failed|Requested buffer size exceeds|maxBufferSize"
        r"|maxMemoryAllocationSize",
        "the allocation does not fit in card memory, or exceeds the driver's largest one: lower context or batch; "
        "where memory "
        "is free, it is a fault of this build: use another",
    ),
    Cause(
        "projector-untyped",
        r"unknown projector type: {0,20}(?:\(null\)|''|\"\")?\s{0,20}$|missing projector "
        r"type|projector_type.{0,40}(?:missing|not "
        r"found)|legacy .{0,20}(?:clip|mmproj)",
        "the projector (mmproj) names no type, as in old conversions: use one that is converted for current "
        "llama.cpp, or "
        "start without mmproj",
    ),
    Cause(
        "projector",
        r"unknown projector type|unsupported projector",
        "this llama.cpp does not know the type of the model's projector (mmproj): use a newer engine, or start without "
        "mmproj",
        names=r"projector type: (\S{1,60})",
    ),
    Cause(
        "projector-mismatch",
        r"mismatch between text model|wrong mmproj|does not have (?:vision|audio) encoder|[Ff]ailed to load CLIP "
        r"model|failed to load "
        r"multimodal model|clip_init: failed|unable to find tensor|mmproj.{0,80}(?:failed|mismatch|not)",
        "the projector (mmproj) is not this model's, or cannot be loaded: use the mmproj file of the same model",
        names=r"([^'\"/\\]{1,70}\.gguf)",
    ),
    *OPTION_CAUSES,
    Cause(
        "adapter",
        r"failed to (?:load|apply) (?:lora|LoRA) adapter|LoRA tensor|llama_adapter_lora\w{0,80}: .{0,100}(?:fail|error"
        r"|not)|control vector.{0,60}fail",
        "the adapter does not fit the model: it was made for another base model, or its file is damaged",
        names=r"adapter '?([^'\s]{1,80})",
    ),
    Cause(
        "ggml-assert",
        r"GGML_ASSERT\(|GGML_ABORT|ggml_abort\b|\.(?:cu|cuh|cpp|c|m|h):\d{1,20}: fatal error\s{0,20}$",
        f"{UNKNOWN_CAUSE}llama.cpp stopped at its own assertion, most often a fault of this build with this "
        f"model or these "
        f"options: "
        "search for the line",
        broad=True,
        names=r"GGML_ASSERT\((.{1,80}?)\) failed",
    ),
    Cause(
        "backend-entry",
        r"failed to find ggml_backend_init in",
        "the library of the backend is of an older form, and is loaded anyway",
        harmless=True,
    ),
    Cause(
        "pinned-host-memory",
        r"failed to allocate .{0,40}of pinned memory",
        "host memory that is not pinned is used in its place",
        harmless=True,
    ),
    Cause(
        "fit-skipped",
        r"this warning is normal during memory fitting|fit params to free device memory: .{0,80}already set",
        "options that are set by hand are not adapted to the memory",
        harmless=True,
    ),
    Cause(
        "failed-to-mlock", r"failed to mlock", "not all weights are locked in RAM, but all are served", harmless=True
    ),
    Cause(
        "cuda-init-unknown",
        r"failed to initialize CUDA: unknown error",
        "the module nvidia_uvm is not loaded, or the container lacks /dev/nvidia-uvm: `modprobe nvidia_uvm`",
        check="N03",
    ),
    *_adapt_causes(COMMON_CAUSES),
    Cause(
        "cuda-init",
        r"ggml_cuda_init: failed to initialize CUDA",
        "CUDA does not start: no driver responds or no card is passed to the process: see nvidia-smi",
        check="N02",
    ),
    Cause(
        "model-load",
        r"error loading model|failed to load (the )?model|exiting due to (model loading|HTTP server) error|failed to "
        r"create (context|llama_context)"
        r"|unable to (load|create) (model|llama context)|error while trying to fit params|failed to create_context"
        r"|common_init_result: failed|failed to initialize the context: {0,20}$|instance name=\S{1,80} exited|prev != "
        r"ggml_uncaught_exception",
        "the model could not be loaded: the reason is above in the log",
        general=True,
    ),
    *_adapt_causes(FORMS),
)
