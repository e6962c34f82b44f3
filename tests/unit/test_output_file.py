"""Files that verbs write for an operator: whole, through no link, and a sentence where it cannot be."""

import os
import re
from pathlib import Path

import pytest

from cli.exit_codes import NotAsDeclared
from cli.output_file import write_output
from rigwright.project_root import ROOT


def test_a_file_is_written_in_one_step_with_the_usual_mode(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_output(file, "one")
    write_output(str(file), "two\N{RIGHTWARDS ARROW}")
    assert file.read_text() == "two\N{RIGHTWARDS ARROW}"
    mask = os.umask(0)
    os.umask(mask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~mask
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("one")
    file.chmod(0o600)
    write_output(file, "two")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("two", 0o600)


def test_other_bytes_than_text_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_output(tmp_path / "a.json", "\ud800")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_is_replaced_and_what_it_points_at_stays(tmp_path: Path, dangling: bool) -> None:
    other = tmp_path / "authorized_keys"
    if not dangling:
        other.write_text("mine")
    file = tmp_path / "report.md"
    file.symlink_to(other)
    write_output(file, "page")
    assert (file.is_symlink(), file.read_text()) == (False, "page")
    assert (other.read_text() if other.exists() else None) == (None if dangling else "mine")


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_output(pipe, "page")
        assert os.read(reading, 100) == b"page"
    finally:
        os.close(reading)


def test_an_unwritable_file_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotAsDeclared, match="no/a cannot be written: No such file or directory"):
        write_output(tmp_path / "no" / "a", "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(NotAsDeclared, match="cannot be written: Is a directory"):
        write_output(tmp_path / "folder", "x")
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


def test_no_verb_writes_what_it_was_asked_for_otherwise() -> None:
    """Figures of benches among it: a file that an operator names may be a link that another user has put there."""
    verbs = {path.name: path.read_text() for path in (ROOT / "cli").glob("*.py")}
    asked_for = {name for name, text in verbs.items() if re.search(r"Path\(\w*(?:file|output)\)\.write", text)}
    assert asked_for == set()
