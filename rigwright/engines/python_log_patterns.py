"""Causes in exceptions of Python, pip's packages, transformers and torch's loaders; then forms that many messages have.

Sources: CPython's messages, importlib, json, pydantic; transformers' auto classes and modeling_rope_utils;
torch.serialization, torch._dynamo and torch._inductor; NumPy's import guards.
"""

from __future__ import annotations

from rigwright.engines.log_causes import UNKNOWN_CAUSE, Cause

_ERROR = r"(?:ValueError|NotImplementedError|AssertionError|RuntimeError|TypeError|Value error,|error:)"

PACKAGES = (
    Cause(
        "cpu-operator",
        r"'_OpNamespace' '\w{1,80}' object has no attribute 'cpu_|(?:AVX-?512|AMX)\w{0,80}.{0,80}(?:not|require|need"
        r"|missing)|(?:[Rr]equires?|need)s? .{0,40}(?:AVX-?512|AMX)",
        "the engine's build for CPUs has this operation only for processors with AVX-512 (or AMX): use such a CPU, a "
        "model that is not quantised, or another engine (llama.cpp)",
        names=r"attribute '(\w{1,60})'",
    ),
    Cause(
        "compiled-part-missing",
        r"No module named '(?:vllm|flash_attn|flashinfer|torch)\._?\w{0,80}_C\w{0,80}'|No module named "
        r"'vllm\._\w{1,80}|'_C'? object has no attribute|'_OpNamespace' '\w{1,80}' object has no attribute"
        r"|'_vllm_fa\d_C'|No such operator \w{1,80}::|Could not run '_\w{1,80}::",
        "a compiled part of the engine is missing: the wheel is for another torch, Python, card or CPU, or was built "
        "without it, or Python runs in the source folder: install the wheel for this machine with the torch that it "
        "pins",
        names=r"No module named '([\w.]{1,60})'|attribute '(\w{1,60})'",
    ),
    Cause(
        "transformers-newer",
        r"AmbiguousGlobalPerLayerAttributeError|is already used by a Transformers config|is a per-layer "
        r"attribute|AttributeError: .{0,40}Tokenizer\w{0,80}'? "
        r"(?:object "
        r")?has no attribute|has no attribute '?all_special_tokens|TokenizersBackend has no attribute|no attribute "
        r"'(?:rope_theta|rope_scaling)'|ROPE_INIT_FUNCTIONS.{0,40}'default'|KeyError: 'default'",
        "the installed transformers is newer than this engine expects: install the transformers that the engine pins, "
        "or a newer engine",
        names=r"attribute '?([\w.]{1,60})|'(\w{1,40})' is a per-layer",
    ),
    Cause(
        "module-moved",
        r"No module named '\w{1,80}\.[\w.]{1,80}'",
        "an installed package has no such module: the importing program needs another version of that package: "
        "install matching versions (those that the engine pins), or update the program",
        names=r"No module named '([\w.]{1,80})'",
    ),
    Cause(
        "unknown-model-key",
        r"KeyError: '[a-z0-9_.-]{1,80}'",
        "the installed transformers is older than the model: install the version that the model's page names, or a "
        "newer engine",
        context=r"configuration_auto\.py|CONFIG_MAPPING",
        names=r"KeyError: '([^']{1,60})'",
    ),
    Cause(
        "package-missing",
        r"ModuleNotFoundError: No module named|ImportError: .{0,200}(?:[Pp]lease install|is not installed"
        r"|[Ii]nstall (?:it|them|via|with)|requires the .{0,60}(?:package|library)|pip install)|is required but "
        r"(?:is )?"
        r"not installed|(?:ValueError|RuntimeError): .{0,100}(?:not installed|pip install)"
        r"|DistributionNotFound|PackageNotFoundError|'\w{1,80}' package is not available",
        "a Python package is missing from the environment of this process: install it there, or use an image that has "
        "it",
        names=r"No module named '([\w.-]{1,80})'|pip install [`'\"]?([\w.\[\]=<>-]{2,60})|[`'\"]?([\w-]{2,40})[`'\"]? "
        r"(?:package|library|is not installed)",
    ),
    Cause(
        "package-build",
        r"Could not find a version that satisfies|No matching distribution found|[Ff]ailed (?:to build|building wheel)"
        r"|ResolutionImpossible|No solution found when resolving",
        "pip finds no build of a package for this Python, platform, CUDA or index, or versions exclude each other: "
        "use the "
        "Python and the index that the engine's page names",
        names=r"requirement ([\w.=<>-]{2,60})|found for ([\w.=<>-]{2,60})",
    ),
    Cause(
        "numpy-version",
        r"compiled using NumPy 1|numpy\.(?:core|_core)\.multiarray failed to import|numpy\.dtype size changed",
        "a package was built for another NumPy: install the NumPy version that the engine pins",
    ),
    Cause(
        "torch-without-cuda",
        r"Torch not compiled with CUDA enabled|torch\.cuda\.is_available\(\) is False",
        "this torch is a build for the CPU: install the build for CUDA",
    ),
    Cause(
        "package-version",
        r"ImportError: cannot import name|ImportError: .{0,100}(?:>=|<=|==|version).{0,100}(?:required|found|but)"
        r"|AttributeError: (?:partially initialized )?module .{0,120}has no attribute|AttributeError: "
        r".{0,20}\w{0,80}(?:Processor|Cache|Mixin)'?(?: object)? has no attribute|operator \S{1,40}::\w{1,80} does "
        r"not exist|VersionConflict|is required for a normal functioning of this module|[Rr]equires "
        r"\w{1,80}[<>=]=[\d.]{1,80}",
        "two packages (or the engine and a plugin) have incompatible versions, often transformers and the "
        "engine: "
        "install the versions that the engine pins",
        names=r"cannot import name '([\w.]{1,60})'|attribute '?([\w.]{1,60})|argument '([\w.]{1,60})'",
    ),
    Cause(
        "model-config",
        r"Unrecognized (?:configuration class|model in|processing class|image processor|feature extractor)"
        r"|Should have a `model_type` key|No model architectures are specified|rope_(?:scaling|parameters"
        r"|type)`?'?.{0,80}"
        r"(?:must|should|missing|required|unknown|field)|[Kk]eys? in `rope|(?:Unknown|Unrecognized) RoPE scaling type"
        r"|KeyError: 'rope_\w{1,80}'|AttributeError: '\w{1,80}Config' object has no attribute",
        "the model's config.json does not fit this version of transformers and the engine (too old or too new): use "
        "the versions that the model's page lists or the engine pins, or correct config.json",
        names=r"Unrecognized model in ([\w./-]{1,80})|attribute '([\w.]{1,60})|type:? '?([\w.-]{1,40})'?$",
    ),
    Cause(
        "model-file-missing",
        r"does not appear to have (?:a file named|files? named)|Can't load (?:the )?(?:tokenizer|image processor"
        r"|feature "
        r"extractor|configuration|config|model|processor)|Invalid repository ID or local directory specified"
        r"|is not a valid model identifier|Incorrect path_or_model_id|HFValidationError|Repo id must (?:be|use)"
        r"|is not a local folder and is not|[Nn]o (?:config\.json|model weights|safetensors).{0,40} found"
        r"|[Cc]annot find any safetensors|Error no file named",
        "the model's folder or name is wrong, or files of it are missing: check the path as the engine's process "
        "sees it (mounts of a container), and download the files again",
        check="W06",
        names=r"OSError: ([\w./-]{2,80}) is not|file named (\S{1,80}?)[.,]?(?: |$)|for '([^']{1,80})'|id "
        r"'([^']{1,80})'|identifier.{0,20}'([^']{1,80})'",
    ),
    Cause(
        "weights-damaged",
        r"PytorchStreamReader failed|invalid load key|UnpicklingError|file in archive is not in a subdirectory"
        r"|[Ff]ile size .{0,60}(?:mismatch|expected)|hash mismatch|git[- ]lfs.{0,60}pointer",
        "a weights file is truncated, damaged, or only a pointer of Git LFS: fetch it again",
        check="W06",
    ),
    Cause(
        "json-request",
        r"\b400\b.{0,60}(?:Unterminated string|Expecting |Extra data|Invalid control|Invalid \\)|(?:arguments|JSON "
        r"body|request body|tool_calls).{0,60}(?:Unterminated|Expecting |Extra data|JSONDecodeError|not valid JSON)"
        r"|json_invalid|JSON decode error",
        "a client's request contains malformed JSON, often the arguments of a returned tool call: correct the client",
        request=True,
    ),
    Cause(
        "json-option",
        r"argument --.{0,200}(?:<function loads|[Ii]nvalid JSON|JSON|[Ee]xpecting )|cannot be converted to <function "
        r"loads",
        "the value of an option is not valid JSON: check its quotes",
        names=r"argument (--[\w/-]{1,60})",
    ),
    Cause(
        "json",
        r"JSONDecodeError|Expecting (?:property name|value|',' delimiter|':' delimiter)|Unterminated string starting at"
        r"|Invalid control character at|Invalid JSON(?! (?:grammar|schema))|json\.exception\.parse_error"
        r"|error parsing JSON|Failed to parse JSON",
        f"{UNKNOWN_CAUSE}a JSON text is malformed, in a request (the arguments of a tool call), an "
        f"option or a file of the model; the frames of the traceback show which",
        names=r"(line \d{1,20} column \d{1,20})",
    ),
    Cause(
        "shapes",
        r"shape mismatch: value tensor|mat1 and mat2 shapes cannot|a and b must have same reduction dim|The size of "
        r"tensor a|Sizes of tensors must match|The expanded size of the tensor|split_with_sizes expects|view size is "
        r"not compatible|shape '\[[\d, -]{0,80}\]' is invalid|selected index k out of range|number of dims don't "
        r"match|start \(\d{1,20}\) \+ length|could not be broadcast|cannot be broadcast|size of input tensor and "
        r"input format|Expected size for first two dimensions|inconsistent tensor size|self must be a matrix"
        r"|[Ss]hape mismatch|AssertionError: torch\.Size\(|output with shape .{0,80}doesn't match|expected \w{1,80} "
        r"to have (?:size|shape)",
        "tensor shapes do not match inside the model's code, a fault of this engine version or of the "
        "checkpoint: use another version, drop drafting (MTP), adapters and options of caches one by "
        "one, or use another export of the model",
        names=r"Error: (.{3,80})",
    ),
    Cause(
        "traced-model-code",
        r"RuntimeError when making fake tensor call|TorchRuntimeError|FakeTensor|fake_tensor\.py",
        "the model's code fails while torch.compile traces it: the error in the same traceback has the reason",
        general=True,
    ),
    Cause(
        "compile-cache",
        r"Source code has changed since the last compilation|Expected tensors only, but got|Inductor cache lookup "
        r"failed|assert_size_stride|expected size \d{1,20}==\d{1,20}, stride|[Bb]ytecode .{0,60}(?:mismatch|differ)"
        r"|(?:compiled|AOT|aot|artifact).{0,80}(?:cache|artifact).{0,80}(?:[Ff]ail|mismatch|corrupt|invalid|stale)"
        r"|torch_compile_cache.{0,120}(?:[Ee]rror|[Ff]ail|No such|truncated)|torch_aot_compile",
        "the compiled code that torch.compile keeps on disk does not fit this start: delete the cache "
        "(~/.cache/vllm/torch_compile_cache, torch_aot_compile), or set VLLM_DISABLE_COMPILE_CACHE=1 once",
    ),
    Cause(
        "torch-compile",
        r"torch\._(?:dynamo|inductor)\.(?!exc\.TorchRuntimeError)\w{1,80}(?:\.\w{1,80})?|InductorError"
        r"|BackendCompilerFailed|LoweringException|vLLM failed to compile the model|CppCompileError",
        "torch.compile failed: delete the compile cache (~/.cache/vllm/torch_compile_cache), else set "
        "enforce_eager = true, or use another version",
        names=r"([A-Z]\w{1,80}(?:Error|Failed|Exception): .{1,60})",
    ),
    Cause(
        "cuda-graphs",
        r"operation not permitted when stream is capturing|cudaErrorStreamCapture\w{1,80}|CUDA graph captur\w{1,80} "
        r"detected|CUDAGraphMode\.\w{1,80} is not supported|[Cc]udagraph (?:capture )?sizes"
        r"|cudagraph_(?:capture_sizes|mode)|Offset increment outside graph capture|captures_underway",
        "capturing a CUDA graph failed or its sizes do not fit the other options: set cudagraph_mode = PIECEWISE or "
        "enforce_eager = true",
        names=r"(CUDAGraphMode\.\w{1,80})",
    ),
)
"""Causes in exceptions of packages."""

