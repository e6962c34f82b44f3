"""Options of a vLLM version, and the names that it registers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from lab.vllm_snapshot.config_models import ConfigModels, Json
from lab.vllm_snapshot.stand_in_libcuda import load_stand_in
from lab.vllm_snapshot.variables import environment_variables

# of cards that there are
CAPABILITIES = (75, 80, 86, 89, 90, 100, 120)


def registered_names() -> Json:
    """Its registered names, by the option that takes such a name."""
    quantization = import_module("vllm.model_executor.layers.quantization")
    speculative = import_module("vllm.config.speculative")
    loaders = import_module("vllm.model_executor.model_loader")
    registry = import_module("vllm.model_executor.models.registry")
    backends = import_module("vllm.v1.attention.backends.registry").AttentionBackendEnum
    mamba = import_module("vllm.config.mamba").MambaBackendEnum
    levels = import_module("vllm.config.vllm").OptimizationLevel
    return {
        "reasoning-parser": sorted(import_module("vllm.reasoning").ReasoningParserManager.list_registered()),
        "tool-call-parser": sorted(import_module("vllm.tool_parsers").ToolParserManager.list_registered()),
        "quantization": {
            name: _quantization_method(quantization, name) for name in sorted(quantization.QUANTIZATION_METHODS)
        },
        "deprecated-quantization": sorted(quantization.DEPRECATED_QUANTIZATION_METHODS),
        "attention-backend": ["auto", *sorted(backends.__members__)],
        "mm-encoder-attn-backend": sorted(backends.__members__),
        "mamba-backend": sorted(mamba.__members__),
        "optimization-level": sorted(str(level.value) for level in levels),
        "speculative-method": sorted(_literal_values(speculative.SpeculativeMethod)),
        "load-format": sorted(loaders._LOAD_FORMAT_TO_MODEL_LOADER),
        "architectures": sorted({**registry._TEXT_GENERATION_MODELS, **registry._MULTIMODAL_MODELS}),
        "other-architectures": sorted(registry._VLLM_MODELS),
        "no-float16": sorted(import_module("vllm.config.model")._FLOAT16_NOT_SUPPORTED_MODELS),
        **_draft_models(speculative, registry),
        "kv-cache-backends": _backends_by_dtype("float16"),
        "kv-cache-backends, float32": _backends_by_dtype("float32"),
    }


def _quantization_method(quantization: Any, name: str) -> Json:
    """The least compute capability of a quantization method (7.5 is 75), the types that it
    computes in, and whether it quantises weights that are not.
    """
    cls = quantization.get_quantization_config(name)
    dtypes = [str(one).removeprefix("torch.") for one in cls.__new__(cls).get_supported_act_dtypes()]
    try:
        # another option sets the scheme of `online`, and schemes are names of their own
        scheme = cls is quantization.get_quantization_config("online") and name != "online"
        alone = scheme or (bool(cls()) and not cls.get_config_filenames())
    except Exception:  # it cannot be without what a model says of its weights, or without another package
        alone = False
    return {"capability": cls.get_min_capability(), "dtypes": sorted(dtypes), "alone": alone}


def _literal_values(kind: Any) -> Iterator[str]:
    for one in kind.__args__:
        if isinstance(one, str):
            yield one
        else:
            yield from _literal_values(one)


def _draft_models(speculative: Any, registry: Any) -> Json:
    """The models that bring layers which predict several tokens: by their config's model_type, or by architecture."""
    known = {*_literal_values(speculative.MTPModelTypes)}
    types = {*import_module("transformers").CONFIG_MAPPING.keys()}
    types |= {*import_module("vllm.transformers_utils.config")._CONFIG_REGISTRY}

    def predicts(model_type: str, architecture: str) -> bool:
        config = import_module("transformers").PretrainedConfig(architectures=[architecture])
        config.model_type = model_type
        try:
            return speculative.SpeculativeConfig.hf_config_override(config).model_type in known
        except Exception:  # it looks for what this config has not: it was recognised
            return True

    return {
        "mtp-types": sorted(one for one in types - known if predicts(one, "X")),
        "mtp-architectures": sorted(one for one in registry._VLLM_MODELS if predicts("x", one)),
    }


