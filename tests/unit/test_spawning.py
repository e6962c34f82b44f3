"""Programs that tests start with subprocess are started without a copy of this process, and waited for as ever."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import gevent
import gevent.subprocess
import pytest
import requests

from tests.unit.file_server import FileServer, whole


@pytest.fixture(autouse=True)
def no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*words: object) -> None:
        raise AssertionError("this process is copied")

    monkeypatch.setattr(gevent.subprocess, "fork_and_watch", refused)


def test_a_program_reads_writes_and_ends_as_ever(tmp_path: Path) -> None:
    script = "cat; echo sorry >&2; pwd; echo $WORD; exit 3"
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env={"WORD": "here"}, input="one\n", capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, f"one\n{tmp_path}\nhere\n", "sorry\n")
    assert subprocess.run("exit 4", shell=True).returncode == 4
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.check_output(["false"])


@pytest.mark.parametrize(
    ("command", "folder", "missing"),
    [(["no-such-program"], "/", "no-such-program"), (["true"], "/no/such/folder", "/no/such/folder")],
)
def test_what_is_not_there_is_said_and_nobody_is_left(command: Sequence[str], folder: str, missing: str) -> None:
    with pytest.raises(FileNotFoundError) as refused:
        subprocess.run(command, cwd=folder)
    assert refused.value.filename == missing


def test_a_program_that_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(["sleep", "60"], timeout=0.1)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        assert process.poll() is None
        process.terminate()
        assert process.wait(timeout=30) == -signal.SIGTERM


def test_others_go_on_while_a_program_is_waited_for(files: FileServer) -> None:
    url = files.serve("x", whole(b"served\n"))
    program = f"import urllib.request; print(urllib.request.urlopen({url!r}).read().decode(), end='')"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert [*process.stdout] == ["served\n"]
    assert requests.get(url, timeout=10).text == "served\n"


def test_one_that_has_ended_before_anybody_waits_is_not_waited_for() -> None:
    with subprocess.Popen(["true"]) as process:
        gevent.sleep(0.2)
        assert process.wait(timeout=30) == 0
