"""Files from other users: they cannot be changed once they count as verified."""

import ctypes
import errno
import fcntl
import mmap
import os
import signal
from pathlib import Path

import pytest

from roles.weights.host import hold, records
from roles.weights.host.fetch import FetchRun
from roles.weights.host.hold import FileLease
from roles.weights.host.spec import FetchRefused, load_spec
from tests.unit.weights_world import CONTENT, WRONG, WeightsFixture, wanted_file
from tests.unit.weights_world import host as host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")

WAIT = "it is being written to: deploy again when that has ended"


def put(host: WeightsFixture, sent: bool) -> Path:
    """The right file, in its place or as the operator's machine sends it."""
    folder = host.folder / "sent"
    host.settings["sent"] = str(folder) if sent else ""
    return host.place_file(folder / "small-q4.gguf" if sent else host.file_path(), CONTENT)


@pytest.mark.parametrize("sent", [False, True], ids=["placed", "sent"])
def test_a_right_file_is_not_taken_while_a_process_has_it_open_to_write(host: WeightsFixture, sent: bool) -> None:
    with put(host, sent).open("r+b"):
        done = host.run_fetch({wanted_file(): []})
    assert done.returncode == 1
    assert WAIT in done.stdout
    assert not records.is_record_valid(host.records, host.root, wanted_file())


@pytest.mark.parametrize("sent", [False, True], ids=["placed", "sent"])
def test_of_one_that_is_mapped_somewhere_a_copy_is_taken(host: WeightsFixture, sent: bool) -> None:
    system = ctypes.CDLL(None)
    system.mmap.restype = ctypes.c_void_p
    # Python's own mapping keeps the file open, where a look at processes finds it
    with put(host, sent).open("r+b") as writer:
        given = (ctypes.c_size_t(len(CONTENT)), mmap.PROT_WRITE, mmap.MAP_SHARED, writer.fileno(), ctypes.c_long(0))
        memory = ctypes.c_void_p(system.mmap(None, *given))
    done = host.run_fetch({wanted_file(): []})
    ctypes.memmove(memory, b"other", 5)
    system.munmap(memory, ctypes.c_size_t(len(CONTENT)))
    assert done.returncode == 0, done.stdout
    assert host.is_fetched(wanted_file())


def test_a_process_that_opens_it_meanwhile_is_noticed(tmp_path: Path) -> None:
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    path = tmp_path / "x"
    path.write_bytes(CONTENT)
    with FileLease(path) as held:
        held.check_unchanged(path)
        with path.open("rb"):
            held.check_unchanged(path)
        with pytest.raises(BlockingIOError):
            os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        with pytest.raises(FetchRefused, match=WAIT):
            held.check_unchanged(path)
    with FileLease(path) as held:
        (tmp_path / "y").write_bytes(CONTENT)
        (tmp_path / "y").replace(path)
        with pytest.raises(FetchRefused, match=WAIT):
            held.check_unchanged(path)


@pytest.fixture
def without_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has none."""
    real = fcntl.fcntl

    def refuse(handle: int, command: int, *rest: int) -> int:
        if command == fcntl.F_SETLEASE:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(handle, command, *rest)

    monkeypatch.setattr(hold.fcntl, "fcntl", refuse)


def fetch_in_process(host: WeightsFixture) -> int:
    """The same program, in this process."""
    host.fetch_command({wanted_file(): []})
    return FetchRun(load_spec(host.folder / "spec.json")).run()


@pytest.mark.usefixtures("without_leases")
@pytest.mark.parametrize("sent", [False, True], ids=["placed", "sent"])
def test_where_that_cannot_be_told_a_copy_is_taken(
    host: WeightsFixture, sent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a writer on another machine, say, that no look at processes finds
    monkeypatch.setattr("roles.weights.host.bringing.has_writers", lambda path: False)
    with put(host, sent).open("r+b") as writer:
        assert fetch_in_process(host) == 0
        writer.write(b"other bytes")
        writer.flush()
        assert host.is_fetched(wanted_file())
    # placed files are their owner's still
    assert (f"file {host.file_path()}" in host.ledger.read_text().splitlines()) is sent


@pytest.mark.usefixtures("without_leases")
def test_a_copy_of_a_wrong_file_leaves_it_as_it_was(host: WeightsFixture) -> None:
    host.place_file(host.file_path(), WRONG)
    assert fetch_in_process(host) == 1
    aside = host.file_path().with_name(f"{host.file_path().name}.wrong")
    assert aside.read_bytes() == WRONG
    assert host.leftover_paths() == []


@pytest.mark.usefixtures("without_leases")
def test_without_room_for_a_copy_it_is_reported(
    host: WeightsFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "CLONE", 0)
    host.place_file(host.file_path(), CONTENT)
    host.settings["reserve"] = 1 << 60
    assert fetch_in_process(host) == 1
    assert "so it has to be copied; that takes 0.00 GB" in capsys.readouterr().out
    assert host.file_path().read_bytes() == CONTENT
