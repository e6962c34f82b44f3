"""Locks on the operator's machine: no other user can open one, and a holder is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rigwright import file_lock as module
from rigwright.file_lock import FileLockHeld, file_lock
from rigwright.project_root import ROOT

HOLDER = """
import sys, time
from pathlib import Path
from rigwright.file_lock import file_lock
with file_lock(Path(sys.argv[1]), "keys of rig.py"):
    print(flush=True)
    time.sleep(60)
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / ".keys.lock"


def test_a_lock_file_is_its_owners_and_stays(lock: Path) -> None:
    with file_lock(lock, "a test"):
        assert lock.stat().st_mode & 0o777 == 0o600
    with file_lock(lock, "a test", patience=0):
        pass


def test_a_lock_file_that_others_could_open_is_closed_to_them(lock: Path) -> None:
    lock.touch(0o644)
    with file_lock(lock, "a test"):
        assert lock.stat().st_mode & 0o777 == 0o600


def test_a_holder_is_named_and_its_end_releases_the_lock(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NOTICE", 0.0)
    notices: list[str] = []
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        with pytest.raises(FileLockHeld) as caught, file_lock(lock, "a test", 0.1, notices.append):
            pass
        assert f"(process {process.pid}) holds the lock {lock} since " in str(caught.value)
        assert str(caught.value).endswith(": keys of rig.py; wait until that is done")
        assert notices == [f"waiting: {caught.value}"]
        process.kill()
    with file_lock(lock, "a test", patience=0):
        pass


def test_a_block_that_fails_releases_the_lock(lock: Path) -> None:
    with pytest.raises(KeyError), file_lock(lock, "a test"):
        raise KeyError
    with file_lock(lock, "a test", patience=0):
        pass


def link(lock: Path, victim: Path) -> None:
    lock.symlink_to(victim)


def name_twice(lock: Path, victim: Path) -> None:
    lock.hardlink_to(victim)


def give_away(lock: Path, victim: Path) -> None:
    lock.touch(0o600)
    os.chown(lock, 65534, 65534)


def make_pipe(lock: Path, victim: Path) -> None:
    os.mkfifo(lock, 0o600)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (link, "is a symbolic link: remove it"),
        (name_twice, "has other names: remove it"),
        (make_pipe, "is not a file of your own: remove it"),
        pytest.param(
            give_away,
            "is not a file of your own: remove it",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"),
        ),
    ],
)
def test_files_of_another_user_are_refused(lock, tmp_path, spoil, message):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    spoil(lock, victim)
    with pytest.raises(OSError, match=message) as caught, file_lock(lock, "a test"):
        pass
    assert (caught.value.filename, victim.read_text()) == (str(lock), "precious")
