"""Causes on cards: faults of kernels and of CUDA's calls, drafting, cuBLAS, DeepGEMM, NVSHMEM and ROCm.

Sources: cudaGetErrorString, cublasGetStatusString, the exceptions of torch, FlashInfer, DeepGEMM and CUTLASS.
"""

from __future__ import annotations

from rigwright.engines.log_causes import UNKNOWN_CAUSE, Cause

FREE_CARD_MEMORY = (
    "the card's memory is full: stop other programs on the card, or lower the context or parallel requests"
)
INSPECT_CARD = "look for an Xid of the card in the kernel's log: `journalctl -k --grep Xid`"
_WRONG_ADDRESS = "a kernel of the engine read or wrote a wrong address, mostly a fault of the engine"
DRAFTING = (
    r"speculative[_-]config['\"]?[=:](?! ?None)|num_speculative_tokens|[Ss]pec(?:ulative)?[ _]?[Dd]ecod(?!ing "
    r"context not)"
    r"|\bdraft[-_](?:mtp|model|simple|eagle)|common_speculative_impl|spec[-_](?:type|draft)|\bMTP\b|\beagle3\b"
)
"""Regular expression of lines that only a log with speculative decoding has."""

CUDA = (
    Cause(
        "cuda-mps",
        r"MPS (?:client|server|control daemon)|CUDA_ERROR_MPS_\w{1,80}|cudaErrorMps\w{1,80}",
        "CUDA's shared mode (MPS) does not work: start nvidia-cuda-mps-control as the same user with the same "
        "CUDA_MPS_PIPE_DIRECTORY, or stop it and unset that variable",
    ),
    Cause(
        "cuda-jit",
        r"PTX JIT comp\w{1,80}|CUDA_ERROR_(?:INVALID_PTX|JIT_COMPILER_NOT_FOUND|UNSUPPORTED_PTX_VERSION)|nvPTXCompiler",
        "the driver cannot compile the build's PTX for this card: upgrade the driver, pass its library "
        "libnvidia-ptxjitcompiler into the container, or use a build with machine code for the card",
        check="N02",
    ),
    Cause(
        "cuda-symbol",
        r"CUDA error: (?:named symbol not found|API call is not supported in the installed)|CUDA_ERROR_NOT_FOUND"
        r"|cudaErrorCallRequiresNewerDriver|cudaErrorSymbolNotFound|[Uu]ndefined symbol: cu[A-Z]\w{1,80}|[Ff]ailed to "
        r"(?:get|find|load) .{0,40}cu[A-Z]\w{1,80}",
        "the driver's libcuda lacks a function that the build calls: upgrade the driver, or remove an older libcuda "
        "(stubs "
        "or compat libraries) from the loader's path",
        check="N02",
    ),
    Cause(
        "cuda-capture",
        r"CUDA error: operation (?:failed due to a previous error during capture|would make the legacy stream|not "
        r"permitted "
        r"when stream is capturing)|CUDA_ERROR_STREAM_CAPTURE_\w{1,80}",
        "an operation is not allowed during the capture of a CUDA graph: set enforce_eager = true (vLLM) or "
        "GGML_CUDA_DISABLE_GRAPHS=1 (llama.cpp), or use another backend or version",
    ),
    Cause(
        "cuda-peer-fault",
        r"[Ii]nvalid access of peer GPU memory over nvlink|peer mapping resources exhausted|CUDA_ERROR_PEER_\w{1,80}"
        r"|CUDA error: peer (?:access|mapping)|peer-?to-?peer .{0,40}(?:fail|error|hang)",
        "a card cannot reach another card's memory: NVLink or PCI peer access fails: set NCCL_P2P_DISABLE=1 and "
        f"disable_custom_all_reduce, and turn the IOMMU's ACS off; {INSPECT_CARD}",
    ),
    Cause(
        "cuda-device-exception",
        r"CUDA error: an exception occurred (?:on the device|during)|CUDA_ERROR_(?:CONTAINED|TENSOR_MEMORY_LEAK)"
        r"|CUDA error: (?:invalid program counter|operation not supported on global/shared|hardware stack error)",
        f"a kernel of the engine crashed on the card: an engine bug or a faulty card; {INSPECT_CARD}",
    ),
    Cause(
        "cuda-shutdown",
        r"CUDA error: (?:driver shutting down|context is destroyed|invalid resource "
        r"handle.{0,40}exit)|CUDA_ERROR_DEINITIALIZED"
        r"|CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "the process was already ending: the first error above is the cause",
        general=True,
    ),
)

