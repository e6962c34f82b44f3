"""Many scripts in one command: each one's output is its own."""

import os
import subprocess
from pathlib import Path

import pytest

from rigwright.host import script_output
from tests.unit.channel_records import channel_lines


def run(*scripts: str) -> dict[str, list[str]]:
    command = ["sh"]
    done = subprocess.run(
        command, input=script_output.render_parallel(scripts), capture_output=True, text=True, check=True, timeout=60
    )
    return script_output.parse_outputs(done.stdout.splitlines(), scripts)


def test_each_script_has_its_own_output() -> None:
    assert run("echo 'a b'; echo what >&2; echo c", "cat", "printf end") == {
        "echo 'a b'; echo what >&2; echo c": ["a b", "c"],
        "cat": [],
        "printf end": ["end"],
    }
    assert run() == {}


def test_a_script_that_fails_has_no_answer() -> None:
    assert run("echo one; exit 1", "kill -9 $$", "echo two") == {"echo two": ["two"]}


def test_all_run_at_the_same_time(tmp_path: Path) -> None:
    # each waits for the other one
    os.mkfifo(tmp_path / "pipe")
    reads, writes = f"read -r word < {tmp_path}/pipe; echo $word", f"echo word > {tmp_path}/pipe"
    assert run(reads, writes) == {reads: ["word"], writes: []}
    assert run(writes, reads) == {reads: ["word"], writes: []}


def test_much_is_reported_whole() -> None:
    script = "head -c 300000 /dev/zero | tr '\\0' x"
    assert run(script, "echo two") == {script: ["x" * 300000], "echo two": ["two"]}


def test_an_answer_to_what_was_not_asked_is_refused() -> None:
    with pytest.raises(ValueError, match="question 1 of 1"):
        script_output.parse_outputs(channel_lines(("answer", "1", "x")), ["true"])
