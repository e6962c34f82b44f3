"""A large tree is looked at by passes of find(1) that run at the same time, of which none leaves anything out."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest

from checks.survey.host import trees
from roles.trees.host import reconcile, tree_fingerprint, tree_records
from roles.trees.host.tree_fingerprint import SHARES, fingerprint_tree, split_into_passes
from tests.unit.test_survey_trees import changes
from tests.unit.trees_host import TreesHost, make_trees_host


def names(folder: str, count: int) -> list[str]:
    return [folder, *(f"{folder}/{number}" for number in range(count))]


def test_folders_are_shared_out_whole_until_each_pass_has_about_as_much() -> None:
    there = [
        "",
        "top",
        *names("top/a", 400),
        *names("top/b", 259),
        *names("top/b/in", 40),
        *names("top/c", 100),
        *names("top/d", 300),
    ]
    there += [*names("top/e", 8), *names("top/f", 300), *names("alone", 30)]
    assert split_into_passes(there) == [["top/b", "alone"], ["top/d"], ["top/f"]]


def test_a_folder_with_more_than_one_pass_may_have_is_divided() -> None:
    there = ["top", "top/in", *(name for letter in "abcdefgh" for name in names(f"top/in/{letter}", 100))]
    found = split_into_passes(there)
    assert [len(share) for share in found] == [2] * (SHARES - 1)
    assert {name.rpartition("/")[0] for share in found for name in share} == {"top/in"}


@pytest.mark.parametrize("name", ["a*", "b?", "c[d]", "e\\f", "g h", "i\n", "\udcff", "\u2028"])
def test_a_folder_that_no_pattern_names_is_not_shared(name: str) -> None:
    assert split_into_passes([*names("top", 400), *names(f"{name}x", 100), *names("other", 100)]) == [["other"]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("top/a", "top/b/in", "top/c", "top/d"):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(30):
            (tmp_path / folder / f"{number}").write_text("x")
    (tmp_path / "top/link").symlink_to("a")
    (tmp_path / "note").write_text("x")
    return tmp_path


def list_tree(tree: Path) -> list[str]:
    return [str(one.relative_to(tree)) for one in tree.rglob("*")]


def _linked(folder: Path) -> None:
    away = Path(mkdtemp()) / "away"
    folder.rename(away)
    folder.symlink_to(away)


CHANGES: dict[str, Callable[[Path], object]] = {
    "bytes": lambda folder: (folder / "3").write_text("y"),
    "a mode": lambda folder: (folder / "3").chmod(0o600),
    "the folder's mode": lambda folder: folder.chmod(0o700),
    "a time": lambda folder: os.utime(folder / "3", (1, 1)),
    "a file more": lambda folder: (folder / "more").touch(),
    "a file less": lambda folder: (folder / "3").unlink(),
    "a folder more": lambda folder: (folder / "more").mkdir(),
    "another name": lambda folder: (folder / "3").rename(folder / "4"),
    "the folder is gone": shutil.rmtree,
    "the folder has another name": lambda folder: folder.rename(folder.with_name("z")),
    "a link to it in its place": _linked,
    "a folder beside it": lambda folder: (folder.parent / "beside").mkdir(),
}


@pytest.mark.parametrize("where", ["top/a", "top/b", "top/c", "top/d", "top/b/in"])
@pytest.mark.parametrize("what", CHANGES)
def test_each_change_is_seen_whatever_pass_it_is_in(tree: Path, what: str, where: str) -> None:
    shared = split_into_passes(list_tree(tree))
    assert len(shared) == SHARES - 1
    before = fingerprint_tree(tree, (), shared)
    assert before == fingerprint_tree(tree, (), shared) != ""
    if not (tree / where / "3").exists():
        (tree / where / "3").write_text("x")
        before = fingerprint_tree(tree, (), shared)
    CHANGES[what](tree / where)
    assert fingerprint_tree(tree, (), shared) != before


def test_an_error_of_find_gives_no_glance(tree: Path) -> None:
    assert fingerprint_tree(tree, (), [["top/a"]])
    assert fingerprint_tree(tree, (), [["top/none"]]) == ""
    assert fingerprint_tree(tree / "none") == ""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TreesHost:
    made = make_trees_host(tmp_path / "host", monkeypatch)
    monkeypatch.setattr(reconcile, "MANY", 1)
    monkeypatch.setattr(tree_fingerprint, "SHARES", 2)
    return made


def unwalked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_records, "find_differences", lambda tree, *_: pytest.fail(f"walked {tree}"))
    monkeypatch.setattr(trees, "walk", lambda tree, *_: pytest.fail(f"walked {tree}"))


def test_a_record_names_what_is_shared_out_and_both_readers_take_it(
    host: TreesHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host.run_settle() == 0
    assert '"shares":[["bin"]]' in host.record_path(host.engine_tree).read_text()
    unwalked(monkeypatch)
    assert host.pending_trees() == []
    assert changes(host) == []


def test_a_record_of_before_trees_were_shared_out_still_counts(
    host: TreesHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "split_into_passes", lambda _: [])
    assert host.run_settle() == 0
    # as it was written then
    for record in host.record_path(host.engine_tree).parent.iterdir():
        was = record.read_bytes()
        record.write_bytes(text := was.replace(b'"shares":[],', b""))
        known = host.ledger.read_text().replace(hashlib.sha256(was).hexdigest(), hashlib.sha256(text).hexdigest())
        host.ledger.write_text(known)
    assert "shares" not in host.record_path(host.engine_tree).read_text()
    assert '"glance":"' in host.record_path(host.engine_tree).read_text()
    unwalked(monkeypatch)
    assert host.pending_trees() == []
    assert changes(host) == []