DRAFTING_FAULT = Cause(
    "illegal-memory-access-drafting",
    r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS|device-side assert triggered",
    f"{_WRONG_ADDRESS}, while speculative decoding is on, where such faults are most frequent: turn it off, or use "
    f"another version of the engine; else {INSPECT_CARD}",
    context=DRAFTING,
)
CARD_FAULTS = (
    Cause(
        "custom-all-reduce",
        r"[Cc]uda error .{0,200}custom_all_reduce\.cuh",
        "the cards cannot read each other's memory: set disable_custom_all_reduce = True, and remove "
        "expandable_segments from PYTORCH_CUDA_ALLOC_CONF",
    ),
    Cause(
        "not-for-this-card",
        r"MoE backend\b.{0,80}(?:not support|requires)|does not support (?:the )?(?:deployment configuration|current "
        r"device)|only supports? (?:NVIDIA )?(?:Hopper|Blackwell|Ampere|Ada|SM ?\d{1,20})|[Ff]eature .{0,200} not "
        r"supported on \.target|Invalid thread config|No (?:\w{1,80} )?MoE backend supports|requires? (?:at least |a "
        r"GPU with )?(?:CUDA )?compute capability|not supported on this (?:GPU|device|platform)|does not support "
        r"compute capability|Unsupported (?:architecture|compute capability|SM)|[Rr]equires (?:an? )?(?:Hopper"
        r"|Blackwell|SM ?\d{1,20}|sm_?\d{1,20})|cannot support the current (?:GPU|device)|Failed to find a kernel "
        r"that can implement|TMA descriptor|unsupported (?:arch|SM|GPU)|[Oo]nly (?:(?:SM|sm_?) ?\d|Hopper|Blackwell)"
        r"|[Cc]utlass.{0,100}(?:Error|[Ff]ail)|Error Internal|cutlass FP\d|(?:Runner|[Kk]ernel)\w{0,80}:? "
        r"(?:kernel )?not found|No valid [Tt]riton configs|no supported kernel|No kernel .{0,40}(?:found|available)",
        "a kernel does not exist for these cards with this quantisation, shape or option: choose another backend "
        "(attention_backend, moe_backend), or a variant of the model in another quantisation",
        names=r"((?:sm_|SM ?|compute capability )\d[\d.]{0,80}\w?)",
    ),
    Cause(
        "deep-gemm-compiler",
        r"Assertion error \(\S{0,120}(?:jit|compiler)\S{0,60}\): .{0,60}exit_code|(?:NVCC|NVRTC) compil\w{1,80} failed",
        "DeepGEMM could not compile its kernel at run time: provide nvcc of torch's CUDA version (CUDA_HOME), or set "
        "VLLM_USE_DEEP_GEMM=0",
        check="K01",
    ),
    Cause(
        "deep-gemm",
        r"Assertion error \(\S{0,20}csrc/(?:apis|jit|jit_kernels|utils)/|[Dd]eep_?[Gg][Ee][Mm][Mm].{0,200}(?:not "
        r"available|outdated|not installed|[Ff]ail|[Aa]ssert|[Ee]rror)"
        r"|(?:[Aa]ssertion|[Ee]rror).{0,200}deep_?gemm",
        "DeepGEMM does not fit these cards or is missing: VLLM_USE_DEEP_GEMM=0 and VLLM_MOE_USE_DEEP_GEMM=0 turn it "
        "off",
    ),
    Cause(
        "nvshmem",
        r"[Nn][Vv][Ss][Hh][Mm][Ee][Mm].{0,200}(?:[Ff]ail|[Ee]rror|not|abort)|DeepEP (?:kernels not found|error"
        r"|timeout)",
        "NVSHMEM or DeepEP does not start: check InfiniBand (GDRCopy, IBGDA), or use another all2all_backend",
    ),
    Cause(
        "cublas-version",
        r"CUBLAS_STATUS_(INVALID_VALUE|NOT_SUPPORTED|ARCH_MISMATCH|EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)"
        r"|CUDA error: (?:the requested functionality is not supported|an unsupported value or parameter|the function "
        r"(?:requires a feature absent|failed to launch)|an internal operation failed|an access to GPU memory space "
        r"failed)"
        r"|Could not load library libcudnn|CUDNN_STATUS_(?:SUBLIBRARY|VERSION)",
        "cuBLAS or cuDNN refuses or fails a call: another version than the build's is loaded (unset LD_LIBRARY_PATH, "
        "install the versions that torch pins), it lacks these shapes or types for the card (another dtype, "
        "quantisation "
        f"or backend), or a kernel before it failed: {INSPECT_CARD}",
    ),
    Cause(
        "cublas-memory",
        r"CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_NOT_INITIALIZED|CUDA error: the (?:library was not "
        r"initialized|resource "
        r"allocation failed)",
        FREE_CARD_MEMORY + "; else the libraries' versions do not fit the driver",
    ),
    Cause(
        "rocm-card",
        r"One of GPU archs of .{0,60}is invalid|hipErrorNoBinaryForGpu|invalid device function|TensileLibrary"
        r"|rocBLAS error",
        "the ROCm libraries have no kernels for this AMD card: hide it (HIP_VISIBLE_DEVICES), turn AITER off "
        "(VLLM_ROCM_USE_AITER=0), or use a build for its architecture",
        names=r"(gfx\d{1,20}\w{0,80})",
    ),
    Cause(
        "torch-allocator",
        r"INTERNAL ASSERT FAILED at .{0,120}(?:CUDACachingAllocator|CUDAAllocator)|NVML_SUCCESS == r",
        "torch's memory allocator failed, most often because the card's memory is full, else because NVML does "
        "not answer in the container: lower the engine's memory use, and check `nvidia-smi` inside it",
    ),
    Cause(
        "rocm-access",
        r"No HIP GPUs are available|no ROCm-capable device is detected|Unable to open /dev/kfd"
        r"|/dev/kfd.{0,60}(?:denied|failed)"
        r"|HSA_STATUS_ERROR_OUT_OF_RESOURCES|hsa_init.{0,20}[Ff]ailed",
        "no AMD card is open to the process: add its user to the groups render and video, and pass /dev/kfd and "
        "/dev/dri into the container",
    ),
    Cause(
        "ecc",
        r"uncorrectable (NVLink|ECC) error|double-bit ECC|uncorrectable ECC",
        "the card's memory is faulty: " + INSPECT_CARD,
        check="N06",
    ),
    Cause(
        "no-kernel-image-is-available-for-execution-on-the",
        r"no kernel image is available for execution on the device|ggml was not compiled with any CUDA arch|no device "
        r"code compatible with CUDA arch"
        r"|CUDA_ERROR_NO_BINARY_FOR_GPU",
        "the build has no machine code for these cards: use one that is built for their compute capability",
    ),
    Cause(
        "kernel-image-invalid",
        r"device kernel image is invalid",
        "the driver cannot load the build's machine code: the driver is too old for it, or the build is damaged",
        check="N02",
    ),
    Cause(
        "ptx-version",
        r"the provided PTX was compiled with an unsupported toolchain",
        "the build's CUDA version is newer than the driver: upgrade the driver",
        check="N02",
    ),
    DRAFTING_FAULT,
    Cause(
        "illegal-memory-access",
        r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS|Memory access fault by GPU"
        r"|cudaErrorIllegalAddress\b(?!' in)",
        f"{_WRONG_ADDRESS}: change the engine's version, turn off speculative decoding and the newest options; else "
        f"a faulty card: {INSPECT_CARD}",
    ),
    Cause(
        "index-out-of-range",
        r"Assertion `.{0,100}(?:srcIndex|srcSelectDimSize|index out of bounds|idx_dim|ind >=0|t >= 0)",
        "a kernel got an index out of range: token ids beyond the vocabulary (tokenizer, added tokens or draft model "
        "of another model), positions above the model's length, or a fault of speculative decoding: turn that off "
        "first",
    ),
    Cause(
        "device-assert",
        r"device-side assert triggered",
        "a kernel got an input out of range: token ids beyond the vocabulary, positions above the model's length, or a "
        "fault of speculative decoding: turn that off first; the line above with `Assertion` has the condition",
    ),
    Cause(
        "launch-failure",
        r"unspecified launch failure|CUDA error: an illegal instruction was encountered|misaligned "
        r"address|hardware stack error|CUDA_ERROR_LAUNCH_FAILED",
        "a kernel of the engine crashed on the card: an engine bug or a faulty card; " + INSPECT_CARD,
    ),
    Cause(
        "launch-timeout",
        r"the launch timed out and was terminated",
        "a display server's watchdog ended a kernel: serve on a card without a display",
    ),
    Cause(
        "cuda-resources",
        r"too many resources requested for launch",
        "a kernel needs more registers or shared memory than the card has: use another attention backend",
    ),
    Cause(
        "cuda-other",
        r"\bCUDA error:|\bCUDA driver error:|\bCUBLAS_STATUS_[A-Z_]{1,80}|\bCUDNN_STATUS_(?!SUCCESS)[A-Z_]{1,80}",
        f"{UNKNOWN_CAUSE}a call of CUDA failed, or a kernel before it: CUDA_LAUNCH_BLOCKING=1 shows the failing call; "
        f"{INSPECT_CARD}",
        broad=True,
        names=r"((?:CUDA|CUBLAS|CUDNN)[ _](?:error: )?[\w ]{3,60})",
    ),
)