FORMS = (
    Cause(
        "call-arguments",
        r"TypeError: .{0,120}(?:got an unexpected keyword argument|missing \d{1,20} required (?:positional|keyword)"
        r"|takes \d{1,20} positional arguments?|got multiple values for)",
        f"{UNKNOWN_CAUSE}a function was called with arguments that it does not take: packages with "
        f"mismatched versions (often transformers and the engine), or a fault of this version with this model",
        broad=True,
    ),
    Cause(
        "combination",
        rf"{_ERROR}.{{0,200}}(?:not (?:yet |currently )?(?:supported|allowed|implemented)|n[o']t (?:yet |currently "
        rf")?support\b"
        r"|[Uu]nsupported|only supports?|only supported|only (?:valid|available|applicable)|incompatible|not compatible"
        r"|cannot be (?:used|combined|enabled)|can only be (?:used|set)|not available|has been removed|no longer "
        r"supported)",
        f"{UNKNOWN_CAUSE}the engine, or a library of it, does not support something that this model, option or request "
        f"needs: the "
        "line contains its message",
        broad=True,
    ),
    Cause(
        "option-refused",
        rf"ValidationError: \d{{1,20}} validation errors? for \w{{1,80}}(?:Config|Args)|{_ERROR}.{{0,200}}\b(?:must "
        rf"be|must not"
        r"|should be|has to be|have to be|cannot be|can't be|needs to be|must have|must contain|is required|are "
        r"required"
        r"|not divisible|mutually exclusive|requires? |[Ii]nvalid |is invalid|not a valid|[Uu]nknown "
        r"|[Uu]nrecognized |Cannot (?:set|use)"
        r" both|[Pp]lease (?:specify|set|provide)|only be set|not found in|greater than|less than|smaller than"
        r"|[Ee]xpected )",
        f"{UNKNOWN_CAUSE}the engine refuses a value (of an option, of the model's files, or of a request): "
        f"the line contains "
        f"its message",
        broad=True,
    ),
    Cause(
        "file-missing",
        r"FileNotFoundError|NotADirectoryError|IsADirectoryError|No such file or directory",
        f"{UNKNOWN_CAUSE}a file, folder or program that the process opens does not exist, under the paths that it sees",
        broad=True,
        names=r"No such file or directory: [`'\"]([^`'\"]{1,80})|[`'\"](/[^`'\"]{1,80})[`'\"]",
    ),
    Cause(
        "peer-silent",
        r"Connection refused|Connection reset by peer|ConnectionError|ConnectionRefusedError|Broken pipe"
        r"|[Cc]onnection timed out|No route to host|Network is unreachable",
        f"{UNKNOWN_CAUSE}another process or host does not answer: its own log has the cause, else the network "
        f"or a firewall",
        broad=True,
        names=r"host=?'?([\w.-]{2,60})|(\d{1,20}\.\d{1,20}\.\d{1,20}\.\d{1,20}:\d{1,20})",
    ),
    Cause(
        "engine-fault",
        r"^[^\n]{0,160}\b(?:AssertionError\b|IndexError: |UnboundLocalError: |NameError: |ZeroDivisionError: "
        r"|RecursionError: "
        r"|KeyError: "
        r"|AttributeError: |RuntimeError: (?:[Ee]xpected|[Tt]ensor|index|Triton)"
        r"|TypeError: "
        r"(?:unsupported operand|'NoneType'|\S{1,80} object)|ValueError: not enough values)",
        f"{UNKNOWN_CAUSE}the program's own code failed, which is most often a fault of this version with this "
        f"model, these "
        f"options "
        "or this request: search for the line, and try another version",
        broad=True,
    ),
)
"""Forms that messages of many causes have; they come after all others."""
