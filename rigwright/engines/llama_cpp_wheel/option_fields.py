"""The fields of xllamacpp's CommonParams that options of llama-server set: a closed table, with the type of each value.

Names and values are those of `llama-server --help`; fields and their types those of xllamacpp 2026.10.11549. No option
of the table names a file, a folder, a program, a server or a listener.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rigwright.engines.llama_cpp.option_table import NUMBER
from rigwright.problems import suggestion

FieldValue = bool | int | float | str | list[str] | dict[str, object]
Fields = dict[str, FieldValue]
# The largest number of llama.cpp's 32-bit integers.
MOST = 2**31 - 1
WHOLE = re.compile(r"[+-]?[0-9]{1,10}")
# Bits of `sampling.user_sampling_config` (llama.cpp, common/common.h): a bit keeps the value where a model's file has
# another one.
SAMPLING = "sampling.user_sampling_config"
SAMPLING_BITS = {
    **{"samplers": 1, "top-k": 2, "top-p": 4, "min-p": 8, "xtc-probability": 16, "xtc-threshold": 32, "temp": 64},
    **{"repeat-last-n": 128, "repeat-penalty": 256, "mirostat": 512, "mirostat-ent": 1024, "mirostat-lr": 2048},
}


@dataclass(frozen=True)
class OptionField:
    """One option, and the fields that it sets."""

    fields: tuple[str, ...]

    def describe_wrong_value(self, value: str | bool) -> str:
        """The problem of a value; empty for one that is right."""
        raise NotImplementedError

    def convert_value(self, value: str | bool) -> FieldValue:
        """A right value, as the fields take it."""
        raise NotImplementedError


@dataclass(frozen=True)
class SwitchField(OptionField):
    """A switch, with the value that it sets."""

    value: bool = True

    def describe_wrong_value(self, value: str | bool) -> str:
        """A switch takes true alone."""
        return "" if value is True else f'takes no value: write true instead of "{value}"'

    def convert_value(self, value: str | bool) -> FieldValue:
        """The switch's own."""
        return self.value


@dataclass(frozen=True)
class NumberField(OptionField):
    """A number within bounds, both included."""

    least: float = 0
    most: float = MOST
    fraction: bool = False
    """Whether it may have one."""

    def describe_wrong_value(self, value: str | bool) -> str:
        """It takes a number within the bounds."""
        pattern = NUMBER if self.fraction else WHOLE
        if isinstance(value, str) and pattern.fullmatch(value) and self.least <= float(value) <= self.most:
            return ""
        what = "a number" if self.fraction else "a whole number"
        got = "true" if value is True else f'"{value}"'
        return f"takes {what} from {self.least:.10g} to {self.most:.10g}, not {got}"

    def convert_value(self, value: str | bool) -> FieldValue:
        """The number."""
        return float(value) if self.fraction else int(value)


@dataclass(frozen=True)
class ChoiceField(OptionField):
    """One of a few words, each a value of the fields."""

    choices: Mapping[str, FieldValue] = field(default_factory=dict)

    def describe_wrong_value(self, value: str | bool) -> str:
        """It takes one of the words."""
        if isinstance(value, str) and value in self.choices:
            return ""
        near = suggestion(value, self.choices) if isinstance(value, str) else ""
        got = "true" if value is True else f'"{value}"'
        return f"takes one of {', '.join(self.choices)}, not {got}{near}"

    def convert_value(self, value: str | bool) -> FieldValue:
        """The word's."""
        return self.choices[str(value)]


@dataclass(frozen=True)
class TextField(OptionField):
    """Any text."""

    def describe_wrong_value(self, value: str | bool) -> str:
        """It takes a text."""
        return "takes a value" if isinstance(value, bool) else ""

    def convert_value(self, value: str | bool) -> FieldValue:
        """The text."""
        return str(value)


@dataclass(frozen=True)
class ListField(TextField):
    """Texts with commas between them."""

    def convert_value(self, value: str | bool) -> FieldValue:
        """The texts."""
        return str(value).split(",")


@dataclass(frozen=True)
class TableField(TextField):
    """A JSON object."""

    def describe_wrong_value(self, value: str | bool) -> str:
        """It takes a JSON object."""
        try:
            found = json.loads(str(value))
        except (ValueError, RecursionError):
            found = None
        return "" if isinstance(found, dict) else f"takes a JSON object, not {json.dumps(value)}"

    def convert_value(self, value: str | bool) -> FieldValue:
        """Its values as JSON: that is how llama-server keeps them."""
        return {name: json.dumps(one) for name, one in json.loads(str(value)).items()}


