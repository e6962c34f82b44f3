"""Keys of vLLM that a catalogue may not set by itself, for it is data: programs, code, files, folders, servers,
listeners.

vLLM imports what some options name, opens what others do, and so do the libraries that read its environment. Only what
is a switch, a number, a registered name, or text that is known to name nothing outside of the model and its cards is
let through; the rest is the inventory's to allow by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rigwright.engines.vllm.option_snapshot import JsonField, OptionSetting, VllmOption, VllmSnapshot
from rigwright.engines.vllm.option_validation import MODELS, NUMBER

_CODE = "makes vLLM import and run the named code"
_FILES = "makes vLLM read or write the named file"
_SERVERS = "makes vLLM connect to a server, or listen"
# Whatever a snapshot says that they take: it lies in a catalogue, too.
RESERVED: Mapping[str, str] = {
    **dict.fromkeys(("tool-parser-plugin", "reasoning-parser-plugin", "io-processor-plugin"), _CODE),
    **dict.fromkeys(("worker-cls", "worker-extension-cls", "scheduler-cls", "logits-processors", "middleware"), _CODE),
    **dict.fromkeys(("kv-transfer-config", "ec-transfer-config", "tool-server", "model-loader-extra-config"), _CODE),
    "trust-remote-code": "makes vLLM run Python files from the model's folder",
    **dict.fromkeys(("lora-modules", "default-mm-loras", "log-config-file", "generation-config"), _FILES),
    **dict.fromkeys(("allowed-local-media-path", "mm-encoder-fp8-scale-path", "profiler-config"), _FILES),
    **dict.fromkeys(("mm-encoder-fp8-scale-save-path",), _FILES),
    **dict.fromkeys(("otlp-traces-endpoint", "kv-events-config", "weight-transfer-config"), _SERVERS),
    **dict.fromkeys(("allowed-media-domains",), "sets the servers that clients can make vLLM fetch from"),
    **dict.fromkeys(("enable-prompt-embeds", "enable-mm-embeds"), "makes vLLM unpickle tensors from clients"),
    "trust-request-chat-template": "makes vLLM run templates from clients",
}
# An option by itself, and the beginning of one of those
UNABBREVIATED_OPTION = "reasoning-parser"
# Of options whose value is text, or whose JSON holds some: it names nothing but parts of the model and of the cards, or
# is shown to clients.
TEXTS = frozenset(
    (
        *("response-role", "fingerprint-value", "cpu-offload-params", "offload-params", "numa-bind-cpus"),
        *("kv-cache-dtype-skip-layers", "lora-target-modules", "disable-access-log-for-endpoints"),
        *("allowed-origins", "allowed-methods", "allowed-headers", "default-chat-template-kwargs"),
        *("show-hidden-metrics-for-version", "override-generation-config", "limit-mm-per-prompt"),
        *("ir-op-priority", "kernel-config", "reasoning-config"),
    )
)
# Text that names nothing, of options that take any
WORDS: Mapping[str, tuple[str, ...]] = {
    "tokenizer-mode": ("auto", "hf", "slow", "mistral"),
    "config-format": ("auto", "hf", "mistral"),
    "model-impl": ("auto", "vllm", "transformers"),
    "override-attention-dtype": ("float16", "bfloat16", "float32"),
    "safetensors-load-strategy": ("lazy", "eager", "prefetch"),
    "distributed-executor-backend": ("mp", "uni"),
    "data-parallel-backend": ("mp",),
    "pt-load-map-location": ("cpu", "cuda"),
}
# Keys of configurations that are text, as above
KEYS = frozenset(("custom_ops", "splitting_ops", "compile_sizes", "quantization", "rms_norm", "fused_add_rms_norm"))
# The values of compilation_config.backend that are torch's own
COMPILERS = ("", "eager", "inductor")
# Keys at which a configuration of a model names code or files, wherever they stand
_NAMING = re.compile(r"auto_map|.*(path|file|dir|class|url|code|_name).*", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")

# Variables of libraries that vLLM runs, whose numbers and switches are harmless
FAMILIES = re.compile(
    r"(VLLM|NCCL|TORCH|TORCHDYNAMO|TORCHINDUCTOR|TRITON|PYTORCH|FLASHINFER|CUDA|CUBLAS|CUBLASLT|CUDNN|GLOO|OMP|MKL|KMP|GOMP)_[A-Z0-9_]+"
    r"|TOKENIZERS_PARALLELISM|MAX_JOBS|NVCC_THREADS|[QKV]_SCALE_CONSTANT"
)
# ... except those that name a file, a folder, a program or an address, whatever stands in them
_NAMING_VARIABLE = re.compile(
    r".*(FILE|PATH|DIR|ROOT|CACHE|HOME|PLUGIN|_LIB|LIBRARY|COMPILER|PTXAS|CUOBJDUMP|NVDISASM|ADDR|URL|HOST|PORT|SERVER"
    r"|ENDPOINT|_ID|IFNAME|REDIRECT|CONNECTOR|FOLDER|OVERRIDE|DUMP).*"
)
_SWITCHED = re.compile(r"(?i:true|false|on|off|yes|no)")
# Those with text that names nothing: NCCL's, PyTorch's, OpenMP's and vLLM's own documentation
TEXT_VARIABLES: Mapping[str, str] = {
    **dict.fromkeys(("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_ALGO", "NCCL_PROTO"), r"[A-Za-z0-9_,;:^]+"),
    **dict.fromkeys(("NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_CUMEM_ENABLE"), r"[A-Z0-9]+"),
    **dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), r"[A-Za-z0-9_:,.\[\]>-]+"),
    **dict.fromkeys(("FLASHINFER_CUDA_ARCH_LIST", "TORCH_CUDA_ARCH_LIST"), r"[0-9.a-fPTX+; ]+"),
    **dict.fromkeys(("OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY"), r"[A-Za-z0-9_,:{}]+"),
    "CUDA_MODULE_LOADING": "LAZY|EAGER",
    "VLLM_LOGGING_LEVEL": "CRITICAL|ERROR|WARNING|INFO|DEBUG",
    "VLLM_PP_LAYER_PARTITION": "[0-9,]+",
    "VLLM_CPU_OMP_THREADS_BIND": r"auto|nobind|[0-9,|-]+",
    "VLLM_DISABLED_KERNELS": "[A-Za-z0-9_,]+",
    "VLLM_LOGGING_COLOR": "auto|0|1",
    "TRITON_CACHE_AUTOTUNING": "0|1",  # a switch of Triton's (README.md): it names no cache
}
# vLLM's switches that are more than that
RESERVED_VARIABLES: Mapping[str, str] = {
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "makes vLLM unpickle messages",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "lets clients name folders to load",
    "VLLM_SERVER_DEV_MODE": "opens control endpoints to all clients",
    "VLLM_USE_MODELSCOPE": _SERVERS,
    "VLLM_CI_USE_S3": _SERVERS,
    "VLLM_MEDIA_URL_ALLOW_REDIRECTS": _SERVERS,
    "VLLM_PLUGINS": _CODE,
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "makes torch unpickle a file",
}


def forbidden_flags(snapshot: VllmSnapshot, declared: Mapping[str, OptionSetting]) -> dict[str, str]:
    """Options of vLLM that a catalogue may not set by itself: name -> why.

    Args:
        snapshot: The version that is served with; it lies in a catalogue, too.
        declared: Option without its dashes -> value, or True for a bare one; those that it does not have are
            `find_option_problems`'s to refuse.
    """
    found = {name: snapshot.find(name) for name in sorted(declared)}
    return {
        name: why
        for name, option in found.items()
        if option and (why := _describe_forbidden_flag(snapshot, name, option, declared[name]))
    }


def _describe_forbidden_flag(snapshot: VllmSnapshot, name: str, option: VllmOption, value: OptionSetting) -> str:
    names = {spelling.lstrip("-") for spelling in option.names if spelling.startswith("--")} | {name}
    if taken := next((why for one, why in RESERVED.items() if any(_is_abbreviation(said, one) for said in names)), ""):
        return taken
    if isinstance(value, bool) or name in TEXTS:
        return ""
    if option.kind in ("json", "any"):
        return _describe_forbidden_json(snapshot, option, value)
    for one in value if isinstance(value, list) else [value]:
        listed = {*map(str, option.choices), *snapshot.registered.get(option.name, ()), *WORDS.get(option.name, ())}
        word = str(one).lower().replace("-", "_") if option.folded else str(one)
        plain = NUMBER.fullmatch(word.lower().rstrip("kmgt")) or word == "auto"
        if not plain and not (word in listed and _WORD.fullmatch(word)):
            return "may name a file, code or a server, which a number or a registered name cannot"
    return ""


def _is_abbreviation(said: str, name: str) -> bool:
    """Whether vLLM's parser takes one name for another: it does so with the beginning of one."""
    return said == name or (name.startswith(said) and said != UNABBREVIATED_OPTION)


