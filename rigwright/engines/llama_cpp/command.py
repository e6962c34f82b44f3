"""The command line of llama-server: options and the keys that it leaves to Rigwright.

CMake runs the programs and reads the files that its variables name, and llama-server opens what its options name. So
only what is known to be a switch, a number, one of a few words or mere text is let through; the rest is the
inventory's to allow by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from rigwright.engines.engine_interface import KEY_FILE, Sandbox, ServiceSpec
from rigwright.engines.instance_request import HEALTH_REQUEST
from rigwright.engines.llama_cpp.catalog_keys import LlamaVariant
from rigwright.engines.llama_cpp.option_table import NUMBER, LlamaOption, LlamaSnapshot
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.model.monitoring_schema import Monitoring, metrics_readers
from rigwright.model.roots import Roots
from rigwright.problems import suggestion

SANDBOX = Sandbox(
    exposure=0.5,
    exposure_with_cards=1.0,
    hidden=(("/etc/llama.cpp", "read by llama-server before its arguments (common/arg.cpp), and known to no digest"),),
)
METRICS, SLOTS, PROPERTIES = "/metrics", "/slots", "/props"
# Browsers are refused, unless a variant declares otherwise.
CORS = frozenset({"cors-origins", "cors-methods", "cors-headers", "cors-credentials", "no-cors-credentials"})


def key_options(instance: Instance, roots: Roots) -> dict[str, str | bool]:
    """The flags that an instance's keys set: option without its dashes -> value, or True for a bare one."""
    variant, snapshot = cast("LlamaVariant", instance.variant), cast("LlamaSnapshot | None", instance.known)
    made: dict[str, str | bool] = {part.option: roots.weight_path(part.files[0]) for part in instance.parts}
    made |= {
        "alias": instance.model_name,
        "host": instance.socket,
        "ctx-size": str(variant.context),
        "parallel": str(variant.parallel),
        "n-gpu-layers": "all" if instance.cards else "0",
        "cache-type-k": variant.cache_type_k,
        "cache-type-v": variant.cache_type_v,
        "flash-attn": variant.flash_attention,
        "api-key-file": KEY_FILE,
    }
    if variant.memory_lock:
        # one option became another (llama.cpp's pull request 20834): both map the file and lock what is mapped
        old = snapshot is not None and snapshot.find("mlock")
        made |= {"mlock": True} if old else {"load-mode": "mmap+mlock"}
    if snapshot and snapshot.find("fit"):
        # on, it changes what is not set, such as the context of a draft or what lies in RAM, by what a card has free
        made["fit"] = "off"
    if variant.split_mode:
        made["split-mode"] = variant.split_mode
    if variant.shares:
        made["tensor-split"] = ",".join(map(str, variant.shares))
    if snapshot and snapshot.find("cors-origins") and not CORS & variant.flags.keys():
        # by itself it tells browsers that any page may ask, with credentials
        made |= {"cors-origins": "localhost", "no-cors-credentials": True}
    if variant.thinking:
        made["reasoning"] = variant.thinking
    return made


def server_command(
    roots: Roots, gateway: Gateway | None, monitoring: Monitoring | None, instance: Instance, folder: str
) -> tuple[str, ...]:
    """The command line, one word an item.

    Args:
        roots: Directories on the host.
        gateway: The declared gateway.
        monitoring: The declared monitoring.
        instance: The instance.
        folder: The absolute path of its engine's installation.
    """
    words = [f"{folder}/bin/llama-server"]
    # asked for by name or not: an engine reports its figures to any client that may ask for them
    flags = dict(cast("LlamaVariant", instance.variant).flags) | (
        {"metrics": True} if metrics_readers(gateway, monitoring) else {}
    )
    for option, value in (*key_options(instance, roots).items(), *sorted(flags.items())):
        words += [f"--{option}"] if value is True else [f"--{option}", value if isinstance(value, str) else str(value)]
    return tuple(words)


def llama_service(
    roots: Roots, gateway: Gateway | None, monitoring: Monitoring | None, instance: Instance, folder: str
) -> ServiceSpec:
    """How an instance is run."""
    variant = cast("LlamaVariant", instance.variant)
    return ServiceSpec(
        command=server_command(roots, gateway, monitoring, instance, folder),
        environment={},
        sandbox=SANDBOX,
        # a line of the unit: other words would have every box start its instances anew
        about=f"{variant.context_per_sequence} tokens a slot",
        # /health answers after the model is loaded and a first pass computed, unless the warm-up is off
        ready_again=None if "no-warmup" in variant.flags else HEALTH_REQUEST,
        completions="/completion",
        metrics=METRICS if metrics_readers(gateway, monitoring) or "metrics" in variant.flags else None,
    )


