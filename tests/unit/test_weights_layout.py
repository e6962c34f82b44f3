"""Where weights lie: folders, the ledger, files that were there, links."""

import os
import subprocess
from pathlib import Path

import pytest

from roles.weights.host import spec
from roles.weights.host.hold import has_writers
from roles.weights.host.spec import FetchRefused
from tests.unit.file_server import FileServerHandler, complete_file, error_status
from tests.unit.weights_world import CONTENT, WRONG, WeightsFixture, wanted_file
from tests.unit.weights_world import host as host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")


def good(host: WeightsFixture) -> str:
    return host.server.serve("m", complete_file(CONTENT))


def owned(host: WeightsFixture) -> list[str]:
    """The ledger's rows of the file once it is there."""
    return [f"file {host.file_path()}.part", f"file {host.file_path()}"]


def test_the_ledger_has_folders_and_files_before_they_are_there(host: WeightsFixture) -> None:
    def look(handler: FileServerHandler, start: int) -> None:
        lines = host.ledger.read_text().splitlines()
        assert lines == [
            *(f"dir {path}" for path in (host.root, host.root / "a", host.root / "a/b")),
            f"file {host.file_path()}.part",
        ]
        complete_file(CONTENT)(handler, start)

    old = os.umask(0o077)
    try:
        done = host.run_fetch_file(host.server.serve("m", look))
    finally:
        os.umask(old)
    assert done.returncode == 0, done.stdout
    assert [path.stat().st_mode & 0o777 for path in (host.root, host.root / "a", host.root / "a/b")] == [0o755] * 3


def test_folders_that_were_there_are_not_ours(host: WeightsFixture) -> None:
    (host.root / "a").mkdir(parents=True)
    host.fetch_file(good(host))
    assert host.ledger.read_text().splitlines() == [f"dir {host.root / 'a/b'}", *owned(host)]


def test_a_second_run_adds_nothing_to_the_ledger(host: WeightsFixture) -> None:
    host.fetch_file(good(host))
    before = host.ledger.read_text()
    host.file_path().unlink()
    host.fetch_file(good(host))
    assert host.ledger.read_text() == before


def test_a_file_that_is_placed_after_a_refusal_is_not_ours(host: WeightsFixture) -> None:
    assert host.run_fetch_file(host.server.serve("m", error_status(404))).returncode == 1
    host.place_file(host.file_path(), CONTENT)
    host.fetch_file(good(host))
    assert owned(host)[1] not in host.ledger.read_text().splitlines()


def test_a_right_file_that_was_there_is_adopted_without_a_request(host: WeightsFixture) -> None:
    host.place_file(host.file_path(), CONTENT)
    os.chown(host.file_path(), 1234, 1234)
    host.fetch_file(good(host))
    assert host.server.asked == []
    assert host.is_fetched(wanted_file())
    assert not host.ledger.exists()


@pytest.mark.parametrize("content", [WRONG, b"old", b""], ids=["same size", "other size", "empty"])
def test_a_foreign_wrong_file_is_put_aside_and_kept(host: WeightsFixture, content: bytes) -> None:
    host.place_file(host.file_path(), content)
    host.place_file(host.file_path().with_name("small-q4.gguf.wrong"), b"an earlier one")
    done = host.fetch_file(good(host))
    assert host.file_path().with_name("small-q4.gguf.2.wrong").read_bytes() == content
    assert host.file_path().with_name("small-q4.gguf.wrong").read_bytes() == b"an earlier one"
    (note,) = [line for line in done.stdout.splitlines() if line.startswith("note: ")]
    assert f"{host.file_path()} had other bytes" in note


def test_our_own_wrong_file_is_replaced_by_a_right_one_only(host: WeightsFixture) -> None:
    host.fetch_file(good(host))
    host.file_path().chmod(0o644)
    host.file_path().write_bytes(b"old")
    assert host.run_fetch_file(host.server.serve("m", error_status(404))).returncode == 1
    assert host.file_path().read_bytes() == b"old"
    host.fetch_file(good(host))
    assert [path.name for path in host.file_path().parent.iterdir()] == [host.file_path().name]


