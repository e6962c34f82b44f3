"""llama.cpp from a wheel: which fields keys and flags set, what is refused, and what is installed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigwright.advisories.advisory_catalog import MaintainedData
from rigwright.advisories.components import collect_components
from rigwright.engines import kinds
from rigwright.engines.llama_cpp.catalog_keys import MANAGED_FLAGS
from rigwright.engines.llama_cpp_wheel import install, server_fields
from rigwright.engines.llama_cpp_wheel.catalog_keys import WheelEngine
from rigwright.engines.llama_cpp_wheel.option_fields import (
    ALIASES,
    OPTIONS,
    SAMPLING_BITS,
    convert_flags,
    find_flag_problems,
)
from rigwright.model.instance import Instance
from rigwright.model.roots import Roots
from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.preflight import find_refusals
from rigwright.supply.lock import Artefact, Lock
from tests.unit.samples import (
    HELP,
    NOW,
    OperatorFolder,
    sample_artefact,
    sample_entry,
    sample_facts,
    sample_instance,
    sample_parts,
    sample_rig,
    sample_wheel,
)

KIND = kinds()["llama.cpp-wheel"]
WHEEL = sample_wheel("xllamacpp", version="2026.10.11549", group="xllamacpp")
ENGINE = WheelEngine(kind="llama.cpp-wheel", wheel="xllamacpp", build=11549)


def wheel_instance(*, wheels: tuple[Artefact, ...] = (WHEEL,), build: int = 11549, **changes: Any) -> Instance:
    own: dict[str, Any] = {"engine_name": "wheel", "artefacts": wheels, "known": None}
    made = sample_instance(**changes)
    return replace(made, engine=ENGINE.model_copy(update={"build": build}), **own)


def settings(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        server_fields.render_settings(Roots(), wheel_instance(**changes), metrics=changes.pop("metrics", False))
    )
    return found


# one of each type, those of llama-server that mean several fields, and other names
RIGHT: dict[str, tuple[str | bool, dict[str, object]]] = {
    "threads": ("8", {"cpuparams.n_threads": 8}),
    "cache-ram": ("-1", {"cache_ram_mib": -1}),
    "cache-prompt": (True, {"cache_prompt": True}),
    "no-cache-prompt": (True, {"cache_prompt": False}),
    "repack": (True, {"no_extra_bufts": False}),
    "no-repack": (True, {"no_extra_bufts": True}),
    "load-mode": ("mmap+mlock", {"load_mode": "LLAMA_LOAD_MODE_MMAP_MLOCK"}),
    "prio": ("-1", {"cpuparams.priority": "GGML_SCHED_PRIO_LOW"}),
    "reasoning-format": ("deepseek-legacy", {"reasoning_format": "COMMON_REASONING_FORMAT_DEEPSEEK_LEGACY"}),
    "temperature": ("1e-05", {"sampling.temp": 1e-05, "sampling.user_sampling_config": 64}),
    "top-k": ("20", {"sampling.top_k": 20, "sampling.user_sampling_config": 2}),
    "seed": ("4294967295", {"sampling.seed": 4294967295}),
    "timeout": ("60", {"timeout_read": 60, "timeout_write": 60}),
    "tags": ("a,b", {"model_tags": ["a", "b"]}),
    "chat-template": ("chatml", {"chat_template": "chatml"}),
    "chat-template-kwargs": ('{"enable_thinking": false}', {"default_template_kwargs": {"enable_thinking": "false"}}),
    "no-jinja": (True, {"use_jinja": False}),
}


@pytest.mark.parametrize("flag", RIGHT)
def test_a_flag_sets_its_fields(flag: str) -> None:
    value, fields = RIGHT[flag]
    assert find_flag_problems({flag: value}, own=MANAGED_FLAGS) == {}
    assert convert_flags({flag: value}) == fields


@pytest.mark.parametrize(
    ("flag", "value", "essence"),
    [
        ("thread", "8", 'sets no field of xllamacpp\'s server; did you mean "threads"?'),
        ("spec-type", "ngram-mod", "sets no field of xllamacpp's server; "),
        ("lora", "/x", 'an engine of kind "llama.cpp", compiled from source, has all'),
        ("slot-save-path", "/x", "sets no field of"),
        ("media-path", "/x", "sets no field of"),
        ("path", "/x", "sets no field of"),
        ("log-file", "/x", "sets no field of"),
        ("model", "/x", "is not allowed in flags: other keys set it"),
        ("tools", "all", "is not allowed in flags: other keys set it"),
        ("api-key", "x", "is not allowed in flags: other keys set it"),
        ("metrics", "yes", 'takes no value: write true instead of "yes"'),
        ("threads", "many", 'takes a whole number from 1 to 512, not "many"'),
        ("threads", "0", "takes a whole number from 1 to 512"),
        ("threads", True, "takes a whole number from 1 to 512, not true"),
        ("cache-ram", "2147483648", "takes a whole number from -1 to 2147483647"),
        ("temp", "nan", "takes a number from 0"),
        ("top-p", "1.5", "takes a number from 0 to 1"),
        ("numa", "isolated", 'takes one of distribute, isolate, numactl, not "isolated"; did you mean "isolate"?'),
        ("chat-template-kwargs", "[1]", "takes a JSON object"),
        ("chat-template", True, "takes a value"),
    ],
)
def test_a_flag_without_a_field_or_with_a_wrong_value_is_refused(flag: str, value: str | bool, essence: str) -> None:
    assert essence in find_flag_problems({flag: value}, own=MANAGED_FLAGS)[flag]


def test_two_flags_of_one_field_are_refused() -> None:
    both: dict[str, str | bool] = {"warmup": True, "no-warmup": True}
    assert find_flag_problems(both, own=()) == {"warmup": "duplicates --no-warmup"}


def test_each_option_and_alias_is_one_of_llama_servers() -> None:
    assert [name for name in (*OPTIONS, *ALIASES) if not (found := HELP.find(name)) or found.removal_note] == []
    assert set(ALIASES.values()) <= OPTIONS.keys()
    assert not OPTIONS.keys() & (MANAGED_FLAGS | {"reasoning"})
    assert OPTIONS.keys() >= SAMPLING_BITS.keys()


def test_keys_set_fields_as_llama_servers_command_line_does() -> None:
    found = settings(
        context=8192, parallel=2, cache_type_k="q8_0", flash_attention="on", memory_lock=True, flags={"threads": "2"}
    )["fields"]
    assert found == {
        "model.path": Roots().weight_path(sample_artefact()),
        "model_alias": ["small"],
        "hostnames": [wheel_instance().socket],
        "n_ctx": 8192,
        "n_parallel": 2,
        "n_gpu_layers": 0,
        "mmproj_use_gpu": False,
        "cache_type_k": "GGML_TYPE_Q8_0",
        "cache_type_v": "GGML_TYPE_F16",
        "flash_attn_type": "LLAMA_FLASH_ATTN_TYPE_ENABLED",
        "fit_params": False,
        "ui": False,
        "offline": True,
        "load_mode": "LLAMA_LOAD_MODE_MMAP_MLOCK",
        "cors_origins": "localhost",
        "cors_credentials": False,
        "cpuparams.n_threads": 2,
        "cpuparams_batch.n_threads": 2,
    }


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"flags": {"threads": "2", "threads-batch": "4"}}, {"cpuparams_batch.n_threads": 4}),
        ({"flags": {"cors-origins": "https://a"}}, {"cors_origins": "https://a", "cors_credentials": None}),
        ({"thinking": "off"}, {"enable_reasoning": 0, "default_template_kwargs": {"enable_thinking": "false"}}),
        ({"thinking": "auto"}, {"enable_reasoning": -1, "default_template_kwargs": None}),
        (
            {"thinking": "on", "flags": {"chat-template-kwargs": '{"a": 1}'}},
            {"default_template_kwargs": {"enable_thinking": "true", "a": "1"}},
        ),
        ({"flags": {"metrics": True}}, {"endpoint_metrics": True}),
        ({}, {"endpoint_metrics": None}),
        ({"parts": sample_parts(mmproj=sample_artefact(file="mmproj.gguf"))}, {"mmproj.path": "/srv/models/"}),
    ],
)
def test_keys_and_flags_are_put_together(changes: dict[str, Any], fields: dict[str, Any]) -> None:
    found = settings(**changes)["fields"]
    for name, value in fields.items():
        assert found.get(name) == value or (name == "mmproj.path" and found[name].startswith(value)), name


def test_a_template_is_read_from_its_file_and_the_key_is_no_setting() -> None:
    parts = sample_parts(chat_template_file=sample_artefact(name="t", file="t.jinja"))
    assert settings(parts=parts)["files"] == {
        "chat_template": Roots().weight_path(sample_artefact(name="t", file="t.jinja"))
    }
    made = install.plan_wheel(WHEEL, "wheel", ENGINE)
    service = KIND.service(sample_rig(), wheel_instance(), made)
    program, key, _ = service.command
    assert program == f"/opt/rigwright/engines/{made.folder}/bin/llama-server"
    assert key == "${CREDENTIALS_DIRECTORY}/api-key"
    assert service.metrics is None
    assert len(server_fields.LAUNCHER.splitlines()) <= 250


@pytest.mark.parametrize(
    ("changes", "essence"),
    [
        ({"cards": (0,)}, "wheel is built for the CPU and cannot use cards; an engine of kind"),
        ({"build": 11550}, "declares build 11550, but its wheel is xllamacpp 2026.10.11549"),
        (
            {"wheels": (WHEEL, sample_wheel("numpy"))},
            "its wheel requires packages that Rigwright does not install: numpy",
        ),
        ({"parts": sample_parts(spec_draft_model=sample_artefact(name="d"))}, "wheel loads no draft model"),
        ({"flags": {"spec-draft-n-max": "4"}}, "flags.spec-draft-n-max sets no field of xllamacpp's server"),
        (
            {"memory_lock": True, "flags": {"load-mode": "none"}},
            "flags.load-mode is not allowed in flags: other keys set it",
        ),
        (
            {
                "parts": sample_parts(chat_template_file=sample_artefact(name="t", file="t.jinja")),
                "flags": {"chat-template": "chatml"},
            },
            "flags.chat-template is not allowed in flags: other keys set it",
        ),
        ({"flags": {"reasoning": "off"}}, "flags.reasoning is not allowed in flags: other keys set it"),
    ],
)
def test_missing_capabilities_of_the_wheel_are_refused(changes: dict[str, Any], essence: str) -> None:
    (found,) = KIND.refusals(wheel_instance(**changes), Roots(), Path("/home/ops"))
    assert essence in found


def test_a_wheel_that_is_not_locked_yet_is_not_refused_for_its_build() -> None:
    there = sample_wheel("xllamacpp", version="0", group="xllamacpp", sha256="0" * 64)
    assert KIND.refusals(wheel_instance(wheels=(there,)), Roots(), Path("/home/ops")) == []


def test_capabilities_of_the_wheel_are_not_refused() -> None:
    flags = {name: value for name, (value, _) in RIGHT.items() if not name.startswith("no-")}
    assert KIND.refusals(wheel_instance(flags=flags), Roots(), Path("/home/ops")) == []
    assert KIND.forbidden_keys(wheel_instance(flags=flags)) == {}


@pytest.mark.parametrize("key", ['patches = ["x"]', 'source = "x"', 'options.GGML_NATIVE = "ON"'])
def test_keys_of_a_compilation_are_refused_with_the_reason(tmp_path: Path, key: str) -> None:
    box = OperatorFolder(tmp_path)
    text = '[engines.fast]\nkind = "llama.cpp-wheel"\nwheel = "xllamacpp"\nbuild = 11549\n'
    box.write("catalog/fast.toml", f"{text}{key}\n")
    lines = " ".join(box.refusal_lines(**sample_entry()))
    assert "engines.fast" in lines
    assert f"no {key.partition(' ')[0].partition('.')[0]}: the wheel is compiled already" in lines


@pytest.mark.parametrize(
    ("features", "refused"),
    [
        (install.CPU_FEATURES, ""),
        (("avx", "sse4_2"), "the CPU has no avx2, bmi2, f16c, fma, which the prebuilt engine"),
    ],
)
def test_a_cpu_without_the_wheels_instructions_is_refused(features: tuple[str, ...], refused: str) -> None:
    made = sample_rig(wheel_instance(), engine_artefacts={"wheel": (WHEEL,)})
    facts = sample_facts(cpu_features=frozenset(features))
    found = find_refusals(build_target_state(made, facts), NOW)
    assert [one for one in found if "CPU has" in one] == ([found[0]] if refused else [])
    assert not refused or (refused in found[0] and "compiled from source" in found[0])


def test_another_wheel_or_launcher_is_another_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(**changes: object) -> str:
        wheel = sample_wheel("xllamacpp", version="2026.10.11549", group="xllamacpp", **changes)
        return install.plan_wheel(wheel, "wheel", ENGINE).digest

    first = digest()
    assert digest() == first
    assert digest(sha256="c" * 64) != first
    monkeypatch.setattr(install, "LAUNCHER_DIGEST", "other")
    assert digest() != first


def test_advisories_of_llama_cpp_apply_by_the_build_and_of_the_wheel_by_its_version() -> None:
    made = sample_rig(wheel_instance(), engine_artefacts={"wheel": (WHEEL,)})
    found, gaps = collect_components(made, Lock({}, {"xllamacpp": (WHEEL,)}), MaintainedData())
    named = {(one.ecosystem, one.name, one.version) for one in found if "wheel" in one.place}
    assert named == {
        ("PyPI", "xllamacpp", "2026.10.11549"),
        ("GIT", "github.com/ggml-org/llama.cpp", "b11549"),
        ("", "llama.cpp", "b11549"),
    }
    assert "xllamacpp of engine wheel, except llama.cpp" in {one.what for one in gaps}
