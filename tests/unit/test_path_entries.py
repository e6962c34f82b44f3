"""Objects at paths, as a real shell finds them, and their handling."""

import grp
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from roles.operations.files import PathEntriesFact, PathEntry, repair_last_line
from tests.unit.channel_records import channel_lines


def entries_at(*paths: Path) -> dict[str, PathEntry]:
    script = PathEntriesFact().command([str(path) for path in paths]).script
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return PathEntriesFact().read(done.stdout.splitlines())


def test_each_kind_is_reported_with_what_it_is(tmp_path: Path) -> None:
    file, empty, folder, link, pipe, gone = (tmp_path / name for name in ("a b'", "-c", "d", "l", "p", "gone"))
    file.write_text("text\n")
    file.chmod(0o640)
    empty.touch()
    empty.chmod(0o4755)
    folder.mkdir()
    folder.chmod(0o1777)
    link.symlink_to(file)
    subprocess.run(["mkfifo", pipe], check=True)
    if os.geteuid() == 0:
        os.chown(folder, -1, grp.getgrnam("daemon").gr_gid)
    mine = (file.owner(), file.group())
    assert entries_at(gone, file, link, folder, empty, pipe) == {
        str(gone): PathEntry(),
        str(file): PathEntry("file", "640", *mine, hashlib.sha256(b"text\n").hexdigest()),
        str(link): PathEntry("link", target=str(file)),
        str(folder): PathEntry("directory", "1777", folder.owner(), folder.group()),
        str(empty): PathEntry("file", "4755", *mine, hashlib.sha256(b"").hexdigest()),
        str(pipe): PathEntry("other"),
    }


def test_an_empty_list_is_reported_too(tmp_path: Path) -> None:
    assert entries_at(tmp_path / "gone") == {str(tmp_path / "gone"): PathEntry()}
    assert entries_at() == {}


def test_a_file_whose_content_is_not_told_is_refused() -> None:
    with pytest.raises(ValueError, match="did not report the contents of /srv/x"):
        PathEntriesFact().read(channel_lines(("there", "/srv/x", "81a4", "root", "root")))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tree /b\nuser rigwright-a", "tree /b\nuser rigwright-a\n"),
        ("tree /b\ndir /a", "tree /b\ndir /a\n"),
        ("dir /a\n", "dir /a\n"),
        ("tree /opt", ""),
        ("dir /a\ntree /opt", "dir /a\n"),
        ("dir /a\npackage gcc", "dir /a\n"),
        ("dir /a\nuser rigwright", "dir /a\n"),
        ("", ""),
    ],
)
def test_a_last_line_that_lost_its_end_stays_where_it_is_whole(tmp_path: Path, text: str, wanted: str) -> None:
    ledger = tmp_path / "the owned"
    ledger.write_text(text)
    ledger.chmod(0o600)
    operation: Any = repair_last_line
    for _ in range(2):
        (command,) = operation._inner(path=str(ledger), known=["user rigwright-a", "dir /a"])
        subprocess.run(["sh", "-c", command.get_raw_value()], check=True)
        assert ledger.read_text() == wanted
    assert ledger.stat().st_mode & 0o777 == 0o600
