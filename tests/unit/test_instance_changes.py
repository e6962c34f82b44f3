"""What a deploy changes of an instance, in the words of who declared it."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.host.systemd import render_command_line
from rigwright.render import render
from rigwright.serving.instance_units import InstanceUnit
from rigwright.serving.unit_diff import LISTED, describe_downtime_seconds, describe_unit_changes, parse_written_units
from tests.unit.host_states import target_generation
from tests.unit.samples import sample_instance, sample_rig

UNIT: InstanceUnit = target_generation(sample_rig(sample_instance("chat"))).units[0]
WORDS = ("/opt/x/llama-server", "--ctx-size", "4096", "--jinja", "--lora", "/a b", "--lora", "/c")


def unit(*words: str) -> InstanceUnit:
    lines = [line for line in UNIT.text.splitlines() if not line.startswith("ExecStart=")]
    return replace(UNIT, text="\n".join([*lines, f"ExecStart={render_command_line(words)}", ""]))


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
def test_flags_are_said_as_they_are_declared(words: tuple[str, ...], said: list[str]) -> None:
    before = unit(*WORDS)
    assert describe_unit_changes(unit(*words), before.text, before.environment) == said


def test_many_are_counted() -> None:
    before = unit(*WORDS)
    after = unit(*WORDS, *(f"--x{number}" for number in range(LISTED + 3)))
    assert describe_unit_changes(after, before.text, before.environment)[-1] == "3 more"


def test_variables_and_the_rest_of_a_unit_are_told_apart() -> None:
    before = unit(*WORDS)
    variables = f"A=1\nB=2\n{before.environment}"
    after = replace(before, environment=f"A=2\nC=3\n{before.environment}", text=before.text + "Nice=5\n")
    assert describe_unit_changes(after, before.text, variables) == [
        "A=1 -> 2",
        "- B=2",
        "+ C=3",
        "settings of its unit",
    ]
    other = replace(before, environment=before.environment.replace("RW_DIGEST=", "RW_DIGEST=0"))
    assert describe_unit_changes(other, before.text, before.environment) == ["other weights or inputs"]


def test_a_variable_that_the_process_alone_has_is_one_like_others() -> None:
    before = unit("/usr/bin/env", "LD_PRELOAD=/a.so", *WORDS)
    after = unit("/usr/bin/env", "LD_PRELOAD=/b.so", "MALLOC_ARENA_MAX=2", *WORDS)
    said = ["LD_PRELOAD=/a.so -> /b.so", "+ MALLOC_ARENA_MAX=2"]
    assert describe_unit_changes(after, before.text, before.environment) == said
    # where it was in the file of all commands, it is none that changes
    assert describe_unit_changes(before, unit(*WORDS).text, f"LD_PRELOAD=/a.so\n{before.environment}") == [
        "other weights or inputs"
    ]


@pytest.mark.parametrize("file", ["", "nonsense", 'ExecStart="', "ExecStart=\nExecStart=\0"])
def test_what_lies_there_may_be_anything(file: str) -> None:
    assert describe_unit_changes(UNIT, file, file)


@pytest.mark.parametrize(
    ("seconds", "said"), [(8.4, "about 8 s down"), (0.2, "about 1 s down"), (None, "down while it loads")]
)
def test_how_long_is_what_the_last_start_took(seconds: float | None, said: str) -> None:
    assert describe_downtime_seconds(seconds) == said


def test_a_host_tells_what_is_written_there(tmp_path: Path) -> None:
    for name, text in {
        "units/rigwright-chat.service": "a\n",
        "env/chat": "B=1\n",
        "units/rigwright.slice": "x",
    }.items():
        path = tmp_path / "current" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        ["sh", "-c", render("look/written.sh.j2", config=str(tmp_path))], capture_output=True, text=True, check=True
    )
    assert parse_written_units(done.stdout.splitlines()) == {"rigwright-chat.service": ("a", "B=1")}
