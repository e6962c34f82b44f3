"""The deploy lock: one holder at a time, freed when the holder ends or falls silent, and messages name the holder."""

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent.event
import pytest

from rigwright.host.deploy_lock_state import describe_lock_refusal
from rigwright.monitoring.textfile import DEPLOY_STARTED
from roles import deploy_lock
from roles.deploy_lock import DeployLock, describe_denial
from roles.operations import reconnecting_shell
from roles.operations.reconnecting_shell import ReconnectingShell
from tests.unit import short_programs
from tests.unit.channel_records import channel_lines_of
from tests.unit.polling import wait_until
from tests.unit.rendered_scripts import lock_holder_script

HOLDER = {"who": "ops@desk", "pid": 4711, "since": "2026-11-01 12:00:00 UTC", "doing": "deploy of /home/ops/rig.py"}
SAID = (
    "ops@desk (process 4711) holds the deploy lock since 2026-11-01 12:00:00 UTC: deploy of /home/ops/rig.py; "
    "wait until that is done"
)


UNNAMED = "another process holds the deploy lock"


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (json.dumps(HOLDER), SAID),
        (json.dumps(HOLDER | {"who": "ops@desk\x1b[2J\nforged"}), SAID.replace("desk", "desk\ufffd[2J\ufffdforged")),
        *[(held, UNNAMED) for held in ("", "{", "[]", '{"who": "x"}', "5", "[" * 100_000)],
    ],
    ids=lambda value: value[:20],
)
def test_the_holder_is_named(held: str, text: str) -> None:
    assert describe_lock_refusal(channel_lines_of([("held", held)])) == text
    assert describe_lock_refusal(["Welcome!", *channel_lines_of([("taken",)])]) == ""


@pytest.mark.parametrize(
    "output",
    [[], ["held {}"], ["sudo: a password is required"], channel_lines_of([]), channel_lines_of([("taken", "x")])],
)
def test_a_host_that_says_something_else_gives_no_deploy_lock(output: list[str]) -> None:
    with pytest.raises(ValueError, match="the host "):
        describe_lock_refusal(output)


def test_a_holder_records_its_name_and_time() -> None:
    said = json.loads(DeployLock(SimpleNamespace(), "deploy of x").holder)
    assert said["doing"] == "deploy of x"
    assert said["pid"] == os.getpid()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", said["since"])
    assert "@" in said["who"]


def test_a_host_without_a_connection_gives_no_deploy_lock() -> None:
    target = SimpleNamespace(data={}, connector=SimpleNamespace(client=None))
    assert DeployLock(target, "x").acquire().startswith("no deploy lock: ")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("mkdir: cannot create directory '/run/rigwright': Permission denied", "log in as root, or set "),
        ("This account is currently not available.", "give ops a login shell on the box (chsh -s /bin/sh), or "),
        ("mkdir: cannot create directory '/run/rigwright': Read-only file system", "mount that file system writable"),
        ("sudo: a password is required", "on the box, as root: echo 'ops ALL=(ALL) NOPASSWD: ALL' > "),
    ],
)
def test_a_host_that_gives_no_deploy_lock_has_a_remedy(said: str, remedy: str) -> None:
    assert f"({said}): {remedy}" in describe_denial(said, "ops")


def test_signs_of_life_come_well_before_the_host_gives_up() -> None:
    assert deploy_lock.BEAT * 3 < deploy_lock.SILENCE < deploy_lock.RENEWAL


