"""Locks of the programs for weights: only root can hold them, and a waiting process learns of the holder."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roles.weights.host import rehash
from roles.weights.host.locks import LockHeldElsewhere, hold_lock
from roles.weights.host.spec import FetchRefused
from tests.unit.file_server import complete_file
from tests.unit.test_deploy_lock import UNFIT
from tests.unit.weight_shelf import WeightShelf, is_fresh
from tests.unit.weights_world import CONTENT, make_weights_fixture, wanted_file

HOLD = "import sys, time; from pathlib import Path; from roles.weights.host.locks import hold_lock\n"
HOLD += "with hold_lock(Path(sys.argv[1]), sys.argv[2]): print('held', flush=True); time.sleep(600)"
WHO = r"[^\n]+ \(process {}\) since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


@contextmanager
def hold_elsewhere(folder: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lock."""
    command = [sys.executable, "-c", HOLD, str(folder), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def locked_by_anybody(*paths: Path) -> Iterator[None]:
    """Have locks held on what others can read, as any local user can."""
    handles = [os.open(path, os.O_RDONLY) for path in paths]
    for handle in handles:
        fcntl.flock(handle, fcntl.LOCK_EX)
    yield
    for handle in handles:
        os.close(handle)


def test_folder_and_file_are_for_root_alone(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "run/locks", "x"):
        pass
    paths = ("run/locks/x", "run/locks", "run")
    assert [(tmp_path / path).stat().st_mode & 0o777 for path in paths] == [0o600, 0o700, 0o755]


@pytest.mark.parametrize("unfit", UNFIT)
def test_a_folder_that_others_can_open_is_refused(tmp_path: Path, unfit: str) -> None:
    if unfit == "somebody's" and os.geteuid():
        pytest.skip("only root gives a folder away")
    UNFIT[unfit](tmp_path / "locks")
    with (
        pytest.raises(FetchRefused, match="locks has to be a folder that root alone can open: remove it"),
        hold_lock(tmp_path / "locks", "x"),
    ):
        pytest.fail("it was held")
    assert not (tmp_path / "else/x").exists()


def test_a_link_in_a_locks_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir(0o700)
    (tmp_path / "locks/x").symlink_to(tmp_path / "else")
    with pytest.raises(OSError, match="symbolic link"), hold_lock(tmp_path / "locks", "x"):
        pytest.fail("it was held")
    assert not (tmp_path / "else").exists()


def test_a_waiting_run_learns_of_the_holder_and_gives_up_in_the_end(tmp_path: Path) -> None:
    told: list[str] = []
    with hold_elsewhere(tmp_path / "locks", "x") as process:
        began = time.monotonic()
        with pytest.raises(LockHeldElsewhere) as refused, hold_lock(tmp_path / "locks", "x", 0.5, told.append):
            pytest.fail("it was held")
        assert time.monotonic() - began >= 0.5
        assert told == [str(refused.value)]
        assert re.fullmatch(WHO.format(process.pid), told[0])
        with hold_lock(tmp_path / "locks", "y"):
            pass


def test_it_is_free_when_its_holder_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with hold_elsewhere(tmp_path / "locks", "x") as process:
        monkeypatch.setattr(time, "sleep", lambda _: (process.send_signal(signal.SIGKILL), process.wait()))
        with hold_lock(tmp_path / "locks", "x", 60, told.append):
            assert len(told) == 1


def test_two_runs_of_the_rehash_do_not_get_in_each_others_way(
    shelf: WeightShelf, capsys: pytest.CaptureFixture[str]
) -> None:
    one = shelf.add_file("x")
    with hold_elsewhere(shelf.locks, rehash.LOCK) as process:
        assert shelf.run_rehash() == 0
        assert not is_fresh(shelf.deep_record(one))
        assert re.search(f"another run is at it: {WHO.format(process.pid)}", capsys.readouterr().out)
    assert shelf.run_rehash() == 0
    assert is_fresh(shelf.deep_record(one))


def test_a_rehash_that_cannot_have_its_lock_has_failed(shelf: WeightShelf, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.locks.mkdir(0o755, parents=True)
    assert shelf.run_rehash() == 1
    assert "root alone can open" in capsys.readouterr().out


def test_locks_of_local_users_delay_no_rehash(shelf: WeightShelf) -> None:
    one = shelf.add_file("x")
    with locked_by_anybody(shelf.root, *shelf.root.rglob("*"), shelf.records, *shelf.records.rglob("*")):
        assert shelf.run_rehash() == 0
    assert is_fresh(shelf.deep_record(one))


@pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")
def test_locks_of_local_users_delay_no_fetch(tmp_path: Path) -> None:
    with make_weights_fixture(tmp_path) as host:
        url = host.server.serve("m", complete_file(CONTENT))
        host.root.mkdir()
        host.records.mkdir()
        with locked_by_anybody(host.root, host.records):
            host.fetch_file(url)
        assert host.is_fetched(wanted_file())


@pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")
def test_a_fetch_waits_for_its_turn_as_long_as_it_says(tmp_path: Path) -> None:
    with make_weights_fixture(tmp_path) as host, hold_elsewhere(host.locks, "weights") as process:
        host.pace["turn"] = 1
        done = host.run_fetch_file(host.server.serve("m", complete_file(CONTENT)))
        assert done.returncode == 1
        who = WHO.format(process.pid)
        assert re.search(f"==> waiting for another run that brings weights, 1 s at most: {who}\n", done.stdout)
        assert re.search(f"another run brings weights, and has not ended in 1 s: {who}; deploy again", done.stdout)
        assert host.server.asked == []