# ggml's and llama.cpp's own: option() and numbers in their CMakeLists.txt
PROJECT = re.compile(r"(?:GGML|LLAMA)_[A-Z0-9_]+")
SWITCH = re.compile(r"ON|OFF|TRUE|FALSE|YES|NO|[0-9]{1,9}")
# CMake's own switches (cmake-variables(7)) that name nothing
SWITCHES = frozenset(
    (
        *("BUILD_SHARED_LIBS", "CMAKE_BUILD_RPATH_USE_ORIGIN", "CMAKE_INTERPROCEDURAL_OPTIMIZATION"),
        *("CMAKE_POSITION_INDEPENDENT_CODE", "CMAKE_UNITY_BUILD", "CMAKE_VERBOSE_MAKEFILE"),
    )
)
# Those that take one of a few words: cmake-variables(7), ggml/CMakeLists.txt, ggml/src/ggml-blas/CMakeLists.txt
CHOICES = {
    "CMAKE_BUILD_TYPE": ("Debug", "MinSizeRel", "RelWithDebInfo", "Release"),
    "GGML_BLAS_VENDOR": ("ATLAS", "FLAME", "FlexiBLAS", "Generic", "Intel", "NVHPC", "OpenBLAS"),
    "GGML_CUDA_COMPRESSION_MODE": ("balance", "none", "size", "speed"),
}
# Of llama-server's options (its --help), whatever a snapshot says that they take: those that read or write a file or
# a folder, search one for programs, or reach or open a port. The rig's own are not among them: keys.OWN_FLAGS.
RESERVED = frozenset(
    (
        *("lora", "lora-scaled", "control-vector", "control-vector-scaled", "log-file", "log-prompts-dir"),
        *("grammar-file", "json-schema-file", "chat-template-file", "lookup-cache-static", "lookup-cache-dynamic"),
        *("slot-save-path", "media-path", "path", "ui-config-file", "webui-config-file", "video-ffmpeg-dir"),
        *("rpc", "reuse-port"),
    )
)
# Those whose value is text that names nothing outside of the model and its cards, by all of their long names: a
# snapshot could describe a new option as another name of these.
TEXTS = frozenset(
    (
        *("cpu-mask", "cpu-range", "cpu-mask-batch", "cpu-range-batch", "spec-draft-cpu-mask", "cpu-mask-draft"),
        *("spec-draft-cpu-range", "cpu-range-draft", "spec-draft-cpu-mask-batch", "cpu-mask-batch-draft"),
        *("device", "spec-draft-device", "device-draft", "mmproj-device", "spec-draft-ngl", "gpu-layers-draft"),
        *("n-gpu-layers-draft", "override-tensor", "spec-draft-override-tensor", "override-tensor-draft"),
        *("override-kv", "samplers", "sampler-seq", "sampling-seq", "dry-sequence-breaker", "logit-bias", "grammar"),
        *("json-schema", "reverse-prompt", "tags", "chat-template", "chat-template-kwargs", "reasoning-effort"),
        *("reasoning-budget-message", "cors-origins", "cors-methods", "cors-headers", "ui-config", "webui-config"),
    )
)


def forbidden_cmake_options(declared: Mapping[str, str]) -> dict[str, str]:
    """CMake options that a catalogue may not set by itself: name -> why, and what is allowed."""
    return {name: why for name, value in sorted(declared.items()) if (why := _describe_forbidden_option(name, value))}


def _describe_forbidden_option(name: str, value: str) -> str:
    if choices := CHOICES.get(name):
        return "" if value in choices else f"must be {' or '.join(choices)}"
    if name in SWITCHES or PROJECT.fullmatch(name):
        return "" if SWITCH.fullmatch(value) else "must be ON, OFF or a number"
    near = suggestion(name, (*SWITCHES, *CHOICES)) if name.startswith("CMAKE_") else "; allowed: GGML_* and LLAMA_*"
    return f"may name a program or a file to CMake{near}"


def forbidden_flags(snapshot: LlamaSnapshot, declared: Mapping[str, str | bool]) -> dict[str, str]:
    """Options of llama-server that a catalogue may not set by itself: name -> why.

    Args:
        snapshot: The options of the version that is served with; it lies in a catalogue, too.
        declared: Option without its dashes -> value, or True for a bare one; those that it does not have are
            `find_flag_problems`'s to refuse.
    """
    found = {name: snapshot.find(name) for name in sorted(declared)}
    return {
        name: why
        for name, option in found.items()
        if option and (why := _describe_forbidden_flag(name, option, declared[name]))
    }


def _describe_forbidden_flag(name: str, option: LlamaOption, value: str | bool) -> str:
    what = f" (--help: {option.hint})" if option.hint else ""
    if name in RESERVED or RESERVED & {spelling.lstrip("-") for spelling in option.spellings}:
        return f"makes llama-server open a file, a folder or a port{what}"
    if isinstance(value, bool) or name in TEXTS:
        return ""
    if all(NUMBER.fullmatch(part) for part in value.split(",")) or _is_listed(option, value):
        return ""
    return f"could be a path or an address{what}; use a number or a value that --help lists"


def _is_listed(option: LlamaOption, value: str) -> bool:
    return all(re.fullmatch(r"[\w+-]+", part) and part in option.allowed for part in value.split(","))
