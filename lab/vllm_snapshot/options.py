"""Options of `vllm serve`, and names that are registered for some of them."""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from typing import Any

from lab.vllm_snapshot.config_models import ConfigModels, Json
from lab.vllm_snapshot.registered_names import registered_names
from lab.vllm_snapshot.stand_in_libcuda import load_stand_in
from lab.vllm_snapshot.variables import environment_variables


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
    """What a parser's `type` makes of a word: those are functions around functions (vllm/engine/arg_utils.py)."""
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