def _describe_forbidden_json(snapshot: VllmSnapshot, option: VllmOption, value: OptionSetting) -> str:
    found: Any = value
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except ValueError:
            found = value
    if isinstance(found, str):
        known = found in WORDS.get(option.name, ())
        return "" if known else "may name a file, code or a server, which a number or a registered name cannot"
    model = option.model or MODELS.get(option.name, "")
    if place := next(_find_naming_text(snapshot, model, found, ""), None):
        return f"{place} may name a file, code or a server, which a number or a registered name cannot"
    return ""


def _find_naming_text(snapshot: VllmSnapshot, model: str, found: Any, place: str, known: bool = False) -> Iterator[str]:
    """Where in JSON there is text that could name something.

    Args:
        snapshot: The version.
        model: The configuration that it is; empty where it is unknown.
        found: The JSON.
        place: Where it stands.
        known: Whether it stands in a configuration that is known: then text in it is the engine's, not the model's.
    """
    if isinstance(found, dict):
        fields = snapshot.models.get(model, {})
        for key, value in found.items():
            field = fields.get(key)
            if key in KEYS or (field and isinstance(value, str) and _is_listed(field, value)):
                continue
            within = f"{place}.{key}" if place else str(key)
            if _NAMING.fullmatch(key) and isinstance(value, str | list | dict):
                yield within
            else:
                yield from _find_naming_text(
                    snapshot, field.model if field else "", value, within, known or bool(fields)
                )
    elif isinstance(found, list):
        for one in found:
            yield from _find_naming_text(snapshot, "", one, place, known)
    elif isinstance(found, str) and (known or not _WORD.fullmatch(found)):
        yield place


