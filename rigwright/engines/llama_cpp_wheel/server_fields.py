"""The fields that an instance's keys and flags set, and how its server is started."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import cast

from rigwright.engines.engine_interface import KEY_FILE, ServiceSpec
from rigwright.engines.llama_cpp import command
from rigwright.engines.llama_cpp.catalog_keys import LlamaVariant
from rigwright.engines.llama_cpp.model_files import OPTIONS as MODEL_OPTIONS
from rigwright.engines.llama_cpp_wheel.option_fields import OPTIONS, Fields, cache_type, convert_flags
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.model.monitoring_schema import Monitoring, metrics_readers
from rigwright.model.roots import Roots
from rigwright.model.shared_results import share_results

# The text of an installation's bin/llama-server.
LAUNCHER = Path(__file__).with_name("launcher.py").read_text()
LAUNCHER_DIGEST = hashlib.sha256(LAUNCHER.encode()).hexdigest()
FLASH_ATTENTION = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
REASONING = {"on": 1, "off": 0, "auto": -1}
# Options of llama-server for a model's files, and the field of each. Drafts have none.
PART_FIELDS = {MODEL_OPTIONS["file"]: "model.path", MODEL_OPTIONS["mmproj"]: "mmproj.path"}
TEMPLATE = MODEL_OPTIONS["chat_template"]
THREADS, BATCH_THREADS = "cpuparams.n_threads", "cpuparams_batch.n_threads"


def key_fields(instance: Instance, roots: Roots) -> Fields:
    """The fields that an instance's keys set, and those that every instance has."""
    variant = cast("LlamaVariant", instance.variant)
    found: Fields = {
        PART_FIELDS[part.option]: roots.weight_path(part.files[0])
        for part in instance.parts
        if part.option in PART_FIELDS
    }
    found |= {
        "model_alias": [instance.model_name],
        "hostnames": [instance.socket],
        "n_ctx": variant.context,
        "n_parallel": variant.parallel,
        "n_gpu_layers": 0,
        "mmproj_use_gpu": False,
        "cache_type_k": cache_type(variant.cache_type_k),
        "cache_type_v": cache_type(variant.cache_type_v),
        "flash_attn_type": f"LLAMA_FLASH_ATTN_TYPE_{FLASH_ATTENTION[variant.flash_attention]}",
        "fit_params": False,
        # no page for browsers, and nothing that a download would bring
        "ui": False,
        "offline": True,
    }
    if variant.memory_lock:
        found["load_mode"] = "LLAMA_LOAD_MODE_MMAP_MLOCK"
    if not command.CORS & variant.flags.keys():
        # by itself it tells browsers that any page may ask, with credentials
        found |= {"cors_origins": "localhost", "cors_credentials": False}
    if variant.thinking:
        found["enable_reasoning"] = REASONING[variant.thinking]
        if variant.thinking != "auto":
            found["default_template_kwargs"] = {"enable_thinking": json.dumps(variant.thinking == "on")}
    return found


def key_files(instance: Instance, roots: Roots) -> dict[str, str]:
    """The fields that get a file's text, with the file's path."""
    templates = [roots.weight_path(part.files[0]) for part in instance.parts if part.option == TEMPLATE]
    return {"chat_template": templates[0]} if templates else {}


def options_of_keys(instance: Instance, roots: Roots) -> frozenset[str]:
    """Options whose fields an instance's keys set; tables are merged."""
    taken = {name for name, value in key_fields(instance, roots).items() if not isinstance(value, dict)}
    taken |= key_files(instance, roots).keys()
    return frozenset(name for name, option in OPTIONS.items() if taken & {*option.fields})


@share_results
def render_settings(roots: Roots, instance: Instance, *, metrics: bool) -> str:
    """The settings of the launcher, as JSON.

    Args:
        roots: Directories on the host.
        instance: The instance.
        metrics: Whether it serves its metrics without being told by a flag.
    """
    own, flags = key_fields(instance, roots), convert_flags(cast("LlamaVariant", instance.variant).flags)
    tables = {
        name: {**cast("dict[str, object]", own[name]), **cast("dict[str, object]", flags[name])}
        for name in own.keys() & flags.keys()
        if isinstance(own[name], dict)
    }
    fields = {**own, **flags, **tables, **({"endpoint_metrics": True} if metrics else {})}
    if THREADS in fields:
        # llama-server's command line does the same (llama.cpp, common/arg.cpp, postprocess_cpu_params)
        fields.setdefault(BATCH_THREADS, fields[THREADS])
    return json.dumps({"fields": fields, "files": key_files(instance, roots)}, sort_keys=True)


def wheel_service(
    roots: Roots, gateway: Gateway | None, monitoring: Monitoring | None, instance: Instance, folder: str
) -> ServiceSpec:
    """How an instance is run: as llama-server is, by another command line."""
    made = command.llama_service(roots, gateway, monitoring, instance, folder)
    settings = render_settings(roots, instance, metrics=bool(metrics_readers(gateway, monitoring)))
    return replace(made, command=(f"{folder}/bin/llama-server", KEY_FILE, settings))
