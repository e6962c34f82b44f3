"""Causes in messages of loaders and compilers of libraries and kernels, and about files of models.

Sources: glibc's loader, nvcc, ptxas, ninja, Triton, FlashInfer, transformers, safetensors and huggingface_hub.
"""

from __future__ import annotations

from rigwright.engines.log_causes import Cause

BUILDS = (
    Cause(
        "libcudart",
        r"failed to open libnvrtc|lib(cudart|cublas|cublasLt|cudnn|nvrtc|cufft|curand|cusparse|nccl"
        r"|nvJitLink)[\w-]{0,80}\.so[.0-9]{0,80}: cannot open shared object file|Could not load library "
        r"\\?\"?lib(?:cudnn|nvrtc)",
        "the loader does not find CUDA's library of the version in the name: install the build of the engine and "
        "torch for the CUDA version that is installed, or that version's libraries (LD_LIBRARY_PATH)",
        names=r"(lib[\w-]{1,80}\.so[.0-9]{0,80})",
    ),
    Cause(
        "glibc",
        r"version [`']?(GLIBC|GLIBCXX|CXXABI)_[0-9.]{1,80}'? not found",
        "the engine was built for a newer distribution: build it on this one, or use a newer distribution or image",
    ),
    Cause(
        "missing-library",
        r"cannot open shared object file: No such file or directory",
        "the loader does not find a shared library: install the package that contains it, use another build or "
        "image, or set "
        "LD_LIBRARY_PATH to its folder",
        names=r"(?<![\w+.-])([\w+.-]{1,60}\.so[\w.]{0,80}): cannot open",
    ),
    Cause(
        "undefined-symbol",
        r"undefined symbol: |symbol lookup error",
        "a compiled library was built for another version of one that it loads, usually torch, CUDA or NCCL: install "
        "matching versions",
        names=r"(?<![\w+.-])([\w+.-]{1,60}\.so[\w.]{0,80}): undefined symbol|symbol: (\w{1,60})",
    ),
    Cause(
        "flashinfer-version",
        r"flashinfer-(cubin|jit-cache|python)?.{0,200}version.{0,200}does not match",
        "flashinfer's packages have different versions: lock the same version of flashinfer-python "
        "and flashinfer-cubin",
    ),
    Cause(
        "triton-shared-memory",
        r"OutOfResources: out of resource: shared memory|Required: \d{1,20}, Hardware limit: \d{1,20}",
        "a Triton kernel needs more shared memory than this compute capability has: use another "
        "attention backend or a smaller block size",
    ),
    Cause(
        "triton-registers",
        r"OutOfResources: out of resource|PassManager::run failed",
        "Triton cannot compile a kernel for this card: use another attention backend",
    ),
    Cause(
        "nvcc-host-compiler",
        r"unsupported GNU version|-- unsupported (clang|Microsoft Visual Studio|GNU) version",
        "nvcc does not support this gcc: use the host compiler that the CUDA toolkit names",
        check="K01",
    ),
    Cause(
        "nvcc-architecture",
        r"Unsupported gpu architecture|Unknown CUDA arch|is not defined for option 'gpu-architecture'"
        r"|not supported by NVRTC|SM \d{1,20}\.\w requires CUDA|Value "
        r"'(?:sm|compute)_\d{1,20}\w?' is not defined|nvrtc: error: invalid value for "
        r"--gpu-architecture",
        "the compiler (nvcc, or the ptxas inside Triton) is too old for these cards: use a newer CUDA toolkit, and set "
        "TRITON_PTXAS_PATH to its ptxas for Triton",
        check="K01",
    ),
    Cause(
        "nvcc-glibc",
        r"exception specification is incompatible|math_functions\.h.{0,200}rsqrt|rsqrt.{0,200}noexcept",
        "nvcc's headers conflict with this glibc: use a newer CUDA toolkit",
        check="K01",
    ),
    Cause(
        "nvcc-headers",
        r"CUDA compiler and CUDA toolkit headers are incompatible",
        "nvcc and the CUDA headers that it reads have different versions, for example from mismatched pip "
        "packages: install both in one version, or use prebuilt kernels or another backend",
        check="K01",
    ),
    Cause(
        "nvcc-missing",
        r"Could not find nvcc|nvcc: (command )?not found|CUDA_HOME environment variable is not set|No "
        r"such file or directory: '[^']{0,200}nvcc'",
        "a kernel must be compiled at run time and nvcc is missing: install the CUDA toolkit (CUDA_HOME names it), "
        "or "
        "use prebuilt kernels or another backend",
        check="K01",
    ),
    Cause(
        "headers-missing",
        r"fatal error: (Python\.h|cuda\w{0,80}\.h|cublas\w{0,80}\.h|curand\w{0,80}\.h|cutlass/\S{1,80}|nv/target"
        r"|crt/\S{1,80})",
        "a kernel cannot be compiled at run time because a header is missing: install Python's (python3-dev) or the "
        "CUDA "
        "toolkit's",
        check="K01",
    ),
    Cause(
        "ninja",
        r"No such file or directory: 'ninja'|Ninja is required to load C\+\+ extensions",
        "ninja is not on PATH, so a kernel cannot be compiled: install it in the environment and have its bin folder "
        "on PATH",
    ),
    Cause(
        "c-compiler",
        r"Failed to find C compiler|g\+\+: (command )?not found|No such file or directory: '(gcc|g\+\+|cc|c\+\+)'",
        "a kernel must be compiled at run time and the C compiler is missing: install gcc (or set CC)",
    ),
    Cause(
        "kernel-source",
        r"\.(?:cu|cuh|cpp|cc|hpp|h|inl)(?:\(\d{1,20}\)|:\d{1,20}(?::\d{1,20})?): (?:fatal )?error(?: #\d{1,20}|:)"
        r"|static_assert|nvcc fatal|nvlink (?:fatal|error)|ptxas (?:fatal|error)|undefined reference to|cannot find "
        r"-l\w{1,80}",
        "a kernel cannot be compiled at run time, because compiler and sources do not match: use the CUDA toolkit of "
        "torch's version, or prebuilt kernels (flashinfer-cubin, flashinfer-jit-cache), or another backend "
        "(VLLM_USE_FLASHINFER_SAMPLER=0)",
        check="K01",
        names=r"(?:error|fatal) ?:? {1,20}(.{3,80})|(cannot find -l\w{1,80})",
    ),
    Cause(
        "extension-build",
        r"Error building extension '|[Kk]ernel compil\w{1,80} failed|Error compiling objects for extension|ninja: "
        r"build stopped|Ninja build failed|CalledProcessError: .{0,100}(?:ninja|nvcc|ptxas|gcc|g\+\+|/cc\b)",
        "a kernel could not be compiled at run time: the compiler's own message is above; prebuilt kernels "
        "(flashinfer-cubin, flashinfer-jit-cache) avoid it",
        check="K01",
        broad=True,
        names=r"extension '([\w.-]{1,60})'",
    ),
    Cause(
        "torch-architecture",
        r"is not compatible with the current PyTorch installation",
        "its torch has no machine code for these cards",
    ),
)

