"""Reading around the page cache, as fincore(1) sees it."""

import errno
import hashlib
import mmap
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rigwright.project_root import ROOT
from roles.weights.host import direct, records
from tests.unit import short_programs
from tests.unit.weight_shelf import WeightShelf, is_fresh

PAGE = mmap.PAGESIZE
needs_fincore = pytest.mark.skipif(shutil.which("fincore") is None, reason="no fincore here")


def cached(path: Path) -> int:
    line = ["fincore", "--bytes", "--noheadings", "--output", "RES", str(path)]
    return int(short_programs.run_program(line, check=True).stdout)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on a disk: files that exist only in memory cannot leave it."""
    folder = ROOT / "tests" / f".disk-{os.getpid()}"
    folder.mkdir()
    try:
        kind = short_programs.run_program(["stat", "-f", "-c", "%T", str(folder)], check=True)
        if kind.stdout.strip() not in ("ext2/ext3", "xfs", "btrfs"):
            pytest.skip(f"no disk here, but {kind.stdout.strip()}")
        yield folder
    finally:
        shutil.rmtree(folder)


def part_in_memory(path: Path, content: bytes) -> int:
    """Write a file, and have only its second MiB in memory; returns how many bytes that comes to."""
    path.write_bytes(content)
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(handle, 1 << 20, 1 << 20)
    os.close(handle)
    return cached(path)


@needs_fincore
@pytest.mark.parametrize("refused_at", ["never", "open", "read"])
def test_cached_pages_stay_in_memory_and_no_others_come(disk, refused_at, monkeypatch):
    content = os.urandom(3 * direct.CHUNK + 4097)
    shelf = WeightShelf(disk)
    file = shelf.add_file("x", content)
    before = part_in_memory(shelf.root / "x", content)
    assert 0 < before < len(content) // 2
    (shelf.records / records.record_name(file)).write_text(
        f"{records.file_state(shelf.root / 'x')} {shelf.root / 'x'}\n"
    )
    handles: set[int] = set()
    real_open, real_read = os.open, os.preadv

    def no_direct(path: str, flags: int, *more: int, **where: int) -> int:
        if flags & os.O_DIRECT and refused_at == "open":
            raise OSError(errno.EINVAL, "Invalid argument")
        handle = real_open(path, flags, *more, **where)
        handles.discard(handle)
        if flags & os.O_DIRECT:
            handles.add(handle)
        return handle

    def no_read(handle: int, buffers: list[memoryview], offset: int) -> int:
        if handle in handles:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_read(handle, buffers, offset)

    if refused_at != "never":
        monkeypatch.setattr(os, "open", no_direct)
        monkeypatch.setattr(os, "preadv", no_read)
    assert shelf.run_rehash("--now") == 0
    assert is_fresh(shelf.deep_record(file))
    # a kernel that is short of memory takes some of it back by itself
    assert before // 2 < cached(shelf.root / "x") <= before


@needs_fincore
def test_a_plain_read_would_have_been_seen(disk: Path) -> None:
    content = os.urandom(2 * direct.CHUNK)
    before = part_in_memory(disk / "x", content)
    (disk / "x").read_bytes()
    assert cached(disk / "x") > before


def test_pages_that_are_absent_are_reported_as_ranges() -> None:
    assert direct._group_pages([True, True, False, True], 8 * PAGE) == [(8 * PAGE, 2 * PAGE), (11 * PAGE, PAGE)]
    assert direct._group_pages([False], 0) == []


def test_where_memory_cannot_be_asked_nothing_is_dropped(shelf: WeightShelf, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shelf.add_file("x", b"x" * 100)
    dropped: list[int] = []
    monkeypatch.setattr(direct.ctypes, "CDLL", lambda _: SimpleNamespace(mincore=lambda *_: -1))
    monkeypatch.setattr(direct.os, "posix_fadvise", lambda *a: dropped.append(a[3]))
    with direct.open_direct(str(shelf.root / "x"), False) as (handle, around):
        assert list(direct.read_direct(handle, 100, around, bytes)) == [100]
    assert os.POSIX_FADV_DONTNEED not in dropped
    assert file.size == 100


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, direct.CHUNK, direct.CHUNK + 1, 2 * direct.CHUNK - 1])
@pytest.mark.parametrize("around", [True, False])
def test_every_byte_is_read_once(tmp_path: Path, size: int, around: bool) -> None:
    content = os.urandom(size)
    (tmp_path / "x").write_bytes(content)
    hashed = hashlib.sha256()
    with direct.open_direct(str(tmp_path / "x"), around) as (handle, how):
        for _ in direct.read_direct(handle, size, how, hashed.update):
            pass
    assert hashed.hexdigest() == hashlib.sha256(content).hexdigest()


def test_a_read_that_comes_back_short_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(300_000)
    (tmp_path / "x").write_bytes(content)
    real, got = os.preadv, []
    monkeypatch.setattr(os, "preadv", lambda handle, views, at: real(handle, [views[0][:10_000]], at))
    with direct.open_direct(str(tmp_path / "x"), False) as (handle, around):
        for _ in direct.read_direct(handle, len(content), around, lambda part: got.append(bytes(part))):
            pass
    assert b"".join(got) == content
