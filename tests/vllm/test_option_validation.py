"""Messages about vLLM's command lines before any host is touched agree with vLLM itself: `./rig test vllm`.

In an environment of each locked version, its own parser and its own engine judge thousands of command lines; so do
judge.py and rules.py, by the shipped snapshot. Where verdicts differ, a reason is listed here.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rigwright.engines.vllm.engine_constraints import find_constraint_violations
from rigwright.engines.vllm.option_snapshot import OptionSetting, VllmSnapshot, load_snapshot, snapshot_file_name
from rigwright.engines.vllm.option_validation import find_option_problems
from rigwright.project_root import ROOT
from tests.vllm.environment import program_output, start_program
from tests.vllm.option_cases import LOOSER, STRICTER, option_cases
from tests.vllm.sample_configs import CONFIGS, SampleCheckpoint, write_configs

VERSIONS = ("0.21.0", "0.20.2")
# Refusals of command lines that the parser takes: the message -> why
NAMES = "is read as another option, or found out only by who knows the parser"
REGISTERED = "the parser takes any text; it is looked up later, and ends the server then"
TYPED = "pydantic makes a number or a switch of it; a catalogue has types"
BOUNDED = "the parser takes any number, and the engine does not"
STRICT = {
    r"is an abbreviation: write .*": NAMES,
    r"must be written with dashes, .*": NAMES,
    r"must be written with its long name, .*": NAMES,
    r"does not know .*": REGISTERED,
    r".*does not load safetensors from the model's folder.*": "an instance serves what is locked",
    r"must be (at least|above|at most) .*": BOUNDED,
    r"takes a (table|list of text), not .*": "the parser takes any JSON, and the server that one kind",
    r"has no key x; allowed: .*": "speculative_config is read by the engine",
    r"\w+: must be (boolean, not [01]|(integer|number), not True)": TYPED,
    r"\w+: True is not accepted.*": TYPED,
}
# Keys of configurations that want others beside them: of one alone the parser says so
BESIDE = {
    *(("pooler-config", key) for key in ("logit_sigma", "logit_scale")),
    *(("kv-transfer-config", "kv_connector"), ("ec-transfer-config", "ec_connector")),
    *(("compilation-config", key) for key in ("custom_ops", "inductor_passes")),
    ("attention-config", "use_cudnn_prefill"),
    *(("structured-outputs-config", f"disable_{what}") for what in ("any_whitespace", "additional_properties")),
    ("profiler-config", "torch_profiler_dir"),
}


@dataclass(frozen=True)
class RealVllm:
    """A version in an environment, what it said, and the snapshot that is shipped."""

    python: Path
    fresh: str
    parsed: list[tuple[str, OptionSetting, str]]
    shipped: Path
    snapshot: VllmSnapshot


@pytest.fixture(scope="module", params=VERSIONS)
def real(request: pytest.FixtureRequest, installed: Callable[[str], Path]) -> RealVllm:
    version = request.param
    began = time.monotonic()
    python = installed(version)
    print(f"\nvLLM {version}, installed in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    programs = [start_program(python, module) for module in ("lab.vllm_snapshot", "tests.vllm.inside.option_parser")]
    fresh, parsed = [program_output(program) for program in programs]
    print(f"asked what it takes in {time.monotonic() - began:.0f} s")
    shipped = ROOT / "catalog" / "flags" / snapshot_file_name(version)
    return RealVllm(python, fresh, json.loads(parsed), shipped, load_snapshot(shipped))


def test_the_shipped_snapshot_is_what_this_version_says(real: RealVllm) -> None:
    assert real.shipped.read_text() == real.fresh


def test_options_are_judged_as_its_parser_judges_them(real: RealVllm) -> None:
    differ, used = [], set[str]()
    for name, value, refused in real.parsed:
        ours = find_option_problems(real.snapshot, {name: value}).get(name, "")
        if bool(ours) == bool(refused):
            continue
        known = next((pattern for pattern in STRICT if ours and re.fullmatch(pattern, ours, re.DOTALL)), "")
        used.add(known)
        if not known and not (refused and isinstance(value, dict) and {(name, key) for key in value} & BESIDE):
            differ.append(f"{name} = {value!r}: {ours or refused}")
    print(
        f"{len(real.parsed)} options with values, of which its parser refuses {sum(1 for row in real.parsed if row[2])}"
    )
    assert len(real.parsed) > 10_000
    assert not differ, "\n".join(differ)
    assert STRICT.keys() <= used


def test_command_lines_are_judged_as_its_engine_judges_them(real: RealVllm, tmp_path: Path) -> None:
    folders, tried = write_configs(tmp_path), list(option_cases())
    began = time.monotonic()
    given = [
        {"words": words(real.snapshot, folders[model], options), "capability": capability, "cards": cards}
        for model, capability, options, cards in tried
    ]
    verdicts = json.loads(program_output(start_program(real.python, "tests.vllm.inside.engine_config"), given))
    differ, stricter, looser = [], set[str](), set[str]()
    for (model, capability, options, cards), refused in zip(tried, verdicts, strict=True):
        ours = validation_errors(real.snapshot, model, capability, options, cards)
        if bool(ours) == bool(refused):
            continue
        found = {known for known in STRICTER if ours.startswith(known)} | {
            known for known in LOOSER if known in refused
        }
        stricter |= found & STRICTER.keys()
        looser |= found & LOOSER.keys()
        if not found:
            differ.append(f"{model}, {capability}, {options}: {ours or refused[:400]}")
    took, ended = time.monotonic() - began, sum(1 for verdict in verdicts if verdict)
    print(f"{len(tried)} command lines with models, of which its engine refuses {ended}, in {took:.0f} s")
    assert not differ, "\n".join(differ)
    assert stricter == STRICTER.keys()
    assert bool(looser) == (real.snapshot.version == "0.20.2")


def words(snapshot: VllmSnapshot, model: Path, options: Any) -> list[str]:
    found = [str(model)]
    for name, value in options.items():
        option = snapshot.find(name)
        assert option, name
        found += option.render_words(name, value)
    return found


def validation_errors(snapshot: VllmSnapshot, model: str, capability: str, options: Any, cards: int) -> str:
    if wrong := find_option_problems(snapshot, options):
        return next(f"{name} {text}" for name, text in wrong.items())
    return next(
        iter(find_constraint_violations(snapshot, options, SampleCheckpoint(CONFIGS[model]), {capability}, cards)), ""
    )
