"""The changes of a deploy to an instance, in the words of its declaration."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.host.systemd import render_command_line
from rigwright.model.gateway_schema import Gateway
from rigwright.render import render
from rigwright.serving.instance_units import InstanceUnit
from rigwright.serving.serving_state import ObservedUnit
from rigwright.serving.unit_diff import (
    LISTED,
    WrittenUnit,
    compare_units,
    describe_downtime_seconds,
    describe_restart,
    parse_written_units,
)
from tests.unit.host_states import target_generation
from tests.unit.samples import sample_instance, sample_rig

UNIT: InstanceUnit = target_generation(sample_rig(sample_instance("chat"))).units[0]
WEIGHTS = "/srv/models/a.gguf\n"
WORDS = ("/opt/x/llama-server", "--ctx-size", "4096", "--jinja", "--lora", "/a b", "--lora", "/c")


def unit(*words: str) -> InstanceUnit:
    lines = [line for line in UNIT.text.splitlines() if not line.startswith("ExecStart=")]
    return replace(UNIT, text="\n".join([*lines, f"ExecStart={render_command_line(words)}", ""]))


def changes(new: InstanceUnit, old: InstanceUnit, environment: str | None = None) -> list[str]:
    written = WrittenUnit(old.text, old.environment if environment is None else environment, old.weights)
    return compare_units(new, written).describe()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (WORDS, []),
        ((*WORDS, "--temp", "0.2"), ["+ --temp 0.2"]),
        ((*WORDS, "--seed", "-1"), ["+ --seed -1"]),
        ((*WORDS, "--lora", "/d e"), ["+ --lora /d e"]),
        ((WORDS[0], *WORDS[3:]), ["- --ctx-size 4096"]),
        ((*WORDS[:2], "8192", *WORDS[3:]), ["--ctx-size 4096 -> 8192"]),
        (("/opt/y/llama-server", *WORDS[1:]), ["program /opt/x/llama-server -> /opt/y/llama-server"]),
        ((*WORDS[:3], *WORDS[4:], "--temp", "1"), ["- --jinja", "+ --temp 1"]),
        ((*WORDS, "--grammar", "a\n\33[2J"), ["+ --grammar a\\n\\x1b[2J"]),
    ],
)
def test_flags_are_reported_as_they_are_declared(words: tuple[str, ...], said: list[str]) -> None:
    before = unit(*WORDS)
    assert changes(unit(*words), before) == said


def test_fields_of_a_launcher_are_said_each() -> None:
    def launched(**fields: object) -> InstanceUnit:
        return unit("/opt/x/llama-server", "/key", json.dumps({"fields": fields, "files": {"model": "/a.gguf"}}))

    after = launched(n_ctx=8192, cache="F16", jinja=True)
    assert changes(after, launched(n_ctx=4096, cache="F16")) == ["n_ctx 4096 -> 8192", "+ jinja true"]
    # an option's own JSON is one value
    before = unit("/opt/x/vllm", "--config", '{"fields": 1, "files": 2}')
    assert changes(unit("/opt/x/vllm", "--config", '{"a": {}}'), before) == [
        '--config {"fields": 1, "files": 2} -> {"a": {}}'
    ]


@pytest.mark.parametrize(
    "word",
    [
        *("{", "{}", "[]", '{"fields": []}', '{"fields": {}, "files": []}', '{"fields": null, "files": {}}'),
        *('{"fields": {"a": "\\ud800"}, "files": {}}', f'{{"a":{"9" * 5000}}}', '{"a":' * 100_000),
    ],
)
def test_settings_of_any_json_on_a_host_are_compared(word: str) -> None:
    text = unit("/opt/x/llama-server").text.replace("llama-server", f"llama-server '{word}'")
    assert changes(unit("/opt/x/llama-server"), replace(UNIT, text=text))


def test_many_are_counted() -> None:
    before = unit(*WORDS)
    after = unit(*WORDS, *(f"--x{number}" for number in range(LISTED + 3)))
    assert changes(after, before)[-1] == "3 more"


def test_variables_and_the_rest_of_a_unit_are_distinguished() -> None:
    before = unit(*WORDS)
    variables = f"A=1\nB=2\n{before.environment}"
    after = replace(before, environment=f"A=2\nC=3\n{before.environment}", text=before.text + "Nice=5\n")
    assert changes(after, before, variables) == ["A=1 -> 2", "- B=2", "+ C=3", "unit: + Nice=5"]


OTHER_DIGEST = {"environment": UNIT.environment.replace("RW_DIGEST=", "RW_DIGEST=0")}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, OTHER_DIGEST, ["weights with other content"]),
        (
            {"weights": WEIGHTS},
            OTHER_DIGEST | {"weights": "/srv/models/b.gguf\n"},
            ["weights - a.gguf", "weights + b.gguf"],
        ),
        ({}, OTHER_DIGEST | {"text": f"{UNIT.text}# a comment\n"}, ["other text of its unit with the same settings"]),
        ({}, OTHER_DIGEST | {"text": f"{UNIT.text}LimitNOFILE=9\n"}, ["unit: + LimitNOFILE=9"]),
        ({}, OTHER_DIGEST | {"text": UNIT.text.replace("RestartSec=5", "RestartSec=7")}, ["unit: RestartSec=5 -> 7"]),
        ({}, OTHER_DIGEST | {"text": f"{UNIT.text}ExecStop={'x' * 90}\n"}, ["unit: + ExecStop"]),
        ({}, {}, []),
    ],
)
def test_a_changed_digest_is_explained_by_the_input_that_changed(
    before: dict[str, str], after: dict[str, str], said: list[str]
) -> None:
    assert changes(replace(UNIT, **after), replace(UNIT, **before)) == said  # type: ignore[arg-type]


LAN = {"lan": {"address": "0.0.0.0", "port": 8000}}


def test_a_gateway_is_named_as_the_cause() -> None:
    rig = sample_rig(sample_instance("chat"))
    with_gateway = target_generation(replace(rig, gateway=Gateway.model_validate({"listeners": LAN}))).units[0]
    assert changes(with_gateway, UNIT) == ["gateway added"]
    assert changes(UNIT, with_gateway) == ["gateway removed"]


PROCESS = ObservedUnit("active", "running", started_from="a")


@pytest.mark.parametrize(
    ("process", "said"),
    [
        (None, "it is not loaded"),
        (replace(PROCESS, state="failed"), "it is failed"),
        (replace(PROCESS, started_from="b"), "it was started from an earlier unit"),
        (replace(PROCESS, key_current=False), "its API key has changed"),
        (replace(PROCESS, weights_current=False), "its weights on disk have changed"),
        (PROCESS, "another instance gets its port or cards"),
    ],
)
def test_a_restart_of_a_written_unit_has_its_cause(process: ObservedUnit | None, said: str) -> None:
    assert describe_restart(process, "a") == said


def test_a_variable_that_the_process_alone_has_is_one_like_others() -> None:
    before = unit("/usr/bin/env", "LD_PRELOAD=/a.so", *WORDS)
    after = unit("/usr/bin/env", "LD_PRELOAD=/b.so", "MALLOC_ARENA_MAX=2", *WORDS)
    said = ["LD_PRELOAD=/a.so -> /b.so", "+ MALLOC_ARENA_MAX=2"]
    assert changes(after, before) == said
    # where it was in the file of all commands, it does not change
    moved = changes(before, unit(*WORDS), f"LD_PRELOAD=/a.so\n{before.environment}")
    assert moved == ["other text of its unit with the same settings"]


@pytest.mark.parametrize("file", ["", "nonsense", 'ExecStart="', "ExecStart=\nExecStart=\0"])
def test_any_object_may_lie_there(file: str) -> None:
    assert compare_units(UNIT, WrittenUnit(file, file, file)).describe()


@pytest.mark.parametrize(
    ("seconds", "said"), [(8.4, "about 8 s down"), (0.2, "about 1 s down"), (None, "down while it loads")]
)
def test_how_long_is_what_the_last_start_took(seconds: float | None, said: str) -> None:
    assert describe_downtime_seconds(seconds) == said


def test_a_host_tells_what_is_written_there(tmp_path: Path) -> None:
    for name, text in {
        "units/rigwright-chat.service": "a\n",
        "env/chat": "B=1\n",
        "weights/chat": WEIGHTS,
        "units/rigwright.slice": "x",
    }.items():
        path = tmp_path / "current" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        ["sh", "-c", render("look/written.sh.j2", config=str(tmp_path))], capture_output=True, text=True, check=True
    )
    assert parse_written_units(done.stdout.splitlines()) == {
        "rigwright-chat.service": WrittenUnit("a", "B=1", WEIGHTS.rstrip())
    }
