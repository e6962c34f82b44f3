"""Programs that this process starts begin and end as with gevent's own Popen."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from gevent import sleep, spawn


def test_what_it_is_given_and_what_it_says_is_its_own(tmp_path: Path) -> None:
    script = "pwd; echo $A; cat; echo sorry >&2; exit 3"
    done = subprocess.run(
        ["sh", "-c", script], input="x\n", cwd=tmp_path, env={"A": "1"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{tmp_path}\n1\nx\n", "sorry\n")
    assert subprocess.run("kill -9 $$", shell=True, check=False).returncode == -9
    assert subprocess.run(["env"], env={}, capture_output=True, check=True).stdout == b""


@pytest.mark.parametrize(
    ("command", "folder", "kind", "named"),
    [
        (["no-such-program"], "/", FileNotFoundError, "no-such-program"),
        (["true"], "/no/such/folder", FileNotFoundError, "/no/such/folder"),
        (["/etc/passwd"], "/", PermissionError, "/etc/passwd"),
    ],
)
def test_what_cannot_be_started_is_said(command: list[str], folder: str, kind: type[OSError], named: str) -> None:
    with pytest.raises(kind) as refused:
        subprocess.run(command, cwd=folder, check=False)
    assert refused.value.filename == named


def test_others_go_on_while_it_runs_and_nothing_of_it_stays_open() -> None:
    said: list[int] = []

    def count() -> None:
        for number in range(10_000):
            said.append(number)
            sleep(0.01)

    before, other = len(list(Path("/proc/self/fd").iterdir())), spawn(count)
    with subprocess.Popen(["sh", "-c", "read line; echo $line"], stdin=-1, stdout=-1, start_new_session=True) as one:
        assert os.getsid(one.pid) == one.pid
        sleep(0.1)
        assert one.communicate(b"here\n") == (b"here\n", None)
    other.kill()
    assert len(said) > 2
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(["sleep", "60"], timeout=0.1, check=False)


def test_it_inherits_what_is_given_and_nothing_else() -> None:
    ours, theirs = os.pipe()
    try:
        # as many as this process may have; the folder that lists them would be one more
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        listing = (
            f"import fcntl\nfor n in range({min(most, 1 << 16)}):\n"
            " try: fcntl.fcntl(n, fcntl.F_GETFD); print(n)\n except OSError: pass"
        )
        for kept in ((), (theirs,)):
            done = subprocess.run(
                [sys.executable, "-c", listing],
                pass_fds=kept,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
            )
            assert list(map(int, done.stdout.split())) == [0, 1, 2, *kept]
    finally:
        os.close(ours)
        os.close(theirs)


def test_it_takes_no_copy_of_this_process() -> None:
    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt

    ballast = [{"number": number} for number in range(600_000)]  # as much as a process has that has imported all
    before = faults()
    subprocess.run(["true"], check=True)
    once = faults() - before
    del ballast
    assert once < 300
