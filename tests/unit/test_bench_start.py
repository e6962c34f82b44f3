"""How soon a verb is there: the measurement of a program."""

import sys

import pytest

from benchmarks import BenchmarkFailed
from benchmarks.timed_verbs import Row, Verb


def verb(program: str) -> Verb:
    return Verb(Row("verb", 0, ""), [sys.executable, "-c", program], ())


def test_a_program_has_its_own_time_and_memory_and_that_of_what_it_starts() -> None:
    heavy = "held = bytearray(64 << 20); [n for n in range(3_000_000)]"
    seconds, processor, peak = verb(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {heavy!r}])").run()
    light = verb("pass").run()
    assert seconds >= 0.5 * processor > light[1]
    assert peak > 64 << 20 > light[2]


def test_waiting_takes_no_processor() -> None:
    seconds, processor, _ = verb("import select; select.select([], [], [], 0.5)").run()
    assert seconds >= 0.5 > processor


def test_a_verb_that_fails_says_what_it_said() -> None:
    with pytest.raises(BenchmarkFailed, match="no such host"):
        verb("import sys; print('at first'); sys.exit('no such host')").run()


def test_a_program_is_found_on_the_path_as_a_shell_finds_it() -> None:
    seconds, _, _ = Verb(Row("verb", 0, ""), ["env", "ASKED=1", "sh", "-c", "exec [ $ASKED = 1 ]"], ()).run()
    assert seconds > 0
