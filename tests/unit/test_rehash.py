"""The deep re-hash, as the timer runs it: it finds what no record sees, and disturbs no client."""

import errno
import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest

from roles.weights.host import direct, records, rehash
from roles.weights.host.load import SystemLoad
from tests.unit.weight_shelf import NOW, WeightShelf, is_fresh


def test_due_files_are_hashed_and_others_are_left(shelf: WeightShelf) -> None:
    old, young = shelf.add_file("old", b"a", 8), shelf.add_file("young", b"b", 6)
    assert shelf.run_rehash() == 0
    assert is_fresh(shelf.deep_record(old))
    assert not is_fresh(shelf.deep_record(young))
    assert shelf.run_rehash("--due-days", "5") == 0
    assert is_fresh(shelf.deep_record(young))


def test_all_are_hashed_when_it_is_asked_for_now(shelf: WeightShelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 99.0, 99.0))
    young = shelf.add_file("young", age_days=1)
    assert shelf.run_rehash("--now") == 0
    assert is_fresh(shelf.deep_record(young))


def test_the_oldest_is_the_first_and_one_without_a_date_before_it(shelf: WeightShelf) -> None:
    made = [shelf.add_file(name, name.encode(), age) for name, age in (("b", 20), ("c", 40), ("a", 30), ("never", 1))]
    shelf.deep_record(made[3]).unlink()
    late = shelf.add_file("clock", b"x", -400)
    order = [record.path.name for record in rehash.list_due_records(shelf.records, 7, NOW)]
    assert order == ["never", "c", "a", "b", "clock"]
    assert late.path == "clock"


@pytest.mark.parametrize("place", [0, 3, 6])
def test_wrong_bytes_are_reported_marked_and_not_verified_any_more(
    shelf: WeightShelf, place: int, capsys: pytest.CaptureFixture[str]
) -> None:
    good, file = shelf.add_file("good", b"good"), shelf.add_file("bad")
    rotten = bytearray(b"weights")
    rotten[place] ^= 1
    shelf.corrupt_file(file, bytes(rotten))
    assert shelf.has_file(file)
    assert shelf.run_rehash() == 1
    found = hashlib.sha256(rotten).hexdigest()
    said = capsys.readouterr().out
    assert f"{shelf.root / 'bad'}: expected {file.sha256}, found {found}; deploy again" in said
    assert "2 files hashed, 1 wrong; 0 still due" in said
    assert not shelf.has_file(file)
    assert shelf.wrong_record(file).read_text().startswith(f"{found} 20")
    assert not is_fresh(shelf.deep_record(file))
    assert is_fresh(shelf.deep_record(good))
    # nothing is left to be found wrong; the mark stays until the right bytes are there
    assert shelf.run_rehash() == 0
    assert shelf.wrong_record(file).exists()