def _switches(name: str, *fields: str, on: bool = True) -> dict[str, OptionField]:
    """A switch and its opposite; `on` is the fields' value of the plain name."""
    return {name: SwitchField(fields, on), f"no-{name}": SwitchField(fields, not on)}


def _members(prefix: str, *names: str) -> dict[str, FieldValue]:
    return {name: prefix + name.upper().replace("-", "_").replace("+", "_") for name in names}


def cache_type(name: str) -> str:
    """A KV cache type, as the field takes it."""
    return f"GGML_TYPE_{name.upper()}"


_PRIORITIES = {str(number): f"GGML_SCHED_PRIO_{name}" for number, name in enumerate(("NORMAL", "MEDIUM", "HIGH"))}
OPTIONS: Mapping[str, OptionField] = {
    # processors and memory
    "threads": NumberField(("cpuparams.n_threads",), 1, 512),
    "threads-batch": NumberField(("cpuparams_batch.n_threads",), 1, 512),
    "threads-http": NumberField(("n_threads_http",), 1, 512),
    "poll": NumberField(("cpuparams.poll",), 0, 100),
    "prio": ChoiceField(("cpuparams.priority",), {"-1": "GGML_SCHED_PRIO_LOW", **_PRIORITIES}),
    "numa": ChoiceField(("numa",), _members("GGML_NUMA_STRATEGY_", "distribute", "isolate", "numactl")),
    "load-mode": ChoiceField(
        ("load_mode",), _members("LLAMA_LOAD_MODE_", "auto", "none", "mmap", "mlock", "mmap+mlock")
    ),
    **_switches("repack", "no_extra_bufts", on=False),
    "check-tensors": SwitchField(("check_tensors",)),
    # context and cache
    "batch-size": NumberField(("n_batch",), 1),
    "ubatch-size": NumberField(("n_ubatch",), 1),
    "keep": NumberField(("n_keep",), -1),
    "predict": NumberField(("n_predict",), -1),
    "swa-full": SwitchField(("swa_full",)),
    **_switches("kv-unified", "kv_unified"),
    "cache-ram": NumberField(("cache_ram_mib",), -1),
    "cache-reuse": NumberField(("n_cache_reuse",)),
    **_switches("cache-prompt", "cache_prompt"),
    **_switches("cache-idle-slots", "cache_idle_slots"),
    "ctx-checkpoints": NumberField(("n_ctx_checkpoints",)),
    "checkpoint-min-step": NumberField(("checkpoint_min_step",)),
    **_switches("context-shift", "ctx_shift"),
    **_switches("cont-batching", "cont_batching"),
    **_switches("warmup", "warmup"),
    "slot-prompt-similarity": NumberField(("slot_prompt_similarity",), 0, 1, fraction=True),
    "sleep-idle-seconds": NumberField(("sleep_idle_seconds",), -1),
    # positions
    "rope-scaling": ChoiceField(("rope_scaling_type",), _members("LLAMA_ROPE_SCALING_TYPE_", "none", "linear", "yarn")),
    "rope-freq-base": NumberField(("rope_freq_base",), 0, fraction=True),
    "rope-freq-scale": NumberField(("rope_freq_scale",), 0, fraction=True),
    "yarn-orig-ctx": NumberField(("yarn_orig_ctx",)),
    "yarn-ext-factor": NumberField(("yarn_ext_factor",), -1, fraction=True),
    "yarn-attn-factor": NumberField(("yarn_attn_factor",), -1, fraction=True),
    "yarn-beta-slow": NumberField(("yarn_beta_slow",), -1, fraction=True),
    "yarn-beta-fast": NumberField(("yarn_beta_fast",), -1, fraction=True),
    # templates and reasoning
    **_switches("jinja", "use_jinja"),
    "chat-template": TextField(("chat_template",)),
    "chat-template-kwargs": TableField(("default_template_kwargs",)),
    **_switches("skip-chat-parsing", "force_pure_content_parser"),
    **_switches("prefill-assistant", "prefill_assistant"),
    "reasoning-format": ChoiceField(
        ("reasoning_format",), _members("COMMON_REASONING_FORMAT_", "none", "auto", "deepseek", "deepseek-legacy")
    ),
    "special": SwitchField(("special",)),
    # pictures
    "image-min-tokens": NumberField(("image_min_tokens",), 1),
    "image-max-tokens": NumberField(("image_max_tokens",), 1),
    # sampling
    "samplers": TextField(("sampling.samplers",)),
    "seed": NumberField(("sampling.seed",), 0, 2**32 - 1),
    "temp": NumberField(("sampling.temp",), 0, fraction=True),
    "top-k": NumberField(("sampling.top_k",)),
    "top-p": NumberField(("sampling.top_p",), 0, 1, fraction=True),
    "min-p": NumberField(("sampling.min_p",), 0, 1, fraction=True),
    "typical": NumberField(("sampling.typ_p",), 0, 1, fraction=True),
    "xtc-probability": NumberField(("sampling.xtc_probability",), 0, 1, fraction=True),
    "xtc-threshold": NumberField(("sampling.xtc_threshold",), 0, 1, fraction=True),
    "repeat-last-n": NumberField(("sampling.penalty_last_n",), -1),
    "repeat-penalty": NumberField(("sampling.penalty_repeat",), 0, fraction=True),
    "presence-penalty": NumberField(("sampling.penalty_present",), -2, 2, fraction=True),
    "frequency-penalty": NumberField(("sampling.penalty_freq",), -2, 2, fraction=True),
    "dry-multiplier": NumberField(("sampling.dry_multiplier",), 0, fraction=True),
    "dry-base": NumberField(("sampling.dry_base",), 0, fraction=True),
    "dry-allowed-length": NumberField(("sampling.dry_allowed_length",)),
    "dry-penalty-last-n": NumberField(("sampling.dry_penalty_last_n",), -1),
    "dynatemp-range": NumberField(("sampling.dynatemp_range",), 0, fraction=True),
    "dynatemp-exp": NumberField(("sampling.dynatemp_exponent",), 0, fraction=True),
    "mirostat": NumberField(("sampling.mirostat",), 0, 2),
    "mirostat-lr": NumberField(("sampling.mirostat_eta",), 0, fraction=True),
    "mirostat-ent": NumberField(("sampling.mirostat_tau",), 0, fraction=True),
    "ignore-eos": SwitchField(("sampling.ignore_eos",)),
    # HTTP
    "metrics": SwitchField(("endpoint_metrics",)),
    "props": SwitchField(("endpoint_props",)),
    **_switches("slots", "endpoint_slots"),
    "timeout": NumberField(("timeout_read", "timeout_write"), 1),
    "sse-ping-interval": NumberField(("sse_ping_interval",), -1),
    "tags": ListField(("model_tags",)),
    "cors-origins": TextField(("cors_origins",)),
    "cors-methods": TextField(("cors_methods",)),
    "cors-headers": TextField(("cors_headers",)),
    **_switches("cors-credentials", "cors_credentials"),
    # log
    "verbosity": NumberField(("verbosity",), 0, 9),
}
# Other long names that llama-server has for them (`llama-server --help`).
ALIASES = {
    **{"n-predict": "predict", "log-verbosity": "verbosity", "temperature": "temp", "typical-p": "typical"},
    **{"kvu": "kv-unified", "swa-checkpoints": "ctx-checkpoints"},
}
SOURCE = 'an engine of kind "llama.cpp", compiled from source, has all of llama-server\'s options'


