"""What a catalogue may not say by itself, for it is data: names of programs, files, folders, servers and listeners.

CMake runs the programs and reads the files that its variables name, and llama-server opens what its options name. So
only what is known to be a switch, a number, one of a few words or mere text is let through; the rest is the
inventory's to allow by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rigwright.engines.llama_cpp.option_table import NUMBER, LlamaOption, LlamaSnapshot
from rigwright.problems import suggestion

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
# snapshot could say of one that nobody has seen yet that it is another name of these.
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
            `judge`'s to refuse.
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