@contextmanager
def start_holder(
    folder: Path, who: str, patience: int = 0, silence: int = 30, marks: str = ""
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The host's end of one holder, and why it is refused; the folder takes the place of /run."""
    script = lock_holder_script(patience, silence, marks).replace("/run/rigwright", str(folder))
    command = ["sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as one:
        assert one.stdin
        assert one.stdout
        one.stdin.write(f"{who}\n")
        try:
            assert one.stdout.readline() == "\n"
            yield one, describe_lock_refusal([one.stdout.readline()])
        finally:
            one.kill()


def test_the_second_holder_is_refused_with_the_first_ones_name(tmp_path: Path) -> None:
    first = json.dumps(HOLDER | {"doing": 'deploy of C:\\new "box"\\table.py\nand é'})
    with start_holder(tmp_path, first) as (_, said), start_holder(tmp_path, "second") as (other, refused):
        assert (said, other.wait(5)) == ("", 1)
        assert "deploy of C:\\new" in refused


def test_it_is_free_when_the_holder_closes_its_end(tmp_path: Path) -> None:
    with start_holder(tmp_path, "first") as (one, _):
        one.communicate(timeout=5)
        assert one.returncode == 0
        with start_holder(tmp_path, "second") as (_, said):
            assert said == ""
    assert (tmp_path / "locks/lease").read_text() == "second\n"


def test_it_is_free_when_the_holder_falls_silent(tmp_path: Path) -> None:
    with start_holder(tmp_path, "first", silence=1) as (one, _):
        started = time.monotonic()
        assert one.wait(10) == 0
        assert time.monotonic() - started > 0.5
        with start_holder(tmp_path, "second") as (_, said):
            assert said == ""


def test_it_is_free_when_the_holders_process_is_killed(tmp_path: Path) -> None:
    with start_holder(tmp_path, "first") as (one, _):
        one.kill()
        one.wait(5)
        with start_holder(tmp_path, "second") as (_, said):
            assert said == ""


def test_signs_of_life_keep_it(tmp_path: Path) -> None:
    with start_holder(tmp_path, "first", silence=1) as (one, _):
        assert one.stdin
        for _ in range(8):
            one.stdin.write(".")
            one.stdin.flush()
            time.sleep(0.25)
        assert one.poll() is None
        with start_holder(tmp_path, "second") as (_, refused):
            assert refused == UNNAMED


def test_observers_learn_that_it_is_held(tmp_path: Path) -> None:
    marks = tmp_path / "metrics" / "deploy.prom"
    marks.parent.mkdir()
    with start_holder(tmp_path, "first", marks=str(marks)) as (one, _):
        wait_until(marks.exists)
        name, began = marks.read_text().split()
        assert name == DEPLOY_STARTED
        assert abs(int(began) - time.time()) < 60
        assert marks.stat().st_mode & 0o777 == 0o644
        with start_holder(tmp_path, "second", marks=f"{marks}2") as (_, refused):
            assert refused
        one.communicate(timeout=5)
    assert list(marks.parent.iterdir()) == []


def test_a_host_that_nothing_watches_yet_is_locked_all_the_same(tmp_path: Path) -> None:
    with start_holder(tmp_path, "first", marks=str(tmp_path / "none/deploy.prom")) as (one, said):
        assert said == ""
        one.communicate(timeout=5)
        assert one.returncode == 0
    assert not (tmp_path / "none").exists()


def test_a_patient_holder_gets_it_once_it_is_free(tmp_path: Path) -> None:
    with start_holder(tmp_path, "first") as (one, _):
        assert one.stdin
        threading.Timer(0.5, one.stdin.close).start()
        with start_holder(tmp_path, "second", patience=10) as (_, said):
            assert said == ""


def test_others_cannot_open_and_thus_lock_it(tmp_path: Path) -> None:
    deploy_lock = tmp_path / "run" / "locks" / "lease"
    with start_holder(tmp_path / "run", "first") as (_, said):
        assert said == ""
        modes = [path.stat().st_mode & 0o777 for path in (deploy_lock, deploy_lock.parent, deploy_lock.parent.parent)]
    assert modes == [0o600, 0o700, 0o755]


UNFIT: dict[str, Callable[[Path], object]] = {
    "open to others": lambda locks: locks.mkdir(0o755),
    "open to a group": lambda locks: (locks.mkdir(), locks.chmod(0o750)),
    "a link": lambda locks: (locks.with_name("else").mkdir(0o700), locks.symlink_to("else")),
    "a link to nothing": lambda locks: locks.symlink_to("else"),
    "a file": lambda locks: locks.touch(0o700),
    "somebody's": lambda locks: (locks.mkdir(0o700), os.chown(locks, 1234, -1)),
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_a_folder_of_locks_that_is_not_roots_alone_gives_no_deploy_lock(tmp_path: Path, unfit: str) -> None:
    if unfit == "somebody's" and os.geteuid():
        pytest.skip("only root gives a folder away")
    locks = tmp_path / "locks"
    UNFIT[unfit](locks)
    script = lock_holder_script().replace("/run/rigwright", str(tmp_path))
    done = short_programs.run_program(["sh", "-c", script], input="first\n")
    assert done.returncode == 1
    assert f"{locks} has to be a folder that root alone can open: remove it" in done.stderr
    with pytest.raises(ValueError, match="the host "):
        describe_lock_refusal(done.stdout.splitlines())
    assert not (tmp_path / "else/lease").exists()


class ClosingChannel:
    """A stand-in for an SSH channel that closes after some signs of life."""

    def __init__(self, lives: int, connected: bool, error: bool = False) -> None:
        self.lives, self.connected, self.error = lives, connected, error

    @property
    def closed(self) -> bool:
        return not self.error and self.lives == 0

    def sendall(self, data: bytes) -> None:
        if self.lives == 0:
            raise OSError("Socket is closed")
        self.lives -= 1

    def close(self) -> None:
        self.lives = 0

    def get_transport(self) -> SimpleNamespace:
        return SimpleNamespace(is_active=lambda: self.connected)


def test_a_renewal_that_a_reconnect_ends_loses_no_deploy_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced, tries = gevent.event.Event(), list[int]()

    def acquire(patience: int = 0) -> str:
        tries.append(patience)
        return "no deploy lock: Socket is closed" if len(tries) == 1 and replaced.wait(5) else ""

    def connect() -> None:
        replaced.set()
        gevent.sleep(0)

    target: Any = SimpleNamespace(connector=SimpleNamespace(connect=connect))
    mine = DeployLock(target, "x")
    monkeypatch.setattr(mine, "acquire", acquire)
    monkeypatch.setattr(reconnecting_shell, "find_deploy_lock", lambda _: mine)
    monkeypatch.setattr(reconnecting_shell, "gevent", SimpleNamespace(sleep=lambda _: gevent.sleep(0)))
    mine.renew()
    ReconnectingShell(target)._reconnect(time.monotonic() + 60, "cut")
    assert mine.lost == ""
    gevent.sleep(0)
    assert (mine.lost, len(tries)) == ("", 2)


@pytest.mark.parametrize("error", [False, True], ids=["closed", "error"])
@pytest.mark.parametrize("connected", [True, False], ids=["connected", "cut"])
def test_a_deploy_lock_that_the_host_ended_is_lost_and_one_of_a_cut_connection_is_renewed(
    monkeypatch: pytest.MonkeyPatch, connected: bool, error: bool
) -> None:
    monkeypatch.setattr(deploy_lock, "BEAT", 0)
    mine, channel = DeployLock(SimpleNamespace(), "x"), ClosingChannel(3, connected, error)
    mine.channel = channel  # type: ignore[assignment]
    mine._send_heartbeats(channel)  # type: ignore[arg-type]
    assert (channel.lives, bool(mine.lost)) == (0, connected)


def test_a_run_that_has_ended_gives_its_deploy_locks_back(monkeypatch: pytest.MonkeyPatch) -> None:
    held, waiting = DeployLock(None, "deploy"), DeployLock(None, "deploy")
    held.channel = ClosingChannel(3, connected=True)  # type: ignore[assignment]
    monkeypatch.setattr(deploy_lock, "_deploy_locks", {"one": held, "two": waiting})
    deploy_lock.release_deploy_locks()
    assert held.channel.closed
    assert deploy_lock._deploy_locks == {}
