"""Programs that tests start end as they would from a shell."""

import os
import sys
from pathlib import Path
from subprocess import CalledProcessError

import pytest

from tests.unit import short_programs
from tests.unit.rendered_scripts import write_stand_in


def test_what_a_program_reads_writes_and_ends_with_is_its_own() -> None:
    done = short_programs.run_program(["sh", "-c", "cat; echo sorry >&2; exit 3"], input="one\ntwo\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, "one\ntwo\n", "sorry\n")


def test_a_program_that_fails_is_said_where_it_must_not() -> None:
    with pytest.raises(CalledProcessError) as refused:
        short_programs.run_program(["sh", "-c", "echo why >&2; kill -TERM $$"], check=True)
    assert (refused.value.returncode, refused.value.stderr) == (-15, "why\n")


def test_a_program_is_looked_for_where_it_would_look_itself(tmp_path: Path) -> None:
    write_stand_in(tmp_path, "only-here", "echo found\n")
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert short_programs.run_program(["only-here"], env={"PATH": path}).stdout == "found\n"
    with pytest.raises(FileNotFoundError, match="only-here"):
        short_programs.run_program(["only-here"])


# in an interpreter that has watched no process yet, each of which has ended before anybody can watch it
FIRST = """
import time
from gevent import monkey, os
monkey.patch_all()
spawn = os._raw_posix_spawn
def ended(*words, **places):
    pid = spawn(*words, **places)
    time.sleep(0.2)
    return pid
os._raw_posix_spawn = ended
from tests.unit import short_programs
print(short_programs.run_program(["echo", "ended"]).stdout, end="")
"""


def test_the_first_program_of_an_interpreter_is_not_waited_for_without_end() -> None:
    done = short_programs.run_program(["timeout", "60", sys.executable, "-c", FIRST])
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
