"""The comparison of two hosts' files, and its table of permitted differences."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts.file_comparison import PermittedDifference, collect_files, compare_files, load_permitted


def make_files(folder: Path) -> Path:
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/a").write_text("x")
    (folder / "etc/link").symlink_to("a")
    return folder


def attribute(folder: Path) -> None:
    os.setxattr(folder / "etc/a", "user.note", b"1")


def relink(folder: Path) -> None:
    (folder / "etc/link").unlink()
    (folder / "etc/link").symlink_to("b")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda one: (one / "etc/a").write_text("y"), "/etc/a: content "),
        (lambda one: (one / "etc/a").write_text("xy"), "/etc/a: size 1 and 2; content "),
        (lambda one: (one / "etc/a").chmod(0o600), "/etc/a: mode 420 and 384"),
        (lambda one: (one / "etc").chmod(0o700), "/etc: mode 493 and 448"),
        (attribute, "/etc/a: attributes () and (('user.note', b'1'),)"),
        (relink, "/etc/link: content 'a' and 'b'"),
        (lambda one: (one / "etc/link").unlink(), "/etc/link: only on the first host"),
        (lambda one: (one / "b").mkdir(), "/b: only on the second host"),
        (lambda one: os.mkfifo(one / "p"), "/p: only on the second host"),
        (lambda one: os.utime(one / "etc/a", (1, 1)), ""),
    ],
)
def test_each_difference_is_a_problem_unless_a_row_permits_its_fields(
    tmp_path: Path, change: Callable[[Path], object], problem: str
) -> None:
    one, other = make_files(tmp_path / "1"), make_files(tmp_path / "2")
    change(other)
    first, second = collect_files(one), collect_files(other)
    found = compare_files(first, second, [])
    assert [*map(str.strip, found)] == (
        [] if not problem else [next(line for line in found if line.startswith(problem))]
    )
    names = frozenset({"presence", "content", "size", "mode", "attributes"})
    row = PermittedDifference(re.compile(".*"), "a test", names)
    assert compare_files(first, second, [row]) == ([] if problem else ["no difference: .*"])
    narrow = PermittedDifference(re.compile(".*"), "a test", frozenset({"owner"}))
    assert len(compare_files(first, second, [narrow])) == (2 if problem else 1)


def test_each_row_of_the_table_has_a_reason_and_known_fields() -> None:
    rows = load_permitted()
    assert len({row.path.pattern for row in rows}) == len(rows)
    for row in rows:
        assert re.match("(identity|secret|time|progress|state of the (disk|run)|measurements|log|cache)", row.reason)
        assert row.fields
        assert row.fields <= {"presence", "content", "size", "kind", "mode", "owner", "attributes"}