def _is_listed(field: JsonField, value: str) -> bool:
    """Whether a text is one of those that the engine itself knows; whatever a snapshot says, no path is."""
    return value in COMPILERS or bool(value in field.values and _WORD.fullmatch(value))


def forbidden_variables(snapshot: VllmSnapshot, declared: Mapping[str, str]) -> dict[str, str]:
    """Variables that a catalogue may not set by itself: name -> why."""
    return {
        name: why
        for name, value in sorted(declared.items())
        if (why := _describe_forbidden_variable(snapshot, name, value))
    }


def _describe_forbidden_variable(snapshot: VllmSnapshot, name: str, value: str) -> str:
    if why := RESERVED_VARIABLES.get(name):
        return why
    if pattern := TEXT_VARIABLES.get(name):
        return "" if re.fullmatch(pattern, value) else "could be a path or an address"
    # of other variables a snapshot, which lies in a catalogue, is not believed
    known = snapshot.variables.get(name) if name.startswith("VLLM_") else None
    if not FAMILIES.fullmatch(name):
        return "is not a known variable of vLLM: any program may interpret it"
    if NUMBER.fullmatch(value) or _SWITCHED.fullmatch(value):
        named = _NAMING_VARIABLE.fullmatch(name) and not (known and known.kind in ("switch", "int", "float"))
        return "could be a path or an address" if named else ""
    if known and known.kind in ("choice", "list of choices", "switch"):
        listed = all(part in known.choices and _WORD.fullmatch(part) for part in value.split(","))
        return "" if listed else "could be a path or a program"
    return "could be a path or an address; use a number"
