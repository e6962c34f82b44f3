"""Causes in exceptions of Python, pip's packages, transformers and torch's loaders; then forms that many messages have.

Sources: CPython's messages, importlib, json, pydantic; transformers' auto classes and modeling_rope_utils;
torch.serialization, torch._dynamo and torch._inductor; NumPy's import guards.
"""

from __future__ import annotations

from rigwright.engines.log import Cause

_QUOTED = r"[`'\"]([^`'\"]{1,80})[`'\"]"
_ERROR = r"(?:ValueError|NotImplementedError|AssertionError|RuntimeError|TypeError|Value error,|error:)"

PACKAGES = (
    Cause(
        "compiled-part-missing",
        r"No module named '(?:vllm|flash_attn|flashinfer|torch)\._?\w*_C\w*'|No module named 'vllm\._\w+|'_C'? "
        r"object has no attribute|'_OpNamespace' "
        r"'\w+' object has no attribute",
        "a compiled part of the engine is missing or was built for another torch or Python: reinstall the engine's "
        "wheel with the "
        "torch that it pins, and do not start it inside its source folder",
        names=r"No module named '([\w.]{1,60})'|attribute '(\w{1,60})'",
    ),
    Cause(
        "unknown-model-key",
        r"KeyError: '[a-z0-9_.-]+'",
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
        r"|DistributionNotFound|PackageNotFoundError",
        "a Python package is missing from the environment: add it to the environment, or use an image that has it",
        names=r"No module named '([\w.-]{1,80})'|pip install [`'\"]?([\w.\[\]=<>-]{2,60})|[`'\"]?([\w-]{2,40})[`'\"]? "
        r"(?:package|library|is not installed)",
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
        r"|AttributeError: (?:partially initialized )?module .{0,120}has no attribute"
        r"|AttributeError: .{0,20}\w*(?:Config|Tokenizer\w*|Processor|Cache|Mixin)'?(?: object)? has no attribute"
        r"|TypeError: .{0,120}(?:got an unexpected keyword argument|missing \d+ required (?:positional|keyword))"
        r"|operator \S{1,40}::\w+ does not exist|VersionConflict|is required for a normal functioning of this module"
        r"|[Rr]equires \w+[<>=]=[\d.]+",
        "two packages of the environment have versions that do not fit together, often transformers and the engine: "
        "install the versions that the engine pins",
        names=r"cannot import name '([\w.]{1,60})'|attribute '?([\w.]{1,60})|argument '([\w.]{1,60})'",
    ),
    Cause(
        "model-config",
        r"Unrecognized (?:configuration class|model in|processing class|image processor|feature extractor)"
        r"|Should have a `model_type` key|No model architectures are specified|rope_(?:scaling|parameters"
        r"|type)`?'?.{0,80}"
        r"(?:must|should|missing|required|unknown|field)|[Kk]eys? in `rope|(?:Unknown|Unrecognized) RoPE scaling type"
        r"|KeyError: 'rope_\w+'|AttributeError: '\w+Config' object has no attribute",
        "the model's config.json does not fit this version of transformers and the engine: use the versions that the "
        "model's page names, or correct config.json",
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
        "sees it (mounts of a container), and fetch the files anew",
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
        "json",
        r"JSONDecodeError|Expecting (?:property name|value|',' delimiter|':' delimiter)|Unterminated string starting at"
        r"|Invalid control character at|Invalid JSON(?! (?:grammar|schema))|cannot be converted to <function loads"
        r"|json\.exception\.parse_error"
        r"|error parsing JSON|Failed to parse JSON",
        "a JSON text is malformed: a file of the model (fetch it again) or an option's value (check its quotes)",
        names=r"((?:line \d+ column \d+)|(?:argument --[\w-]{1,40}))",
    ),
    Cause(
        "torch-compile",
        r"torch\._(?:dynamo|inductor)\.\w+(?:\.\w+)?|InductorError|BackendCompilerFailed|LoweringException"
        r"|vLLM failed to compile the model|Inductor cache lookup failed|CppCompileError"
        r"|Source code has changed since the last compilation",
        "torch.compile failed: delete the compile cache (~/.cache/vllm/torch_compile_cache), else set "
        "enforce_eager = true, or use another version",
        names=r"([A-Z]\w+(?:Error|Failed|Exception): .{1,60})",
    ),
    Cause(
        "cuda-graphs",
        r"operation not permitted when stream is capturing|cudaErrorStreamCapture\w+|CUDA graph captur\w+ detected"
        r"|CUDAGraphMode\.\w+ is not supported|[Cc]udagraph (?:capture )?sizes|cudagraph_(?:capture_sizes|mode)"
        r"|Offset increment outside graph capture|captures_underway",
        "capturing a CUDA graph failed or its sizes do not fit the other options: set cudagraph_mode = PIECEWISE or "
        "enforce_eager = true",
        names=r"(CUDAGraphMode\.\w+)",
    ),
)
"""Causes in exceptions of packages."""

