"""The deep re-hash, as the timer runs it: it finds what no record sees, and disturbs nobody."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest

from roles.weights.host import direct, records, rehash
from roles.weights.host.load import Load
from tests.unit.shelf import NOW, Shelf, fresh


def test_what_is_due_is_hashed_and_what_is_not_is_left(shelf: Shelf) -> None:
    old, young = shelf.file("old", b"a", 8), shelf.file("young", b"b", 6)
    assert shelf.run() == 0
    assert fresh(shelf.deep(old))
    assert not fresh(shelf.deep(young))
    assert shelf.run("--due-days", "5") == 0
    assert fresh(shelf.deep(young))


def test_all_are_hashed_when_it_is_asked_for_now(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 99.0, 99.0))
    young = shelf.file("young", age_days=1)
    assert shelf.run("--now") == 0
    assert fresh(shelf.deep(young))


def test_the_oldest_is_the_first_and_one_without_a_date_before_it(shelf: Shelf) -> None:
    made = [shelf.file(name, name.encode(), age) for name, age in (("b", 20), ("c", 40), ("a", 30), ("never", 1))]
    shelf.deep(made[3]).unlink()
    late = shelf.file("clock", b"x", -400)
    order = [record.path.name for record in rehash.due(shelf.records, 7, NOW)]
    assert order == ["never", "c", "a", "b", "clock"]
    assert late.path == "clock"


@pytest.mark.parametrize("place", [0, 3, 6])
def test_wrong_bytes_are_said_marked_and_not_verified_any_more(
    shelf: Shelf, place: int, capsys: pytest.CaptureFixture[str]
) -> None:
    good, file = shelf.file("good", b"good"), shelf.file("bad")
    rotten = bytearray(b"weights")
    rotten[place] ^= 1
    shelf.rot(file, bytes(rotten))
    assert shelf.holds(file)
    assert shelf.run() == 1
    found = hashlib.sha256(rotten).hexdigest()
    said = capsys.readouterr().out
    assert f"{shelf.root / 'bad'}: expected {file.sha256}, found {found}; deploy again" in said
    assert "2 files looked at, 1 of them wrong; 0 are still due" in said
    assert not shelf.holds(file)
    assert shelf.wrong(file).read_text().startswith(f"{found} 20")
    assert not fresh(shelf.deep(file))
    assert fresh(shelf.deep(good))
    # nothing is left to be found wrong; the mark stays until the right bytes are there
    assert shelf.run() == 0
    assert shelf.wrong(file).exists()


@pytest.mark.parametrize("number", [errno.EIO, errno.EUCLEAN])
def test_a_disk_that_does_not_give_the_bytes_has_lost_them(
    shelf: Shelf, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    file = shelf.file("bad")
    monkeypatch.setattr(os, "preadv", lost)
    assert shelf.run() == 1
    assert not shelf.holds(file)
    assert shelf.wrong(file).read_text().startswith(f"no bytes ({os.strerror(number)}) 20")


def test_a_file_that_is_gone_or_touched_is_told_and_is_no_failure(
    shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, touched = shelf.file("gone"), shelf.file("touched", b"x")
    (shelf.root / "gone").unlink()
    (shelf.root / "touched").write_bytes(b"y")
    assert shelf.run() == 0
    said = capsys.readouterr().out
    assert f"note: {shelf.root / 'gone'} was verified, and cannot be read: No such file" in said
    assert f"note: {shelf.root / 'touched'} was touched since it was verified" in said
    assert not shelf.wrong(gone).exists()
    assert not shelf.wrong(touched).exists()
    assert not fresh(shelf.deep(touched))


@pytest.mark.parametrize("how", ["a backup by hard links", "a mode that is given again", "a copy"])
def test_a_file_that_was_only_touched_is_recorded_as_it_is_now(
    shelf: Shelf, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    file = shelf.file("a", age_days=1)
    path = shelf.root / "a"
    path.chmod(0o444)
    if how == "a copy":
        shutil.copy2(path, shelf.root / "b")
        (shelf.root / "b").replace(path)
    elif how == "a backup by hard links":
        (shelf.root / "b").hardlink_to(path)
    assert not shelf.holds(file)
    assert shelf.run() == 0
    assert shelf.holds(file)
    assert fresh(shelf.deep(file))
    assert f"{path} was touched, and has the right bytes" in capsys.readouterr().out
    assert shelf.run() == 0
    assert "0 files looked at" in capsys.readouterr().out


def test_a_file_that_was_touched_and_has_other_bytes_is_not_recorded(
    shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shelf.file("a", b"a", age_days=1)
    (shelf.root / "a").write_bytes(b"b")
    (shelf.root / "a").chmod(0o444)
    assert shelf.run() == 0
    assert not shelf.holds(file)
    assert f"note: {shelf.root / 'a'} was touched since it was verified" in capsys.readouterr().out


def test_the_record_of_a_version_that_was_replaced_goes(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    before, now = shelf.file("x", b"before"), shelf.file("x", b"now")
    assert before.sha256 != now.sha256
    assert shelf.run() == 0
    assert "note" not in capsys.readouterr().out
    assert [record.name for record in records.listed(shelf.records)] == [records.name(now)]


def test_a_record_that_a_deploy_has_renewed_meanwhile_stays(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    file = shelf.file("x")
    (seen,) = records.listed(shelf.records)
    (shelf.root / "x").touch()
    records.write(shelf.records, shelf.root, file)
    assert rehash.look(shelf.records, seen, None)
    assert shelf.holds(file)
    assert "note" not in capsys.readouterr().out


def test_a_file_that_is_written_to_while_it_is_read_is_not_called_wrong(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shelf.file("x", b"x" * 3 * direct.CHUNK)
    real = os.preadv

    def meddle(handle: int, buffers: list[memoryview], offset: int) -> int:
        if offset == direct.CHUNK:
            with (shelf.root / "x").open("r+b") as other:
                other.write(b"y")
                os.fsync(other.fileno())
        return real(handle, buffers, offset)

    monkeypatch.setattr(os, "preadv", meddle)
    assert shelf.run() == 0
    assert not shelf.wrong(file).exists()
    assert not fresh(shelf.deep(file))


def test_a_file_that_was_touched_is_not_even_read(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.file("x")
    (shelf.root / "x").touch()
    monkeypatch.setattr(os, "preadv", lambda *_: pytest.fail("it was read"))
    assert shelf.run() == 0


def test_a_link_in_its_place_is_not_followed(shelf: Shelf) -> None:
    file = shelf.file("x")
    (shelf.root / "x").rename(shelf.root / "y")
    (shelf.root / "x").symlink_to("y")
    assert shelf.run() == 0
    assert not fresh(shelf.deep(file))


@pytest.mark.parametrize(
    ("load", "pressure", "hashed"),
    [
        (0.4, "some avg10=9.00 avg60=0.00 avg300=0.00 total=5\n", True),
        (0.6, "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n", False),
        (0.1, "some avg10=11.50 avg60=0.00 avg300=0.00 total=5\n", False),
        (0.1, "what is this\n", True),
    ],
)
def test_a_busy_box_is_left_alone(
    shelf: Shelf,
    load: float,
    pressure: str,
    hashed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = shelf.file("x")
    (tmp_path / "no-pressure").write_text(pressure)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (4 * load, 0.0, 0.0))
    assert shelf.run() == 0
    assert fresh(shelf.deep(file)) == hashed
    assert ("stopped: " in capsys.readouterr().out) != hashed
    assert shelf.run("--now") == 0
    assert fresh(shelf.deep(file))


def test_it_stops_between_two_files_when_the_box_becomes_busy(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = shelf.file("a", b"a", 30), shelf.file("b", b"b", 20)
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0 if fresh(shelf.deep(first)) else 0.0, 0.0, 0.0))
    assert shelf.run() == 0
    assert not fresh(shelf.deep(second))
    assert "1 files looked at, 0 of them wrong; 1 are still due" in capsys.readouterr().out


def test_a_file_half_read_waits_for_calm_and_is_finished_then(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shelf.file("x", b"x" * 3 * direct.CHUNK)
    loads = iter([0.0, 99.0, 99.0])
    monkeypatch.setattr(rehash, "STRETCH", direct.CHUNK)
    monkeypatch.setattr(os, "getloadavg", lambda: (next(loads, 0.0), 0.0, 0.0))
    assert shelf.run() == 0
    assert next(loads, None) is None
    assert fresh(shelf.deep(file))


def test_a_box_that_stays_busy_is_not_waited_for_for_ever(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shelf.file("x", b"x" * 3 * direct.CHUNK)
    loads = iter([0.0])
    monkeypatch.setattr(rehash, "STRETCH", direct.CHUNK)
    monkeypatch.setattr(rehash, "PATIENCE", -1.0)
    monkeypatch.setattr(os, "getloadavg", lambda: (next(loads, 99.0), 0.0, 0.0))
    assert shelf.run() == 0
    assert not fresh(shelf.deep(file))
    assert not shelf.wrong(file).exists()


def test_its_own_share_of_the_load_is_not_what_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.3, 0.0, 0.0))
    load = Load(0.5, tmp_path / "none", 0.0)
    assert load.busy() == "the load average is 1.30 a CPU"
    load.begun = True
    assert load.busy() == ""


def test_once_it_reads_only_the_stalls_of_others_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    pressure = tmp_path / "io"
    pressure.write_text("some avg10=80.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 total=0\n")
    ticks = iter([0.0, 2.0, 2.0, 4.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    load = Load(0.5, pressure, 2.0)
    load.begun = True
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    assert load.busy() == ""
    later = pressure.read_text().replace("total=1000000", "total=1500000")
    monkeypatch.setattr(time, "sleep", lambda seconds: pressure.write_text(later))
    assert load.busy() == "programs wait for the disk 25 % of the time"


def test_on_a_host_without_records_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert rehash.main([str(tmp_path / "none"), str(tmp_path / "locks")]) == 0