@pytest.mark.parametrize("number", [errno.EIO, errno.EUCLEAN])
def test_a_disk_that_does_not_give_the_bytes_has_lost_them(
    shelf: WeightShelf, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    file = shelf.add_file("bad")
    monkeypatch.setattr(os, "preadv", lost)
    assert shelf.run_rehash() == 1
    assert not shelf.has_file(file)
    assert shelf.wrong_record(file).read_text().startswith(f"no bytes ({os.strerror(number)}) 20")


def test_a_file_that_is_gone_or_touched_is_reported_and_is_no_failure(
    shelf: WeightShelf, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, touched = shelf.add_file("gone"), shelf.add_file("touched", b"x")
    (shelf.root / "gone").unlink()
    (shelf.root / "touched").write_bytes(b"y")
    assert shelf.run_rehash() == 0
    said = capsys.readouterr().out
    assert f"note: {shelf.root / 'gone'} was verified, and cannot be read: No such file" in said
    assert f"note: {shelf.root / 'touched'} was touched since it was verified" in said
    assert not shelf.wrong_record(gone).exists()
    assert not shelf.wrong_record(touched).exists()
    assert not is_fresh(shelf.deep_record(touched))


@pytest.mark.parametrize("how", ["a backup by hard links", "a mode that is given again", "a copy"])
def test_a_file_that_was_only_touched_is_recorded_as_it_is_now(
    shelf: WeightShelf, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    file = shelf.add_file("a", age_days=1)
    path = shelf.root / "a"
    path.chmod(0o444)
    if how == "a copy":
        shutil.copy2(path, shelf.root / "b")
        (shelf.root / "b").replace(path)
    elif how == "a backup by hard links":
        (shelf.root / "b").hardlink_to(path)
    assert not shelf.has_file(file)
    assert shelf.run_rehash() == 0
    assert shelf.has_file(file)
    assert is_fresh(shelf.deep_record(file))
    assert f"{path} was touched, and has the right bytes" in capsys.readouterr().out
    assert shelf.run_rehash() == 0
    assert "0 files hashed" in capsys.readouterr().out


def test_a_file_that_was_touched_and_has_other_bytes_is_not_recorded(
    shelf: WeightShelf, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shelf.add_file("a", b"a", age_days=1)
    (shelf.root / "a").write_bytes(b"b")
    (shelf.root / "a").chmod(0o444)
    assert shelf.run_rehash() == 0
    assert not shelf.has_file(file)
    assert f"note: {shelf.root / 'a'} was touched since it was verified" in capsys.readouterr().out


def test_the_record_of_a_version_that_was_replaced_goes(shelf: WeightShelf, capsys: pytest.CaptureFixture[str]) -> None:
    before, now = shelf.add_file("x", b"before"), shelf.add_file("x", b"now")
    assert before.sha256 != now.sha256
    assert shelf.run_rehash() == 0
    assert "note" not in capsys.readouterr().out
    assert [record.name for record in records.list_records(shelf.records)] == [records.record_name(now)]


def test_a_record_that_a_deploy_has_renewed_meanwhile_stays(
    shelf: WeightShelf, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shelf.add_file("x")
    (seen,) = records.list_records(shelf.records)
    (shelf.root / "x").touch()
    records.write_record(shelf.records, shelf.root, file)
    assert rehash.rehash_record(shelf.records, seen, None)
    assert shelf.has_file(file)
    assert "note" not in capsys.readouterr().out


def test_a_file_that_is_written_to_while_it_is_read_is_not_called_wrong(
    shelf: WeightShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shelf.add_file("x", b"x" * 3 * direct.CHUNK)
    real = os.preadv

    def meddle(handle: int, buffers: list[memoryview], offset: int) -> int:
        if offset == direct.CHUNK:
            with (shelf.root / "x").open("r+b") as other:
                other.write(b"y")
                os.fsync(other.fileno())
        return real(handle, buffers, offset)

    monkeypatch.setattr(os, "preadv", meddle)
    assert shelf.run_rehash() == 0
    assert not shelf.wrong_record(file).exists()
    assert not is_fresh(shelf.deep_record(file))


def test_a_file_that_was_touched_is_not_even_read(shelf: WeightShelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.add_file("x")
    (shelf.root / "x").touch()
    monkeypatch.setattr(os, "preadv", lambda *_: pytest.fail("it was read"))
    assert shelf.run_rehash() == 0


def test_a_link_in_its_place_is_not_followed(shelf: WeightShelf) -> None:
    file = shelf.add_file("x")
    (shelf.root / "x").rename(shelf.root / "y")
    (shelf.root / "x").symlink_to("y")
    assert shelf.run_rehash() == 0
    assert not is_fresh(shelf.deep_record(file))


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
    shelf: WeightShelf,
    load: float,
    pressure: str,
    hashed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = shelf.add_file("x")
    (tmp_path / "no-pressure").write_text(pressure)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (4 * load, 0.0, 0.0))
    assert shelf.run_rehash() == 0
    assert is_fresh(shelf.deep_record(file)) == hashed
    assert ("stopped: " in capsys.readouterr().out) != hashed
    assert shelf.run_rehash("--now") == 0
    assert is_fresh(shelf.deep_record(file))


def test_it_stops_between_two_files_when_the_box_becomes_busy(
    shelf: WeightShelf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = shelf.add_file("a", b"a", 30), shelf.add_file("b", b"b", 20)
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0 if is_fresh(shelf.deep_record(first)) else 0.0, 0.0, 0.0))
    assert shelf.run_rehash() == 0
    assert not is_fresh(shelf.deep_record(second))
    assert "1 file hashed, 0 wrong; 1 still due" in capsys.readouterr().out


def test_a_file_half_read_waits_for_calm_and_is_finished_then(
    shelf: WeightShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shelf.add_file("x", b"x" * 3 * direct.CHUNK)
    loads = iter([0.0, 99.0, 99.0])
    monkeypatch.setattr(rehash, "STRETCH", direct.CHUNK)
    monkeypatch.setattr(os, "getloadavg", lambda: (next(loads, 0.0), 0.0, 0.0))
    assert shelf.run_rehash() == 0
    assert next(loads, None) is None
    assert is_fresh(shelf.deep_record(file))


def test_a_box_that_stays_busy_is_not_waited_for_for_ever(shelf: WeightShelf, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shelf.add_file("x", b"x" * 3 * direct.CHUNK)
    loads = iter([0.0])
    monkeypatch.setattr(rehash, "STRETCH", direct.CHUNK)
    monkeypatch.setattr(rehash, "PATIENCE", -1.0)
    monkeypatch.setattr(os, "getloadavg", lambda: (next(loads, 99.0), 0.0, 0.0))
    assert shelf.run_rehash() == 0
    assert not is_fresh(shelf.deep_record(file))
    assert not shelf.wrong_record(file).exists()


def test_its_own_share_of_the_load_is_not_what_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.3, 0.0, 0.0))
    load = SystemLoad(0.5, tmp_path / "none", 0.0)
    assert load.describe_busy() == "the load average is 1.30 a CPU"
    load.begun = True
    assert load.describe_busy() == ""


def test_once_it_reads_only_the_stalls_of_others_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    pressure = tmp_path / "io"
    pressure.write_text("some avg10=80.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 total=0\n")
    ticks = iter([0.0, 2.0, 2.0, 4.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    load = SystemLoad(0.5, pressure, 2.0)
    load.begun = True
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    assert load.describe_busy() == ""
    later = pressure.read_text().replace("total=1000000", "total=1500000")
    monkeypatch.setattr(time, "sleep", lambda seconds: pressure.write_text(later))
    assert load.describe_busy() == "programs wait for the disk 25 % of the time"


def test_on_a_host_without_records_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert rehash.main([str(tmp_path / "none"), str(tmp_path / "locks")]) == 0
