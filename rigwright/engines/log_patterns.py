"""Causes that any engine's log can show: CUDA, the driver, memory, disks, cards and processes.

Sources: the messages of CUDA's runtime (cudaGetErrorString), NVML (nvmlErrorString), glibc (strerror), torch, Triton,
FlashInfer, transformers and safetensors, as public reports of 2025 and 2026 quote them.
"""

from __future__ import annotations

from rigwright.engines.build_log_patterns import BUILDS, MODEL_FILES
from rigwright.engines.container_log_patterns import CONTAINERS
from rigwright.engines.log import UNKNOWN, Cause
from rigwright.engines.python_log_patterns import PACKAGES
from rigwright.engines.transport_log_patterns import SHARED_MEMORY, TRANSPORT

_REBOOT = "the loaded driver and its libraries have different versions: reboot"
_FREE_CARD_MEMORY = (
    "the card's memory is full: stop other programs on the card, or lower the context or parallel requests"
)
_INSPECT_CARD = "look for an Xid of the card in the kernel's log: `journalctl -k --grep Xid`"
_WRONG_ADDRESS = "a kernel of the engine read or wrote a wrong address, mostly a fault of the engine"
DRAFTING = (
    r"speculative[_-]config['\"]?[=:](?! ?None)|num_speculative_tokens|[Ss]pec(?:ulative)?[ _]?[Dd]ecod(?!ing "
    r"context not)"
    r"|\bdraft[-_](?:mtp|model|simple|eagle)|common_speculative_impl|spec[-_](?:type|draft)|\bMTP\b|\beagle3\b"
)
"""Regular expression of lines that only a log with speculative decoding has."""