def test_a_file_that_was_touched_is_hashed_and_not_fetched(host: WeightsFixture) -> None:
    host.fetch_file(good(host))
    host.server.asked.clear()
    os.utime(host.file_path(), (1, 1))
    assert not host.is_fetched(wanted_file())
    host.fetch_file(good(host))
    assert host.server.asked == []
    assert host.is_fetched(wanted_file())


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/small-q4.gguf", "a/b/small-q4.gguf.part"])
def test_a_link_on_the_way_is_refused(host: WeightsFixture, link: str) -> None:
    elsewhere = host.folder / "elsewhere"
    (elsewhere / "b").mkdir(parents=True)
    (elsewhere / "small-q4.gguf").write_bytes(b"theirs")
    (host.root / link).parent.mkdir(parents=True, exist_ok=True)
    (host.root / link).symlink_to(elsewhere / "small-q4.gguf" if "gguf" in link else elsewhere)
    before = sorted(elsewhere.rglob("*"))
    done = host.run_fetch_file(good(host))
    assert done.returncode == 1
    assert f"{host.root / link} is no" in done.stdout.splitlines()[-1]
    assert sorted(elsewhere.rglob("*")) == before
    assert (elsewhere / "small-q4.gguf").read_bytes() == b"theirs"
    assert host.server.asked == []


@pytest.mark.parametrize(("owner", "mode"), [(1234, 0o755), (0, 0o775), (0, 0o777)])
def test_a_folder_that_others_can_write_is_refused(host: WeightsFixture, owner: int, mode: int) -> None:
    """They could put a link in the place of what root writes there."""
    folder = host.file_path().parent
    folder.mkdir(parents=True)
    os.chown(folder, owner, owner)
    folder.chmod(mode)
    done = host.run_fetch_file(good(host))
    assert done.returncode == 1
    assert f"{folder} can be written by others than root" in done.stdout.splitlines()[-1]
    assert list(folder.iterdir()) == []
    folder.chmod(0o755)
    os.chown(folder, 0, 0)
    host.fetch_file(good(host))


def test_a_folder_in_a_file_s_place_is_refused(host: WeightsFixture) -> None:
    host.file_path().mkdir(parents=True)
    assert "is not a real file" in host.run_fetch_file(good(host)).stdout


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a/..",
        "..",
        "a//b",
        "a/./b",
        "",
        ".",
        "a/",
        "a\nb",
        "a\0b",
        "a\\b",
        ".progress.json",
        ".hub-x/y",
        "a/x.part",
        "a/x.wrong",
    ],
    ids=repr,
)
def test_paths_that_lead_elsewhere_are_refused(host: WeightsFixture, path: str) -> None:
    with pytest.raises(FetchRefused, match="lock the model again"):
        spec.check_relative_path(path)
    done = host.run_fetch({wanted_file(CONTENT, path): host.url_sources(good(host))})
    assert done.returncode == 1
    assert "is not a valid path for a model file: lock the model again" in done.stdout
    assert "Traceback" not in done.stdout
    assert host.server.asked == []
    assert not host.root.exists()


@pytest.mark.parametrize("path", ["a", "org/name/c/sub/x y.gguf", "a/.gitattributes", "a/...", "ü/x"])
def test_other_paths_are_taken(path: str) -> None:
    spec.check_relative_path(path)


@pytest.mark.parametrize("size", [0, 1000, len(CONTENT)], ids=["begun", "half", "made at its full length"])
def test_a_file_that_is_still_being_copied_is_left_alone(host: WeightsFixture, size: int) -> None:
    with host.place_file(host.file_path(), b"").open("wb") as copy:
        copy.truncate(size)
        done = host.run_fetch_file(good(host))
        assert done.returncode == 1
        assert "it is being written to: deploy again when that has ended" in done.stdout
        copy.write(CONTENT)
    assert host.server.asked == []
    done = host.fetch_file(good(host))
    assert host.server.asked == []
    assert host.is_fetched(wanted_file())
    assert [path.name for path in host.file_path().parent.iterdir()] == [host.file_path().name]


def test_a_process_that_ends_meanwhile_is_no_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pathlib of Python 3.11 and older lets go of no folder that is away but one that it may not read."""
    path = tmp_path / "x"
    path.write_bytes(CONTENT)
    scandir = os.scandir
    with subprocess.Popen(["sleep", "60"]) as process:

        def ends(folder: str | Path = ".") -> object:
            if str(folder) == f"/proc/{process.pid}/fd":
                process.kill()
                process.wait()
            return scandir(folder)

        monkeypatch.setattr("os.scandir", ends)
        assert not has_writers(path)
        assert process.poll() is not None
    monkeypatch.undo()
    with path.open("r+b"):
        assert has_writers(path)
    with path.open("rb"):
        assert not has_writers(path)
