"""Records of verified files: the changes that they see, and that a crash never leaves a wrong one."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rigwright.weights.verification import RecordedFile, render_verified_test
from roles.weights.host import records
from roles.weights.host.records import LockedFile
from tests.unit import short_programs

CONTENT = b"weights"
SHA = "ab" * 32


def write_record(root: Path, path: str = "org/name/commit/sub/x.gguf", sha256: str = SHA) -> LockedFile:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(CONTENT)
    return LockedFile(path, sha256, len(CONTENT))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "weights"


def stat(path: Path) -> str:
    command = ["stat", "-c", "%s %.9Y %.9Z %i", str(path)]
    done = short_programs.run_program(command, env={**os.environ, "LC_ALL": "C"}, check=True)
    return done.stdout.removesuffix("\n")


@pytest.mark.parametrize("mtime", [0, 1, 999_999_999, 1_700_000_000_000_000_007, -1, -500_000_000, -1_000_000_000])
def test_a_state_is_what_stat_says(root: Path, mtime: int) -> None:
    path = root / write_record(root).path
    os.utime(path, ns=(0, mtime))
    assert records.file_state(path) == stat(path)


def test_a_states_link_is_not_followed(root: Path) -> None:
    (root / "link").symlink_to(root / write_record(root).path)
    assert records.file_state(root / "link") == stat(root / "link") != stat(root / write_record(root).path)


def again(path: Path, content: bytes = b"WEIGHTS") -> None:
    """Write other bytes of the same size and put the mtime back."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path: Path) -> None:
    before = path.stat()
    other = path.with_name("other")
    other.write_bytes(CONTENT)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