FORMS = (
    Cause(
        "combination",
        rf"{_ERROR}.{{0,200}}(?:not (?:yet |currently )?(?:supported|allowed|implemented)|n[o']t (?:yet |currently "
        rf")?support\b"
        r"|[Uu]nsupported|only supports?|only supported|only (?:valid|available|applicable)|incompatible|not compatible"
        r"|cannot be (?:used|combined|enabled)|can only be (?:used|set)|not available|has been removed|no longer "
        r"supported)",
        "the engine does not support this combination of model, options and card: change the option or the model that "
        "the line names, or use another engine version",
        broad=True,
        names=rf"{_QUOTED}|(--[\w-]{{2,60}})",
    ),
    Cause(
        "option-refused",
        rf"ValidationError: \d+ validation errors? for \w+(?:Config|Args)|{_ERROR}.{{0,200}}\b(?:must be|must not"
        r"|should be|has to be|have to be|cannot be|can't be|needs to be|must have|must contain|is required|are "
        r"required"
        r"|not divisible|mutually exclusive|requires? |[Ii]nvalid |is invalid|not a valid|[Uu]nknown "
        r"|[Uu]nrecognized |Cannot (?:set|use)"
        r" both|[Pp]lease (?:specify|set|provide)|only be set|not found in|greater than|less than|smaller than"
        r"|[Ee]xpected )",
        "an option, or a value in the model's configuration, is refused: set it as the line says",
        broad=True,
        names=rf"for (\w+(?:Config|Args))|{_QUOTED}|(--[\w-]{{2,60}})|(?<![.\w])(?!pydantic_core)([a-z]+_[a-z_]+)\b",
    ),
    Cause(
        "file-missing",
        r"FileNotFoundError|NotADirectoryError|IsADirectoryError|No such file or directory",
        "a file or folder that the engine needs does not exist: check its path and the mounts of the container",
        broad=True,
        names=r"No such file or directory: [`'\"]([^`'\"]{1,80})|[`'\"]([^`'\"]{1,80})[`'\"]",
    ),
    Cause(
        "peer-silent",
        r"Connection refused|Connection reset by peer|ConnectionError|ConnectionRefusedError|Broken pipe"
        r"|[Cc]onnection timed out|No route to host|Network is unreachable",
        "another process or host does not answer: its own log has the cause, else the network or a firewall",
        broad=True,
        names=r"host=?'?([\w.-]{2,60})|(\d+\.\d+\.\d+\.\d+:\d+)",
    ),
    Cause(
        "engine-fault",
        r"^[^\n]{0,160}\b(?:AssertionError\b|IndexError: |UnboundLocalError: |NameError: |ZeroDivisionError: "
        r"|RecursionError: "
        r"|KeyError: "
        r"|AttributeError: |RuntimeError: (?:The size of tensor|[Ss]hape|mat1 and mat2|[Ee]xpected|[Tt]ensor|view "
        r"size|index|Triton"
        r"|Sizes of tensors|number of dims|The expanded size|split_with_sizes|shape mismatch|a and b must|self must)"
        r"|TypeError: "
        r"(?:unsupported operand|'NoneType'|\S+ object)|ValueError: not enough values)",
        "an internal fault of the engine, most often with a new model or a combination of options: use another "
        "version, "
        "or drop the newest options (drafting, a quantised KV cache, prefix caching, CUDA graphs) one by one",
        broad=True,
        names=r"((?:[A-Z]\w+Error): .{1,70})",
    ),
)
"""Forms that messages of many causes have; they come after all others."""
