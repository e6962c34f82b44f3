"""Validation of vLLM's options: types, and options that Rigwright manages.

Stricter than that parser in what would only mislead: a name is written whole, as vLLM prints it, and a value has the
type that it is read as. tests/vllm holds both against each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rigwright.engines.vllm.option_snapshot import (
    EnvironmentVariable,
    JsonField,
    NumberBounds,
    OptionSetting,
    VllmOption,
    VllmSnapshot,
)
from rigwright.problems import format_value, suggestion

_CLI = "vllm/engine/arg_utils.py of this version has none"
_ENVS = "vllm/envs.py of this version has none"
# Options of older versions that guides still name: name -> replacement, source.
REMOVED = {
    "speculative-model": ("speculative-config = {model = ...}", _CLI),
    "num-speculative-tokens": ("speculative-config = {num_speculative_tokens = ...}", _CLI),
    "speculative-max-model-len": ("speculative-config = {max_model_len = ...}", _CLI),
    "speculative-draft-tensor-parallel-size": ("speculative-config = {draft_tensor_parallel_size = ...}", _CLI),
    "ngram-prompt-lookup-max": ("speculative-config = {prompt_lookup_max = ...}", _CLI),
    "ngram-prompt-lookup-min": ("speculative-config = {prompt_lookup_min = ...}", _CLI),
    "log-level": ("the variable VLLM_LOGGING_LEVEL, and uvicorn-log-level", _CLI),
    "enable-reasoning": ("reasoning-parser alone", _CLI),
    "disable-log-requests": ("nothing: requests are only logged with enable-log-requests", _CLI),
    "guided-decoding-backend": ("structured-outputs-config = {backend = ...}", _CLI),
    "swap-space": ("nothing: sequences are always recomputed", _CLI),
    "num-scheduler-steps": ("nothing: there is only one step", _CLI),
    "use-v2-block-manager": ("nothing", _CLI),
    "device": ("nothing: the environment's build determines the device", _CLI),
    "worker-use-ray": ('distributed-executor-backend = "ray"', _CLI),
    "max-seq-len-to-capture": ("max-cudagraph-capture-size", _CLI),
    "cuda-graph-sizes": ("cudagraph-capture-sizes", _CLI),
    "rope-scaling": ("hf-overrides = {rope_parameters = {...}}", _CLI),
    "rope-theta": ("hf-overrides = {rope_parameters = {rope_theta = ...}}", _CLI),
    "preemption-mode": ("nothing: sequences are always recomputed", _CLI),
}
REMOVED_VARIABLES = {
    "VLLM_ATTENTION_BACKEND": ("the flag attention-backend", _ENVS),
    "VLLM_FLASH_ATTN_VERSION": ("the flag attention-config = {flash_attn_version = ...}", _ENVS),
    "VLLM_USE_V1": ("nothing: there is no other engine", _ENVS),
    "VLLM_USE_FLASH_ATTN": ("the flag attention-backend", _ENVS),
    "VLLM_USE_TRITON_FLASH_ATTN": ("the flag attention-backend", _ENVS),
    "VLLM_ALL2ALL_BACKEND": ("the flag all2all-backend", _ENVS),
    "VLLM_TORCH_PROFILER_DIR": ("the flag profiler-config", _ENVS),
    "VLLM_USE_PRECOMPILED_WHEEL": ("nothing: it is a build setting", _ENVS),
}
_SOCKET = "an instance listens where its unit says"
_KEY = "an instance's key is a credential, never an argument"
_TLS = "listeners have TLS, engines have none"
_HUB = "models are locked and already on the host"
_HOSTS = "an instance runs on one host"
_READY = "instances must answer chat completions"
_ENDS = "it prints something and exits"
# Options that no catalogue has a say in, by all of their names -> why
MANAGED_FLAGS: Mapping[str, str] = {
    **dict.fromkeys(("host", "port", "uds", "root-path", "grpc", "headless"), _SOCKET),
    **dict.fromkeys(("api-key",), _KEY),
    **dict.fromkeys(("ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-cert-reqs", "ssl-ciphers"), _TLS),
    **dict.fromkeys(("enable-ssl-refresh",), _TLS),
    **dict.fromkeys(("model", "served-model-name", "tokenizer"), "the key `model` sets the model"),
    **dict.fromkeys(("chat-template",), "the model's key `chat_template` selects the file"),
    **dict.fromkeys(("revision", "code-revision", "tokenizer-revision", "hf-token", "download-dir"), _HUB),
    **dict.fromkeys(("hf-config-path",), _HUB),
    **dict.fromkeys(("master-addr", "master-port", "nnodes", "node-rank", "data-parallel-address"), _HOSTS),
    **dict.fromkeys(("data-parallel-rank", "data-parallel-start-rank", "data-parallel-size-local"), _HOSTS),
    **dict.fromkeys(("data-parallel-rpc-port", "data-parallel-hybrid-lb", "data-parallel-external-lb"), _HOSTS),
    **dict.fromkeys(("runner", "convert", "tokens-only", "mm-encoder-only", "skip-tokenizer-init"), _READY),
    "config": "its file would set options outside the catalogue",
    "help": _ENDS,
}
# The same of variables: those that units, engines and environments set.
_UNIT = "an instance's unit sets it"
MANAGED_VARIABLES: Mapping[str, str] = {
    "VLLM_API_KEY": _KEY,
    **dict.fromkeys(("VLLM_HOST_IP", "VLLM_PORT", "VLLM_LOOPBACK_IP", "VLLM_RPC_BASE_PATH"), _SOCKET),
    **dict.fromkeys(("VLLM_DP_RANK", "VLLM_DP_RANK_LOCAL", "VLLM_DP_SIZE", "VLLM_DP_MASTER_IP"), _HOSTS),
    **dict.fromkeys(("VLLM_DP_MASTER_PORT", "LOCAL_RANK"), _HOSTS),
    **dict.fromkeys(("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_ASSETS_CACHE", "HOME", "TMPDIR", "USER"), _UNIT),
    **dict.fromkeys(("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"), _UNIT),
    **dict.fromkeys(("TORCHINDUCTOR_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "CREDENTIALS_DIRECTORY"), _UNIT),
    **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"), _UNIT),
    **dict.fromkeys(("CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"), "the environment sets it"),
    **dict.fromkeys(("HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT"), _HUB),
    **dict.fromkeys(("VLLM_NO_USAGE_STATS", "VLLM_DO_NOT_TRACK", "DO_NOT_TRACK"), "telemetry is off"),
    **dict.fromkeys(("VLLM_USAGE_STATS_SERVER", "VLLM_USAGE_SOURCE"), "telemetry is off"),
    "VLLM_TARGET_DEVICE": "the environment's build determines the device",
}
# Formats of weights that are read from files that lie beside config.json; others ask a server, or make weights up.
LOAD_FORMATS = ("auto", "bitsandbytes", "fastsafetensors", "hf", "mistral", "npcache", "pt", "safetensors")


INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?")
# human_readable_int() in vllm/utils/argparse_utils.py
COUNT = re.compile(r"[0-9]{1,18}(\.[0-9]+)?[kmgt]|[0-9]{1,18}[KMGT]|[+-]?[0-9]{1,18}")
# JSON that is a list of text; all others without a model of their own are objects
LISTS = frozenset(("allowed-origins", "allowed-methods", "allowed-headers"))
# Configurations that the parser takes as mere JSON, and the engine as more
MODELS = {"speculative-config": "SpeculativeConfig"}
_PLUGINS = {"reasoning-parser": "reasoning-parser-plugin", "tool-call-parser": "tool-parser-plugin"}


def find_option_problems(
    snapshot: VllmSnapshot, flags: Mapping[str, OptionSetting], own: Collection[str] = frozenset()
) -> dict[str, str]:
    """The problems of flags: name -> text, without those that are right.

    Args:
        snapshot: The version that is served with.
        flags: Option without its dashes -> value, or True for a bare one.
        own: Options, by any of their names, that are not for flags: of `MANAGED_FLAGS`, and those that other keys set.
    """
    taken = {
        option.dest: MANAGED_FLAGS.get(option.name, "other keys set it")
        for name in own
        if (option := snapshot.find(name))
    }
    seen: dict[str, str] = {}
    wrong: dict[str, str] = {}
    for flag, value in sorted(flags.items()):
        option = snapshot.find(flag)
        text = _describe_option_problem(snapshot, flag, option, value, flags)
        if option and option.dest in taken:
            text = f"is not allowed in flags: {taken[option.dest]}"
        elif option and option.dest in seen:
            text = f"duplicates --{seen[option.dest]}"
        if option:
            seen[option.dest] = flag
        if text:
            wrong[flag] = text
    return wrong


def _describe_option_problem(
    snapshot: VllmSnapshot,
    flag: str,
    option: VllmOption | None,
    value: OptionSetting,
    flags: Mapping[str, OptionSetting],
) -> str:
    if option is None:
        return describe_unknown_option(snapshot, flag)
    if f"--{flag}" not in option.names:
        return f'must be written with its long name, "{option.name}"'
    if text := describe_wrong_value(snapshot, option, flag, value):
        return text
    names = snapshot.registered.get(option.name, ())
    for one in value if isinstance(value, list) else [value]:
        if names and not (option.none and one == "None") and str(one) not in names:
            if _PLUGINS.get(option.name) in flags:
                continue
            return f'does not know "{one}"{suggestion(str(one), names)}'
        if option.name == "load-format" and one not in LOAD_FORMATS:
            return f'"{one}" does not load safetensors from the model\'s folder; allowed: {", ".join(LOAD_FORMATS)}'
    return ""


def describe_unknown_option(snapshot: VllmSnapshot, flag: str) -> str:
    """Why a name is no option, with the nearest one."""
    head, dot, _ = flag.partition(".")
    if dot and (option := snapshot.find(head)):
        return f"must be a table: {option.name} = {{...}}"
    if (dashed := flag.replace("_", "-")) != flag and snapshot.find(dashed):
        return f'must be written with dashes, "{dashed}"'
    if instead := REMOVED.get(dashed):
        return f"is no longer an option of vLLM {snapshot.version} ({instead[1]}); instead: {instead[0]}"
    whole = [name for name in snapshot.names() if name.startswith(flag)]
    if len(whole) == 1:
        return f'is an abbreviation: write "{whole[0]}"'
    return f"is not an option of vLLM {snapshot.version}{suggestion(flag, snapshot.names())}"


def describe_wrong_value(snapshot: VllmSnapshot, option: VllmOption, flag: str, value: OptionSetting) -> str:
    """Why an option, in one of its spellings, does not take a value, or nothing."""
    if option.kind in ("bare", "switch"):
        if value is True:
            return ""
        off = next((name[2:] for name in option.names if name.startswith("--no-") and name != f"--{flag}"), "")
        return f"takes no value: write true instead of {format_value(value)}" + (f", or {off} = true" if off else "")
    if isinstance(value, bool):
        return "" if value and option.values == "?" else f"needs a value: {_describe_allowed(option)}"
    if option.kind in ("json", "any"):
        return _describe_wrong_json(snapshot, option, value)
    if isinstance(value, dict):
        return f"takes no table: {_describe_allowed(option)}"
    if isinstance(value, list):
        if option.values not in ("+", "again"):
            return f"takes one value: {_describe_allowed(option)}"
        if not value:
            return f"needs a value: {_describe_allowed(option)}"
        several = [one for one in value if isinstance(one, bool | dict | list) or str(one).startswith("-")]
        if several and not (option.kind == "int" and INTEGER.fullmatch(str(several[0]))):
            return f"does not accept {format_value(several[0])}: {_describe_allowed(option)}"
    return next(
        (
            text
            for one in (value if isinstance(value, list) else [value])
            if (text := _describe_wrong_item(option, one))
        ),
        "",
    )


def _describe_allowed(option: VllmOption) -> str:
    if option.choices:
        return ", ".join(map(str, option.choices))
    words = {"int": "a whole number", "float": "a number", "count": "a number such as 8192 or 16k", "lora": "NAME=PATH"}
    return words.get(option.kind, {"count or auto": "a number such as 16k, or auto"}.get(option.kind, "text"))


def _describe_wrong_item(option: VllmOption, value: Any) -> str:
    text = str(value)
    if option.choices:
        chosen = text.lower().replace("-", "_") if option.folded else text
        allowed = [str(choice) for choice in option.choices]
        return "" if chosen in allowed else f'does not accept "{text}"{suggestion(text, allowed)}'
    if option.none and text in ("", "None"):
        return ""
    patterns = {"int": INTEGER, "float": NUMBER, "count": COUNT, "count or auto": COUNT}
    pattern = patterns.get(option.kind)
    if option.kind == "count or auto" and text.lower() == "auto":
        return ""
    if pattern and not pattern.fullmatch(text):
        return f"takes {_describe_allowed(option)}, not {format_value(value)}"
    if option.kind == "lora" and not re.fullmatch(r"[^=,{}]+=[^=,]+", text):
        return f"takes {_describe_allowed(option)}, not {format_value(value)}"
    if pattern and (must := option.bounds.describe_violation(parse_count(text))):
        return f"must be {must}, not {text}"
    return ""


def parse_count(text: str) -> float:
    """The number that a text in the form of COUNT or NUMBER means."""
    if text[-1:].lower() in ("k", "m", "g", "t"):
        power = "kmgt".index(text[-1].lower()) + 1
        return float(text[:-1]) * float(1000 if text[-1].islower() else 1024) ** power
    return float(text)


def _describe_wrong_json(snapshot: VllmSnapshot, option: VllmOption, value: OptionSetting) -> str:
    found: Any = value
    if isinstance(value, str):
        if option.none and value in ("", "None"):
            return ""
        if option.kind == "any" and not re.fullmatch(r"\s*\{.*\}\s*", value, re.DOTALL):
            return ""
        try:
            found = json.loads(value)
        except ValueError as error:
            return f"takes JSON: {error}"
    if option.name in LISTS:
        fine = isinstance(found, list) and all(isinstance(one, str) for one in found)
        return "" if fine else f"takes a list of text, not {format_value(found)}"
    if not isinstance(found, dict):
        return f"takes a table, not {format_value(found)}"
    return next(_wrong_keys(snapshot, option.model or MODELS.get(option.name, ""), found, ""), "")


def _wrong_keys(snapshot: VllmSnapshot, model: str, found: Mapping[str, Any], within: str) -> Iterator[str]:
    fields = snapshot.models.get(model)
    if fields is None:
        return
    for key, value in found.items():
        place = f"{within}{key}"
        if not (field := fields.get(key)):
            yield f"has no key {place}{suggestion(key, fields)}"
        elif text := _wrong_field(field, value):
            yield f"{place}: {text}"
        elif field.model and isinstance(value, dict):
            yield from _wrong_keys(snapshot, field.model, value, f"{place}.")


def _wrong_field(field: JsonField, value: Any) -> str:
    kind = _json_kind(value)
    if field.values and not isinstance(value, bool) and value in field.values:
        return ""
    if kind == "array" and kind in field.types:
        return _wrong_items(field, value)
    if kind in field.types or (kind == "integer" and "number" in field.types):
        return _describe_bounds_problem(field.bounds, value) if kind in ("integer", "number") else ""
    if field.values:
        return f"{format_value(value)} is not accepted{suggestion(str(value), map(str, field.values))}"
    return f"must be {' or '.join(sorted(field.types - {'null'}))}, not {format_value(value)}"


def _wrong_items(field: JsonField, value: list[Any]) -> str:
    taken = {*field.items, *(["integer"] if "number" in field.items else [])}
    wrong = [one for one in value if _json_kind(one) not in taken] if field.items else []
    return f"{format_value(wrong[0])} is not {' or '.join(field.items)}" if wrong else ""


def _describe_bounds_problem(bounds: NumberBounds, value: float) -> str:
    return f"must be {must}, not {value}" if (must := bounds.describe_violation(value)) else ""


def _json_kind(value: object) -> str:
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "null" if value is None else "object"


def find_variable_problems(snapshot: VllmSnapshot, environment: Mapping[str, str]) -> dict[str, str]:
    """The problems of variables: name -> text, without those that are right."""
    found = {name: _describe_variable_problem(snapshot, name, value) for name, value in sorted(environment.items())}
    return {name: text for name, text in found.items() if text}


def _describe_variable_problem(snapshot: VllmSnapshot, name: str, value: str) -> str:
    if why := MANAGED_VARIABLES.get(name):
        return f"is not allowed in a catalogue: {why}"
    if known := snapshot.variables.get(name):
        return _wrong_variable(known, value)
    if instead := REMOVED_VARIABLES.get(name):
        return f"is no longer a variable of vLLM {snapshot.version} ({instead[1]}); instead: {instead[0]}"
    if name.startswith("VLLM_"):
        return f"is not a variable of vLLM {snapshot.version}{suggestion(name, snapshot.variables)}"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return "is not a valid variable name"
    return ""


def _wrong_variable(known: EnvironmentVariable, value: str) -> str:
    parts = value.split(",") if known.kind == "list of choices" else [value]
    if wrong := [one for one in parts if known.choices and one not in known.choices]:
        return f'does not accept "{wrong[0]}"{suggestion(wrong[0], known.choices)}'
    pattern = {"int": INTEGER, "float": NUMBER}.get(known.kind)
    if pattern and not pattern.fullmatch(value):
        return f"takes a {'whole ' if pattern is INTEGER else ''}number, not {format_value(value)}"
    if known.kind == "json":
        try:
            json.loads(value)
        except ValueError as error:
            return f"takes JSON: {error}"
    return ""