def linked(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


CHANGES: dict[str, Callable[[Path], object]] = {
    "size": lambda path: os.truncate(path, 3),
    "mtime": lambda path: os.utime(path, (1, 1)),
    "ctime": again,
    "mode": lambda path: path.chmod(0o600),
    "replaced": replaced,
    "gone": lambda path: path.unlink(),
    "a link": linked,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_touched_files_are_no_longer_verified(folder: Path, root: Path, change: str) -> None:
    file = write_record(root)
    records.write_record(folder, root, file)
    assert records.is_record_valid(folder, root, file)
    assert verified(folder, root, [file])
    CHANGES[change](root / file.path)
    assert not records.is_record_valid(folder, root, file)
    assert not verified(folder, root, [file])


def test_without_a_record_nothing_holds_and_nothing_is_made_up(folder: Path, root: Path) -> None:
    assert not records.is_record_valid(folder, root, write_record(root))
    with pytest.raises(OSError):
        records.write_record(folder, root, LockedFile("not/there", SHA, 1))
    assert records.list_records(folder) == []


def test_a_record_is_a_line_of_stat_and_the_path(folder: Path, root: Path) -> None:
    file = write_record(root)
    records.write_record(folder, root, file)
    assert (folder / records.record_name(file)).read_text() == f"{stat(root / file.path)} {root / file.path}\n"
    (record,) = records.list_records(folder)
    assert (record.name, record.state, record.path) == (
        records.record_name(file),
        stat(root / file.path),
        root / file.path,
    )
    assert record.sha256 == SHA
    assert (folder / "deep" / record.name).is_file()


def test_a_half_written_record_does_not_count_and_does_not_stay(folder: Path, root: Path) -> None:
    file = write_record(root)
    folder.mkdir()
    (folder / f"{records.record_name(file)}.new").write_text("7 17")
    assert not records.is_record_valid(folder, root, file)
    assert records.list_records(folder) == []
    records.write_record(folder, root, file)
    assert records.is_record_valid(folder, root, file)
    assert [path.name for path in folder.iterdir() if path.is_file()] == [records.record_name(file)]


def test_a_write_that_is_cut_off_leaves_the_file_unverified(
    folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(handle: int) -> None:
        raise OSError("power cut")

    monkeypatch.setattr(os, "fsync", cut)
    file = write_record(root)
    with pytest.raises(OSError, match="power cut"):
        records.write_record(folder, root, file)
    assert not records.is_record_valid(folder, root, file)


def test_a_write_takes_the_mark_away(folder: Path, root: Path) -> None:
    file = write_record(root)
    (folder / "wrong").mkdir(parents=True)
    (folder / "wrong" / records.record_name(file)).write_text("found\n")
    records.write_record(folder, root, file)
    assert list((folder / "wrong").iterdir()) == []


def test_a_record_that_is_withdrawn_holds_no_more(folder: Path, root: Path) -> None:
    file = write_record(root)
    records.write_record(folder, root, file)
    for found in ("cd" * 32, "ef" * 32):
        records.withdraw_record(folder, records.record_name(file), found)
        assert not records.is_record_valid(folder, root, file)
        assert (folder / "wrong" / records.record_name(file)).read_text() == f"{found}\n"


def test_invalid_records_are_not_listed(folder: Path, root: Path) -> None:
    file = write_record(root)
    records.write_record(folder, root, file)
    (folder / "notes-of-mine").write_text("1 2 3 4 /x")
    (folder / f"{'c' * 64}-{'0' * 12}").write_text("")
    (folder / f"{'d' * 64}-{'0' * 12}").write_bytes(b"\xff 1 2 3 /x")
    (folder / f"{'e' * 64}-{'0' * 12}").write_text("1 2 3 4 relative\n")
    assert [record.name for record in records.list_records(folder)] == [records.record_name(file)]


def as_recorded(root: Path, file: LockedFile) -> RecordedFile:
    return RecordedFile(str(root), file.path, file.sha256)


def verified(folder: Path, root: Path, files: list[LockedFile], shell: str = "sh") -> bool:
    condition = render_verified_test(str(folder), [as_recorded(root, file) for file in files])
    done = short_programs.run_program(
        [shell, "-c", f"if {condition}; then echo done; else echo open; fi"],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout in ("done\n", "open\n")
    return done.stdout == "done\n"


SHELLS = [shell for shell in ("sh", "dash", "bash") if shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_one_condition_holds_for_all_files_and_sees_any(folder: Path, root: Path, shell: str) -> None:
    files = [write_record(root, f"org/name/c/x y $(1) \\n '{n}'.gguf", f"{n:064x}") for n in range(20)]
    for file in files:
        records.write_record(folder, root, file)
    assert verified(folder, root, files, shell)
    assert verified(folder, root, files[3:7], shell)
    for file in (files[0], files[9], files[19]):
        (root / file.path).touch()
        assert not verified(folder, root, files, shell)
        records.write_record(folder, root, file)
        assert verified(folder, root, files, shell)


BROKEN: dict[str, Callable[[Path], object]] = {
    "gone": lambda record: record.unlink(),
    "empty": lambda record: record.write_text(""),
    "half": lambda record: record.write_text(record.read_text()[:20]),
    "without its end": lambda record: record.write_text(record.read_text()[:-5]),
    "two lines": lambda record: record.write_text(record.read_text() * 2),
    "a folder": lambda record: (record.unlink(), record.mkdir()),
    "of another place": lambda record: record.write_text(record.read_text().replace("models", "other")),
    "with options": lambda record: record.write_text("1 2 3 4 --version\n"),
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_record_that_is_not_right_proves_nothing(folder: Path, root: Path, broken: str, which: int) -> None:
    files = [write_record(root, f"{n}.gguf", f"{n:064x}") for n in range(3)]
    for file in files:
        records.write_record(folder, root, file)
    shutil.copytree(root, root.parent / "other")
    assert verified(folder, root, files)
    BROKEN[broken](folder / records.record_name(files[which]))
    assert not verified(folder, root, files)


def test_a_record_of_another_untouched_file_proves_nothing(folder: Path, root: Path) -> None:
    one, other = write_record(root, "one.gguf"), write_record(root, "other.gguf")
    records.write_record(folder, root, other)
    (folder / records.record_name(one)).write_text((folder / records.record_name(other)).read_text())
    assert not verified(folder, root, [one])
    assert not verified(folder, root, [one, other])


def test_without_the_folder_nothing_is_verified_and_no_files_need_nothing(folder: Path, root: Path) -> None:
    assert not verified(folder, root, [write_record(root)])
    assert verified(folder, root, [])


def test_six_hundred_files_fit_into_a_command(folder: Path, root: Path) -> None:
    files = [
        write_record(root, f"org/name/{'c' * 40}/model-{n:05}-of-00600.safetensors", f"{n:064x}") for n in range(600)
    ]
    for file in files:
        records.write_record(folder, root, file)
    condition = render_verified_test(str(folder), [as_recorded(root, file) for file in files])
    assert len(condition) < 100_000
    assert "'" not in condition
    assert verified(folder, root, files)
    (root / files[311].path).touch()
    assert not verified(folder, root, files)


def test_both_sides_name_a_record_alike() -> None:
    file = LockedFile("org/name/commit/sub/x.gguf", SHA, 1)
    assert RecordedFile("/srv/models", file.path, SHA).record == records.record_name(file)