MEMORY = (
    Cause(
        "card-memory",
        r"CUDA error: out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|Triton Error \[CUDA\]: out of "
        r"memory|UR_RESULT_ERROR_OUT_OF_\w+|hipErrorOutOfMemory|ROCm error: out of memory",
        _FREE_CARD_MEMORY,
    ),
    Cause("card-memory-cublas", r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED", _FREE_CARD_MEMORY),
    Cause(
        "out-of-host-memory",
        r"\bstd::bad_alloc\b|^(?!.{0,200}mlock).{0,200}Cannot allocate memory"
        r"|node running low on memory|DefaultCPUAllocator: can't allocate memory|^MemoryError\b|oom[-_]kill",
        "the host's memory is full: raise memory_max of the instance, or add RAM",
    ),
    Cause(
        "no-space",
        r"No space left on device|\[Errno 28\]|database or disk is full|Disk quota exceeded",
        "a disk or /dev/shm is full: see `df -h / /srv /dev/shm`",
    ),
    Cause(
        "bus-error",
        r"Bus error|signal SIGBUS",
        "shared memory is full, or a file of the model became unreadable while it was mapped",
    ),
    Cause(
        "too-many-files", r"Too many open files|\[Errno 24\]", "the limit of open files is too low: raise LimitNOFILE"
    ),
    Cause(
        "read-only-disk",
        r"Read-only file system|\[Errno 30\]",
        "the file system is read-only, or the sandbox forbids the write",
    ),
    Cause(
        "disk-error",
        r"\[Errno 5\] Input/output error|Input/output error",
        "a disk fails: see `journalctl -k` and smartctl",
    ),
)

DRIVER = (
    Cause(
        "libcuda-so-1-cannot-open-shared-object-file",
        r"libcuda\.so(\.1)?: cannot open shared object file",
        "the driver's libraries are missing",
        check="N02",
    ),
    Cause("nvml-mismatch", r"Driver/library version mismatch|NVML_ERROR_LIB_RM_VERSION_MISMATCH", _REBOOT, check="N02"),
    Cause(
        "nvml-unknown",
        r"Failed to initialize NVML: Unknown Error|NVML: Unknown Error",
        "the container has lost access to its cards, usually after `systemctl daemon-reload`: restart the instance",
    ),
    Cause(
        "nvml-driver-missing",
        r"Driver Not Loaded|NVML_ERROR_DRIVER_NOT_LOADED|couldn't communicate with the NVIDIA driver",
        "the NVIDIA driver is not loaded",
        check="N02",
    ),
    Cause(
        "nvml-missing",
        r"NVML Shared Library Not Found|libnvidia-ml\.so(\.1)?: cannot open shared object file",
        "the driver's libraries are missing",
        check="N02",
    ),
    Cause(
        "card-lost",
        r"GPU is lost|NVML_ERROR_GPU_IS_LOST|Unable to determine the device handle for GPU",
        "the driver has lost a card: reboot; " + _INSPECT_CARD,
        check="N01",
    ),
    Cause(
        "cuda-driver-version-is-insufficient-for-cuda-runt",
        r"CUDA driver version is insufficient for CUDA runtime version|NVIDIA driver on your system is too old",
        "the driver is older than the engine's CUDA version: upgrade it",
        check="N02",
    ),
    Cause(
        "forward-compatibility-was-attempted-on-non-suppor",
        r"forward compatibility was attempted on non supported HW|CUDA_ERROR_COMPAT_NOT_SUPPORTED|Error 804\b",
        "the driver is too old for the CUDA version of the engine or image, and forward compatibility needs a "
        "data-centre "
        "card: upgrade the driver, or use a build of an older CUDA",
        check="N02",
    ),
    Cause(
        "driver-mismatch-cuda",
        r"system has unsupported display driver / cuda driver combination|Error 803\b"
        r"|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "the libcuda that the process loads is not the loaded driver's: in a container drop the image's CUDA compat "
        "libraries (LD_LIBRARY_PATH, /usr/local/cuda/compat); else reboot after the driver's upgrade",
        check="N02",
    ),
    Cause(
        "fabric-not-ready",
        r"system not yet initialized|fabricmanager.{0,100}(?:[Ff]ail|[Ee]rror)|Error 802\b|CUDA_ERROR_SYSTEM_NOT_READY",
        "the NVLink fabric is not ready: start nvidia-fabricmanager of the driver's version",
    ),
    Cause(
        "cuda-unknown",
        r"CUDA unknown error|Error 999\b|CUDA error: unknown error|CUDA_ERROR_UNKNOWN",
        "the driver's state is broken, usually after a suspend or an upgrade: reload nvidia_uvm or reboot",
        check="N02",
    ),
    Cause(
        "no-cards",
        r"no CUDA-capable device is detected|No CUDA GPUs are available|CUDA_ERROR_NO_DEVICE|Found no NVIDIA driver",
        "no card is visible to the engine: see nvidia-smi, CUDA_VISIBLE_DEVICES and the devices of the unit or "
        "container; "
        "after a boot, it started before the driver: load nvidia_uvm and restart it",
        check="N01",
    ),
    Cause(
        "libcuda-stub",
        r"CUDA driver is a stub library|Error 34\b",
        "the process loads the toolkit's stub of libcuda: remove the folder `stubs` from LD_LIBRARY_PATH",
    ),
    Cause(
        "cuda-initialisation",
        r"CUDA error: initialization error|Error 3: initialization error|cuInit.{0,40}failed"
        r"|CUDA_ERROR_NOT_INITIALIZED",
        "CUDA does not start in this process: the container lacks /dev/nvidia-uvm, or the process was forked after "
        "CUDA "
        "had started (VLLM_WORKER_MULTIPROC_METHOD=spawn)",
        check="N03",
    ),
    Cause(
        "cards-not-shared",
        r"CUDA error: (?:operation not supported|mapping of buffer object failed|peer access)"
        r"|cudaIpc\w+.{0,80}(?:fail|error)"
        r"|CUDA_ERROR_NOT_SUPPORTED|cuMem\w+.{0,60}operation not supported",
        "cards or processes cannot share memory, as in WSL, virtual machines and some containers: set "
        "disable_custom_all_reduce, NCCL_P2P_DISABLE=1 and NCCL_CUMEM_ENABLE=0",
    ),
    Cause(
        "launch-sizes",
        r"CUDA error: invalid (?:configuration argument|argument|value|resource handle)|CUDA_ERROR_INVALID_VALUE",
        "a kernel was called with sizes or addresses that it does not take, a fault of the engine with these "
        "options: use "
        "another attention or moe backend, smaller batches, or another version",
    ),
    Cause(
        "invalid-device",
        r"CUDA error: invalid device ordinal",
        "the engine asks for a card that it does not see: compare `cards` with nvidia-smi",
        check="N01",
    ),
    Cause(
        "card-busy",
        r"all CUDA-capable devices are busy or unavailable|CUDA_ERROR_DEVICES_UNAVAILABLE",
        "another program holds the card exclusively, or the card is in an exclusive compute mode: see nvidia-smi",
    ),
)

DRAFTING_FAULT = Cause(
    "illegal-memory-access-drafting",
    r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS|device-side assert triggered",
    f"{_WRONG_ADDRESS}, while speculative decoding is on, where such faults are most frequent: turn it off, or use "
    f"another version of the engine; else {_INSPECT_CARD}",
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
        r"only supports? (?:NVIDIA )?(?:Hopper|Blackwell|Ampere|Ada|SM ?\d+)|[Ff]eature .{0,200} not supported on "
        r"\.target"
        r"|Invalid thread config|No (?:\w+ )?MoE backend supports|requires? (?:at least |a GPU with )?(?:CUDA "
        r")?compute "
        r"capability|not supported on this (?:GPU|device|platform)|does not support compute capability|Unsupported "
        r"(?:architecture|compute capability|SM)|[Rr]equires (?:an? )?(?:Hopper|Blackwell|SM ?\d+|sm_?\d+)"
        r"|cannot support the current (?:GPU|device)|Failed to find a kernel that can implement|TMA descriptor"
        r"|unsupported (?:arch|SM|GPU)|[Oo]nly (?:(?:SM|sm_?) ?\d|Hopper|Blackwell)|[Cc]utlass\S*.{0,80}(?:Error"
        r"|[Ff]ail)|Error Internal"
        r"|cutlass FP\d"
        r"|(?:Runner|[Kk]ernel)\w*:? (?:kernel )?not found|No valid [Tt]riton configs|no supported kernel|No kernel "
        r".{0,40}(?:found|available)",
        "a kernel does not exist for these cards with this quantisation, shape or option: choose another backend "
        "(attention_backend, moe_backend), or a variant of the model in another quantisation",
        names=r"((?:sm_|SM ?|compute capability )\d[\d.]*\w?)",
    ),
    Cause(
        "deep-gemm-compiler",
        r"Assertion error \(\S{0,120}(?:jit|compiler)\S{0,60}\): .{0,60}exit_code|(?:NVCC|NVRTC) compil\w+ failed",
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
        r"CUBLAS_STATUS_(INVALID_VALUE|NOT_SUPPORTED|ARCH_MISMATCH|EXECUTION_FAILED|INTERNAL_ERROR)"
        r"|Could not load library libcudnn|CUDNN_STATUS_(?:SUBLIBRARY|VERSION)",
        "cuBLAS or cuDNN refuses the call, usually since another version than torch's is loaded: unset "
        "LD_LIBRARY_PATH, and install the versions that torch pins",
    ),
    Cause(
        "cublas-memory",
        r"CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_NOT_INITIALIZED",
        _FREE_CARD_MEMORY + "; else the libraries' versions do not fit the driver",
    ),
    Cause(
        "rocm-card",
        r"One of GPU archs of .{0,60}is invalid|hipErrorNoBinaryForGpu|invalid device function|TensileLibrary"
        r"|rocBLAS error",
        "the ROCm libraries have no kernels for this AMD card: hide it (HIP_VISIBLE_DEVICES), turn AITER off "
        "(VLLM_ROCM_USE_AITER=0), or use a build for its architecture",
        names=r"(gfx\d+\w*)",
    ),
    Cause(
        "torch-allocator",
        r"INTERNAL ASSERT FAILED at .{0,120}(?:CUDACachingAllocator|CUDAAllocator)|NVML_SUCCESS == r",
        "torch's memory allocator failed, most often since the card's memory is full, else since NVML does not "
        "answer in the "
        "container: lower the memory that the engine takes, and check `nvidia-smi` inside it",
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
        "the card's memory is faulty: " + _INSPECT_CARD,
        check="N06",
    ),
    Cause(
        "no-kernel-image-is-available-for-execution-on-the",
        r"no kernel image is available for execution on the device|no device code compatible with CUDA arch"
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
        f"a faulty card: {_INSPECT_CARD}",
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
        "a kernel of the engine crashed on the card: an engine bug or a faulty card; " + _INSPECT_CARD,
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
        r"\bCUDA error:|\bCUDA driver error:|\bCUBLAS_STATUS_[A-Z_]+|\bCUDNN_STATUS_(?!SUCCESS)[A-Z_]+",
        f"{UNKNOWN}a call of CUDA failed, or a kernel before it: CUDA_LAUNCH_BLOCKING=1 shows which; {_INSPECT_CARD}",
        broad=True,
        names=r"((?:CUDA|CUBLAS|CUDNN)[ _](?:error: )?[\w ]{3,60})",
    ),
)