def _backends_by_dtype(dtype: str) -> Json:
    return {name: _attention_backends(name, dtype) for name in import_module("vllm.config.cache").CacheDType.__args__}


def _attention_backends(kind: str, dtype: str) -> Json:
    """The attention backends of a type of KV cache, by compute capability, for heads of 128."""
    interface = import_module("vllm.platforms.interface")
    platform = import_module("vllm.platforms.cuda").NonNvmlCudaPlatform
    selector = import_module("vllm.v1.attention.selector").AttentionSelectorConfig
    wanted = selector(head_size=128, dtype=getattr(import_module("torch"), dtype), kv_cache_dtype=kind, block_size=None)
    made = {}
    for capability in CAPABILITIES:
        card = interface.DeviceCapability(*divmod(capability, 10))
        found, _ = platform.get_valid_backends(card, wanted)
        made[f"{capability // 10}.{capability % 10}"] = [backend.name for backend, _ in found]
    return made


def serve_parser() -> Any:
    """The parser of `vllm serve`, for CUDA, on a machine that may have no card."""
    load_stand_in()
    import_module("vllm.config.device")  # looks at the platform while it is imported
    import_module("vllm.platforms").current_platform.device_type = "cuda"
    flexible = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    return import_module("vllm.entrypoints.openai.cli_args").make_arg_parser(flexible(prog="vllm serve"))


def take_snapshot() -> Json:
    """All of it."""
    actions = serve_parser()._actions
    models = ConfigModels()
    options = [_describe_option(action, models) for action in actions if action.option_strings]
    models.add_model(import_module("vllm.config").SpeculativeConfig)
    for option in options:
        if bounds := models.number_bounds(option["dest"]):
            option["bounds"] = bounds
    return {
        "version": import_module("vllm").__version__,
        "options": options,
        "models": dict(sorted(models.found.items())),
        "variables": environment_variables(),
        "names": registered_names(),
    }


def _describe_option(action: argparse.Action, models: ConfigModels) -> Json:
    made: Json = {"names": list(action.option_strings), "dest": action.dest}
    if type(action.default) in (bool, int, float, str) and action.default != argparse.SUPPRESS:
        made["default"] = action.default
    if isinstance(action, argparse.BooleanOptionalAction):
        return {**made, "kind": "switch"}
    if action.nargs == 0:
        return {**made, "kind": "bare"}
    made |= _describe_kind(action.type, models)
    if type(action).__name__ == "LoRAParserAction":
        made["kind"] = "lora"
    if action.nargs is not None:
        made["values"] = action.nargs
    elif isinstance(action, argparse._AppendAction):
        made["values"] = "again"
    if action.choices is not None:
        made["choices"] = [choice for choice in action.choices if choice != "None"]
    return made


def _describe_kind(kind: Any, models: ConfigModels) -> Json:
    """The result of a parser's `type` for a word: those are functions around functions (vllm/engine/arg_utils.py)."""
    if kind in (None, str, int, float, json.loads):
        return {"kind": {None: "text", str: "text", int: "int", float: "float"}.get(kind, "json")}
    name = kind.__qualname__
    inner = [cell.cell_contents for cell in kind.__closure__ or () if callable(cell.cell_contents)]
    if name.endswith("_optional_type"):
        return {**_describe_kind(inner[0], models), "none": True}
    if name.endswith("_parse_type"):
        return _describe_kind(inner[0], models)
    if name.endswith("parse_dataclass"):
        return {"kind": "json", "model": models.add_model(kind.__defaults__[0])}
    if name.endswith("<lambda>"):
        return {"kind": "text", "folded": True}  # --moe-backend: case and dashes do not matter
    known = {"human_readable_int": "count", "human_readable_int_or_auto": "count or auto", "union_dict_and_str": "any"}
    return {"kind": known[name]}
