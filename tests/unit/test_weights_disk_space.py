"""Room on the disk, and files that were sent in place of being fetched."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.weights.host.records import LockedFile
from tests.unit.file_server import complete_file
from tests.unit.polling import wait_until
from tests.unit.weights_world import CONTENT, HALF, WRONG, WeightsFixture, wanted_file
from tests.unit.weights_world import host as host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")


def good(host: WeightsFixture) -> str:
    return host.server.serve("m", complete_file(CONTENT))


def test_without_room_nothing_is_fetched(host: WeightsFixture) -> None:
    host.settings["reserve"] = 1 << 60
    done = host.run_fetch_file(good(host))
    assert done.returncode == 1
    assert "are still to come" in done.stdout.splitlines()[-1]
    assert "make room" in done.stdout.splitlines()[-1]
    assert host.server.asked == []


def test_present_files_need_no_space(host: WeightsFixture) -> None:
    host.settings["reserve"] = 1 << 60
    host.place_file(host.file_path(), CONTENT)
    other = wanted_file(WRONG, "a/b/other.gguf")
    host.place_file(host.part_path(other), WRONG)
    host.fetch({wanted_file(): host.url_sources(good(host)), other: []})


@pytest.fixture
def small_disk(host: WeightsFixture) -> Iterator[WeightsFixture]:
    """The models' root is a disk of its own, with room for some files."""
    host.root.mkdir()
    size = len(CONTENT) * 8
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(host.root)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")
    try:
        yield host
    finally:
        subprocess.run(["umount", "--lazy", str(host.root)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return filler


@pytest.mark.parametrize("python", ["client", ""], ids=["client", "plain"])
def test_a_disk_that_fills_up_on_the_way_is_reported_once_and_the_next_run_goes_on(
    small_disk: WeightsFixture, python: str
) -> None:
    host = small_disk
    host.python = host.python if python else ""
    content = CONTENT * 2
    one, other = wanted = host.commit_files({"x.gguf": content, "y.gguf": content[:-1]})
    host.settings["parallel"] = 1
    # on the first byte of whichever file is the first
    begun: list[LockedFile] = []

    def begins() -> bool:
        begun.extend(each for each in wanted if host.part_path(each).exists() and host.part_path(each).stat().st_size)
        return bool(begun)

    host.hub.bytes_a_second = len(content)
    with host.start_fetch(wanted) as process:
        wait_until(begins)  # with pauses: the hub's threads are this process's
        filler = fill(host.root)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 1, said
    last = said.splitlines()[-1]
    assert "is full" in last
    assert "make room and deploy again" in last
    assert last.startswith(f"{one.path}, {other.path}: "), said
    had = host.part_path(begun[0]).stat().st_size
    assert 0 < had < len(content) - 1
    filler.unlink()
    host.hub.bytes_a_second = None
    host.hub.asked.clear()
    host.fetch(wanted)
    assert f"{begun[0].path.rpartition('/')[2]} bytes={had}-" in host.requested_ranges()


def test_sent_files_are_moved_verified_and_named(host: WeightsFixture) -> None:
    sent = host.folder / "sent"
    host.place_file(sent / "small-q4.gguf", CONTENT)
    host.settings["sent"] = str(sent)
    host.fetch({wanted_file(): []})
    assert not sent.exists()


def test_sent_files_from_another_disk_are_copied(small_disk: WeightsFixture) -> None:
    test_sent_files_are_moved_verified_and_named(small_disk)


@pytest.mark.parametrize("content", [None, WRONG, CONTENT[:HALF]], ids=["nothing", "wrong", "half"])
def test_damaged_sent_files_are_reported(host: WeightsFixture, content: bytes | None) -> None:
    sent = host.folder / "sent"
    sent.mkdir()
    if content is not None:
        host.place_file(sent / "small-q4.gguf", content)
    host.settings["sent"] = str(sent)
    done = host.run_fetch({wanted_file(): []})
    assert done.returncode == 1
    assert "sent: " in done.stdout.splitlines()[-1]
    assert not host.is_fetched(wanted_file())
    assert not sent.exists()


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "somebody else's"])
def test_a_wrong_file_that_keeps_the_right_one_from_being_sent_makes_room(host: WeightsFixture, ours: bool) -> None:
    """Nothing is sent for a file of the right size: most have the right bytes."""
    host.place_file(host.file_path(), WRONG)
    if ours:
        host.ledger.write_text(f"file {host.file_path()}\n")
    sent = host.folder / "sent"
    host.settings["sent"] = str(sent)
    done = host.run_fetch({wanted_file(): []})
    assert done.returncode == 1
    assert "deploy again" in done.stdout.splitlines()[-1]
    assert not host.file_path().exists()
    aside = host.file_path().with_name("small-q4.gguf.wrong")
    assert [one.read_bytes() for one in (aside,) if one.exists()] == ([] if ours else [WRONG])
    host.place_file(sent / "small-q4.gguf", CONTENT)
    host.fetch({wanted_file(): []})