PROCESSES = (
    Cause(
        "cuda-fork",
        r"Cannot re-initialize CUDA in forked subprocess",
        "a process uses CUDA before it starts its workers: set VLLM_WORKER_MULTIPROC_METHOD=spawn",
    ),
    Cause(
        "aborted",
        r"\bAborted\b|\bSIGABRT\b|status=6/ABRT|exit(?:ed)?(?: with)?(?: exit)? ?(?:code|status):? ?\(?(?:-6|134)\b"
        r"|terminate called",
        "the program stopped itself: the lines before it have the reason",
        general=True,
    ),
    Cause(
        "no-such-user",
        r"getpwuid\(\): uid not found",
        "the process runs as a user that the system does not know: set USER and TORCHINDUCTOR_CACHE_DIR",
    ),
    Cause(
        "port-taken",
        r"[Aa]ddress already in use|\[Errno 98\]|EADDRINUSE|couldn't bind (HTTP )?(server )?socket"
        r"|couldn't start HTTP listener|port is already allocated|failed to bind host port|Could not find open port",
        "another program uses its port: see `ss -ltnp`",
        names=r"port:? '?(\d{2,5})|Bind for (\S{1,60}) failed|\('[\w.:]+', (\d+)\)",
    ),
    Cause(
        "permission",
        r"[Pp]ermission denied|\[Errno 13\]|Operation not permitted|\[Errno 1\] ",
        "the sandbox or file permissions forbid it: give the engine's user access to the path in the line",
        names=r"denied: [`'\"]([^`'\"]{1,80})|'([^']{1,80})'|(/[\w./-]{2,80})",
    ),
    Cause(
        "illegal-instruction",
        r"Illegal instruction|signal SIGILL|status=4/ILL"
        r"|exit(?:ed)?(?: with)?(?: exit)? ?(?:code|status):? ?\(?(?:-4|132)\b",
        "the build uses instructions that this CPU lacks: build it on this host",
    ),
    Cause(
        "segfault",
        r"Segmentation fault|SIGSEGV|segfault at|status=11/SEGV"
        r"|exit(?:ed)?(?: with)?(?: exit)? ?(?:code|status):? ?\(?(?:-11|139)\b",
        "the engine crashed: an engine bug, or damaged libraries; a core dump may help its developers",
        broad=True,
    ),
    Cause(
        "assertion",
        r"Assertion [`'].{0,200}['`] failed|Assertion failed:",
        f"{UNKNOWN}a program stopped at its own assertion: search for the line",
        broad=True,
        names=r"Assertion [`'](.{1,80}?)['`] failed",
    ),
)

COMMON_CAUSES = (
    SHARED_MEMORY,
    *MEMORY,
    *CONTAINERS,
    *DRIVER,
    *CARD_FAULTS,
    *BUILDS,
    *MODEL_FILES,
    *TRANSPORT,
    *PROCESSES,
    *PACKAGES,
)
"""Specific ones; each engine's table has its own before them, and FORMS after all."""