def find_option(flag: str) -> OptionField | None:
    """The option of a long name without dashes; None for a name without a field."""
    return OPTIONS.get(ALIASES.get(flag, flag))


def find_flag_problems(flags: Mapping[str, str | bool], own: Collection[str]) -> dict[str, str]:
    """The problems of flags: name -> text, without those that are right.

    Args:
        flags: Option without its dashes -> value, or True for a bare one.
        own: Options that keys set.
    """
    found: dict[str, str] = {}
    fields: dict[str, str] = {}
    for flag, value in sorted(flags.items()):
        option = find_option(flag)
        if flag in own:
            found[flag] = "is not allowed in flags: other keys set it"
        elif option is None:
            near = suggestion(flag, OPTIONS)
            found[flag] = f"sets no field of xllamacpp's server{near}; {SOURCE}"
        elif text := option.describe_wrong_value(value):
            found[flag] = text
        elif other := fields.get(option.fields[0]):
            found[flag] = f"duplicates --{other}"
        else:
            fields[option.fields[0]] = flag
    return found


def convert_flags(flags: Mapping[str, str | bool]) -> Fields:
    """The fields that right flags set."""
    found: Fields = {}
    bits = sum(SAMPLING_BITS.get(ALIASES.get(flag, flag), 0) for flag in flags)
    for flag, value in sorted(flags.items()):
        option = OPTIONS[ALIASES.get(flag, flag)]
        found |= {name: option.convert_value(value) for name in option.fields}
    return found | ({SAMPLING: bits} if bits else {})
