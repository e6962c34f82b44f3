"""Causes that any engine's log can show: CUDA, the driver, memory, disks, cards and processes.

Sources: the messages of CUDA's runtime (cudaGetErrorString), NVML (nvmlErrorString), glibc (strerror), torch, Triton,
FlashInfer, transformers and safetensors, as public reports of 2025 and 2026 quote them.
"""

from __future__ import annotations

from rigwright.engines.build_log_patterns import BUILDS, MODEL_FILES
from rigwright.engines.card_log_patterns import CARD_FAULTS, CUDA, FREE_CARD_MEMORY, INSPECT_CARD
from rigwright.engines.container_log_patterns import CONTAINERS
from rigwright.engines.log_causes import UNKNOWN_CAUSE, Cause
from rigwright.engines.network_log_patterns import SHARED_MEMORY, TRANSPORT
from rigwright.engines.python_log_patterns import PACKAGES

_REBOOT = "the loaded driver and its libraries have different versions: reboot"
MEMORY = (
    Cause(
        "card-memory",
        r"CUDA error: out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|Cuda failure .{0,20}out of "
        r"memory|Triton Error \[CUDA\]: out of "
        r"memory|UR_RESULT_ERROR_OUT_OF_\w{1,80}|hipErrorOutOfMemory|ROCm error: out of memory",
        FREE_CARD_MEMORY,
    ),
    Cause("card-memory-cublas", r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED", FREE_CARD_MEMORY),
    Cause(
        "out-of-host-memory",
        r"\bstd::bad_alloc\b|^(?!.{0,200}mlock).{0,200}Cannot allocate memory"
        r"|node running low on memory|DefaultCPUAllocator: can't allocate memory|^MemoryError\b|oom[-_]kill",
        "the host's memory is full: raise memory_max of the instance, or add RAM",
    ),
    Cause(
        "no-space",
        r"[Nn]o space left on device|\[Errno 28\]|database or disk is full|Disk quota exceeded",
        "the disk (or /dev/shm) with the path in the line is full: see `df -h`, remove old models, images and caches",
        names=r"device:? '([^']{2,80})'|write (/[^:]{2,80}):",
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
        "the driver's library is not visible to it: the container was started without the cards (--gpus "
        "all), or "
        "no driver is installed",
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
        "the driver has lost a card: reboot; " + INSPECT_CARD,
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
        r"no CUDA-capable device is detected|No CUDA GPUs are available|CUDA driver initialization "
        r"failed|CUDA_ERROR_NO_DEVICE|Found no NVIDIA driver",
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
        r"|cudaIpc.{0,100}(?:fail|error)"
        r"|CUDA_ERROR_NOT_SUPPORTED|cuMem.{0,100}operation not supported",
        "cards or processes cannot share memory, for example in WSL, virtual machines and some containers: set "
        "disable_custom_all_reduce, NCCL_P2P_DISABLE=1 and NCCL_CUMEM_ENABLE=0",
    ),
    Cause(
        "launch-sizes",
        r"CUDA error .{0,160}'invalid argument'|CUDA error: invalid (?:configuration argument|argument|value|resource "
        r"handle)|CUDA_ERROR_INVALID_VALUE",
        "CUDA refuses the arguments of a call: with several cards, memory that they cannot share (set "
        "disable_custom_all_reduce, remove expandable_segments from PYTORCH_CUDA_ALLOC_CONF); else a fault of the "
        "engine "
        "with these options: another attention or moe backend, smaller batches, or another version",
    ),
    Cause(
        "invalid-device",
        r"CUDA error: invalid device ordinal|Cuda failure .{0,20}invalid device ordinal|AssertionError: Invalid "
        r"device id|CUDA_ERROR_INVALID_DEVICE\b",
        "the engine asks for a card that it does not see: compare `cards` with nvidia-smi",
        check="N01",
    ),
    Cause(
        "card-busy",
        r"all CUDA-capable devices are busy or unavailable|CUDA_ERROR_DEVICES_UNAVAILABLE",
        "another program holds the card exclusively, or the card is in an exclusive compute mode: see nvidia-smi",
    ),
)

PROCESSES = (
    Cause(
        "cuda-fork",
        r"Cannot re-initialize CUDA in forked subprocess",
        "a process uses CUDA before it starts its workers: set VLLM_WORKER_MULTIPROC_METHOD=spawn",
    ),
    Cause(
        "main-guard",
        r"An attempt has been made to start a new process before|freeze_support\(\)",
        'a script starts the engine while Python imports it: put the call under `if __name__ == "__main__":`',
    ),
    Cause(
        "aborted",
        r"\bAborted\b|\bSIGABRT\b|status=6/ABRT|exit(?:ed)?(?: with)?(?: exit)? ?(?:code|status):? ?\(?(?:-6|134)\b"
        r"|terminate called",
        "the program aborted: the lines before it contain the reason",
        general=True,
    ),
    Cause(
        "program-ended",
        r"Main process exited, code=exited, status=(?:1|[3-9]|[1-9]\d)/|exited with (?:exit )?(?:code|status) "
        r"(?:1|2|3)\b|Failed with "
        r"result 'exit-code'|Start request repeated too quickly",
        "the program ended with an error: the lines before it contain the reason",
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
        names=r"port:? '?(\d{2,5})|Bind for (\S{1,60}) failed|\('[\w.:]{1,80}', (\d{1,20})\)",
    ),
    Cause(
        "module-taint",
        r"module verification failed: signature and/or required key missing",
        "the kernel loads an unsigned module and marks itself as tainted",
        harmless=True,
    ),
    Cause(
        "address-missing",
        r"[Cc]annot assign requested address|\[Errno 99\]|EADDRNOTAVAIL",
        "no interface of this host (or container) has the address that the program binds or connects from: correct "
        "host, "
        "the master address or VLLM_HOST_IP",
    ),
    Cause(
        "numa-permission",
        r"(?:get_mempolicy|set_mempolicy|mbind|move_pages|sched_setaffinity|pthread_setaffinity).{0,60}(?:not "
        r"permitted|EPERM)",
        "the container withholds the capability SYS_NICE: memory and threads are not bound, and the engine "
        "continues to serve",
        harmless=True,
    ),
    Cause(
        "threads",
        r"can't start new thread|[Rr]esource temporarily unavailable|pthread_create failed|Thread creation failed",
        "the process cannot start more threads: raise the limit of tasks (TasksMax, ulimit -u, `--pids-limit` of a "
        "container), or lower OMP_NUM_THREADS; with an old container engine its seccomp profile forbids the call",
    ),
    Cause(
        "permission",
        r"[Pp]ermission denied|\[Errno 13\]|Operation not permitted|\[Errno 1\] ",
        "the system denies access to the process: give its user access to the path in the line; without a path, the "
        "container or unit withholds a capability (or seccomp or a mount option forbids it)",
        names=r"denied: [`'\"]([^`'\"]{1,80})|'(/[^']{1,80})'|(?<!\w)(/[\w./-]{2,80})",
    ),
    Cause(
        "illegal-instruction",
        r"Illegal instruction|signal SIGILL|status=4/ILL"
        r"|exit(?:ed)?(?: with)?(?: exit)? ?(?:code|status):? ?\(?(?:-4|132)\b",
        "the build uses instructions that this CPU lacks: use a build for this CPU, such as one compiled on this host",
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
        r"Assertion [`'].{0,200}['`] failed|(?<!NoLog: )Assertion failed:",
        f"{UNKNOWN_CAUSE}a program stopped at its own assertion: search for the line",
        broad=True,
        names=r"Assertion [`'](.{1,80}?)['`] failed",
    ),
)

COMMON_CAUSES = (
    SHARED_MEMORY,
    *MEMORY,
    *CONTAINERS,
    *CUDA,
    *DRIVER,
    *CARD_FAULTS,
    *BUILDS,
    *MODEL_FILES,
    *TRANSPORT,
    *PROCESSES,
    *PACKAGES,
)
"""Specific ones; each engine's table has its own before them, and FORMS after all."""