MODEL_FILES = (
    Cause(
        "safetensors",
        r"SafetensorError|HeaderTooLarge|InvalidHeaderDeserialization|MetadataIncompleteBuffer",
        "a weights file is truncated or damaged",
        check="W06",
    ),
    Cause(
        "gguf-architecture",
        r"Unknown gguf model_type|GGUF model with architecture",
        "vLLM's loader of GGUF files does not know this architecture: serve the original (safetensors) checkpoint, or "
        "the GGUF with llama.cpp",
        names=r"model_type: (\w{1,60})|architecture (\w{1,60})",
    ),
    Cause(
        "transformers-older",
        r"model type `?\w{1,80}`? but Transformers does not recognize|Transformers does not recognize this architecture"
        r"|not supported by transformers version|[Uu]nrecognized model type",
        "the installed transformers does not know the model's type: install a version that does, which most often "
        "needs a newer engine",
        names=r"model type `?(\w{1,60})",
    ),
    Cause(
        "unknown-model-type",
        r"Model architectures? \[?.{0,200} (?:are|is) not supported|has no vLLM implementation|is not a registered "
        r"model|Cannot find model module|ForC\w{1,80} is not supported|does not have (?:a )?vLLM "
        r"implementation|was supported in vLLM until",
        "this version of the engine has no code for the model's architecture: use a version that has it (the model's "
        "page names one), or another checkpoint or engine",
        names=r"rchitectures? \[?'?(\w{1,80})|\b(\w{1,80}ForC\w{1,80})",
    ),
    Cause(
        "remote-code",
        r"(?:[Pp]ass|[Ss]et|[Uu]se|[Ss]pecify|argument|option|with)\b.{0,40}(?:trust_remote_code=True"
        r"|--trust-remote-code)|contains "
        r"custom code",
        "the model needs code of its repository: serve it with trust_remote_code, after reading that code",
    ),
    Cause(
        "gated",
        r"Access to model .{0,200} is restricted|GatedRepoError|gated repo|401 Client Error|403 Client Error"
        r"|RepositoryNotFoundError|Invalid user token|(?:status:?|HTTP) 40[13]\b",
        "the hub refuses the model: it is gated, private or misspelled, or the token is missing: accept its terms and "
        "set HF_TOKEN",
        names=r"Access to model ([\w./-]{1,80})|url: \S{0,80}?/([\w.-]{1,80}/[\w.-]{1,80})/",
    ),
    Cause(
        "hub-offline",
        r"couldn't connect to '?https://huggingface\.co|OfflineModeIsEnabled|LocalEntryNotFoundError|HF_HUB_OFFLINE",
        "the engine needs a file that was not downloaded: add it to the model's files and redeploy",
        check="W06",
    ),
)
