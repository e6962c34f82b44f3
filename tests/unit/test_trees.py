"""A deploy's record of each tree, and its actions where one differs from that."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.plan.plan_inputs import build_target_state, declared_trees, find_missing_trees
from roles.envs.host.tree import hash_unchanged_file
from roles.trees.host import reconcile, tree_fingerprint, tree_records
from roles.trees.host.tree_entry import content_digest
from roles.trees.host.tree_records import TreesOnHost
from tests.unit.samples import sample_facts, sample_rig
from tests.unit.trees_host import TreesHost, generation_seal, make_trees_host


@pytest.fixture(params=["walked", "glanced", "shared"])
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TreesHost:
    """One whose trees are recorded, each with a glance, of one pass or of several, or none of them."""
    made = make_trees_host(tmp_path / "host", monkeypatch)
    if request.param != "walked":
        monkeypatch.setattr(reconcile, "MANY", 1)
    if request.param == "shared":
        monkeypatch.setattr(tree_fingerprint, "SHARES", 2)
    assert made.run_settle() == 0
    return made


def test_a_host_without_records_gets_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_trees_host(tmp_path / "host", monkeypatch)
    trees = ["1", "2", "llama-1", "tools-1", "rigwright_weights"]
    assert sorted(host.pending_trees()) == sorted(("unrecorded", name) for name in trees)
    assert host.run_settle() == 0
    assert host.pending_trees() == []
    before = host.ledger.read_text()
    assert host.run_settle() == 0
    assert host.ledger.read_text() == before


def test_a_tree_with_an_unchanged_glance_is_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_trees_host(tmp_path / "host", monkeypatch)
    monkeypatch.setattr(reconcile, "MANY", 4)
    assert host.run_settle() == 0
    monkeypatch.setattr(
        tree_records,
        "find_differences",
        lambda tree, *_: pytest.fail(f"walked {tree}") if tree == host.engine_tree else [],
    )
    assert host.pending_trees() == []
    # files that root writes there afterwards are no part of the programs
    (host.engine_tree / "tree").write_text("proven\n")
    assert host.pending_trees() == []
    # one that something has come into and gone from has an unknown state at a glance
    (host.engine_tree / "bin/new").touch()
    (host.engine_tree / "bin/new").unlink()
    with pytest.raises(pytest.fail.Exception, match="walked"):
        host.pending_trees()
    monkeypatch.undo()
    assert host.pending_trees() == []


def test_a_tree_that_changes_while_it_is_recorded_has_no_glance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_trees_host(tmp_path / "host", monkeypatch)
    monkeypatch.setattr(reconcile, "MANY", 4)
    glances = iter(range(100))
    monkeypatch.setattr(reconcile, "fingerprint_tree", lambda *_: str(next(glances)))
    assert host.run_settle() == 0
    assert all("glance" not in path.read_text() for path in host.record_path(host.engine_tree).parent.iterdir())


def read_record(host: TreesHost, tree: Path) -> bool:
    return '"glance":"' in host.record_path(tree).read_text()


def test_a_tree_without_a_glance_that_fits_gets_one_when_anything_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_trees_host(tmp_path / "host", monkeypatch)
    assert host.run_settle() == 0
    assert not read_record(host, host.engine_tree)
    monkeypatch.setattr(reconcile, "MANY", 4)
    assert host.run_settle() == 0
    assert read_record(host, host.engine_tree)
    before = host.record_path(host.engine_tree).read_text()
    (host.engine_tree / "bin/new").touch()
    (host.engine_tree / "bin/new").unlink()
    assert host.run_settle() == 0
    assert read_record(host, host.engine_tree)
    assert host.record_path(host.engine_tree).read_text() != before
    assert host.pending_trees() == []


def test_a_folder_that_lets_others_in_by_a_list_has_no_glance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_trees_host(tmp_path / "host", monkeypatch)
    monkeypatch.setattr(reconcile, "MANY", 4)
    # one that came after modes had been given back
    rights = reconcile.extra_permissions
    monkeypatch.setattr(reconcile, "restore_permissions", lambda *_: None)
    monkeypatch.setattr(
        reconcile, "extra_permissions", lambda path, kind: ["acl"] if path.name == "bin" else rights(path, kind)
    )
    assert host.run_settle() == 0
    assert not read_record(host, host.engine_tree)
    assert read_record(host, host.tools_tree)


def test_the_programs_run_alone_as_a_host_gets_them(host: TreesHost) -> None:
    assert host.run("tree_records").stdout == ""
    (host.engine_tree / "bin/liba.so.1").write_bytes(b"x")
    told = host.run("tree_records")
    assert told.stdout.split("\0")[:5] == ["4", "pending", "changed", str(host.engine_tree), "bin/liba.so.1"], (
        told.stderr
    )
    done = host.run("reconcile")
    assert done.returncode == 1
    assert f"{host.engine_tree} is not what was installed (bin/liba.so.1): remove it" in done.stdout


ODD = (
    "back\\slash",
    "back\\named\\\\",
    "\u2028line",
    "next\x85line",
    "a\x0cform",
    " two  spaces ",
    "tab\t",
    os.fsdecode(b"\xff"),
)


def test_an_image_may_have_files_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_trees_host(tmp_path / "host", monkeypatch)
    for name in ODD:
        (host.engine_tree / "bin" / name).write_text(name, errors="surrogateescape")
    # as the job that unpacks one makes its list
    listing = "find bin -type f -print0 | sort -z | xargs -0 sha256sum > files.sha256"
    subprocess.run(["sh", "-c", listing], cwd=host.engine_tree, check=True)
    assert host.run_settle() == 0
    assert host.pending_trees() == []
    (host.engine_tree / "bin" / ODD[0]).write_text("x")
    assert [kind for kind, _ in host.pending_trees()] == ["changed"]


UNPROVEN: dict[str, Callable[[TreesHost], object]] = {
    "bytes of an engine": lambda host: (host.engine_tree / "bin/liba.so.1").write_bytes(b"x"),
    "a file too many in an engine": lambda host: (host.engine_tree / "bin/libb.so").touch(),
    "a file of an engine that is gone": lambda host: (host.engine_tree / "bin/server").unlink(),
    "a module of host tools": lambda host: next(host.tools_tree.glob("lib/*/*/one.py")).write_text("x = 2\n"),
    "the current generation": lambda host: (host.current_generation / "ready").write_text("#!/bin/sh\nexit\n"),
}


@pytest.mark.parametrize("what", UNPROVEN)
def test_files_that_its_own_list_does_not_prove_get_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    host = make_trees_host(tmp_path / "host", monkeypatch)
    UNPROVEN[what](host)
    assert host.run_settle() == 1
    assert [kind for kind, _ in host.pending_trees()] == ["unrecorded"]


def _swap(path: Path) -> None:
    """Another file of the same size, bytes but one, mode and time."""
    state = path.stat()
    new = path.with_name("new")
    new.write_bytes(b"!" + path.read_bytes()[1:])
    new.chmod(state.st_mode & 0o7777)
    os.utime(new, ns=(state.st_atime_ns, state.st_mtime_ns))
    new.rename(path)


def _link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


CHANGED: dict[str, Callable[[TreesHost], object]] = {
    "bytes": lambda host: (host.engine_tree / "bin/liba.so.1").write_bytes(b"x"),
    "bytes of the same size and time": lambda host: _swap(host.engine_tree / "bin/liba.so.1"),
    "a link": lambda host: _link(host.engine_tree / "bin/liba.so", "/tmp/liba.so.1"),
    "a link in the place of a file": lambda host: _link(host.engine_tree / "bin/server", "liba.so.1"),
    "a file that is gone": lambda host: (host.engine_tree / "bin/server").unlink(),
    "its own list": lambda host: (host.engine_tree / "files.sha256").write_text(""),
}


@pytest.mark.parametrize("what", CHANGED)
def test_other_bytes_are_seen_and_not_taken_for_ours(host: TreesHost, what: str) -> None:
    CHANGED[what](host)
    assert host.pending_trees() == [("changed", "llama-1")]
    assert host.run_settle() == 1
    assert host.pending_trees() == [("changed", "llama-1")]


def _hard_link(path: Path) -> None:
    (path.parents[3] / "backup").hardlink_to(path)


TOUCHED: dict[str, tuple[str, Callable[[TreesHost], object]]] = {
    "the same mode again": ("touched", lambda host: (host.engine_tree / "bin/server").chmod(0o755)),
    "a hard link": ("touched", lambda host: _hard_link(host.engine_tree / "bin/server")),
    "a time": ("touched", lambda host: os.utime(host.engine_tree / "bin/server")),
    "a mode": ("loose", lambda host: (host.engine_tree / "bin/server").chmod(0o777)),
    "a folder's mode": ("loose", lambda host: (host.engine_tree / "bin").chmod(0o777)),
    "a user's bit": ("loose", lambda host: (host.engine_tree / "bin/server").chmod(0o4755)),
    "a file": ("extra", lambda host: (host.engine_tree / "bin/libb.so").touch()),
    "a hidden folder": ("extra", lambda host: (host.engine_tree / ".more/more").mkdir(parents=True)),
    "a pipe": ("extra", lambda host: os.mkfifo(host.engine_tree / "bin/pipe")),
    "a name that is not text": (
        "extra",
        lambda host: Path(os.fsdecode(b"/".join([os.fsencode(host.engine_tree), b"\xff\n"]))).touch(),
    ),
}


@pytest.mark.parametrize("what", TOUCHED)
def test_all_else_is_put_right(host: TreesHost, what: str) -> None:
    expected, change = TOUCHED[what]
    change(host)
    assert host.pending_trees() == [(expected, "llama-1")]
    assert host.run_settle() == 0
    assert host.pending_trees() == []
    assert (host.engine_tree / "bin/server").stat().st_mode & 0o7777 == 0o755
    assert sorted(one.name for one in (host.engine_tree / "bin").iterdir()) == ["liba.so", "liba.so.1", "server"]


def test_a_copy_of_a_tree_is_the_tree_only_where_its_bytes_are(host: TreesHost) -> None:
    away = host.root / "away"
    host.engine_tree.rename(away)
    shutil.copytree(away, host.engine_tree, symlinks=True)
    assert host.pending_trees() == [("touched", "llama-1")]
    (host.engine_tree / "bin/liba.so.1").write_bytes(b"x")
    assert host.run_settle() == 1


def test_programs_are_what_the_deploy_has_placed(host: TreesHost) -> None:
    (host.weights_tree / "more.py").touch()
    (host.weights_tree / "__pycache__").mkdir()
    (host.weights_tree / "__pycache__/rehash.pyc").touch()
    assert host.pending_trees() == [("extra", "rigwright_weights")]
    assert host.run_settle() == 0
    assert sorted(one.name for one in host.weights_tree.iterdir()) == ["load.py", "rehash.py"]
    (host.weights_tree / "load.py").write_text("x = 2\n")
    assert host.run_settle() == 1


@pytest.mark.parametrize("resealed", [False, True])
def test_an_earlier_generation_that_was_changed_is_no_way_back(host: TreesHost, resealed: bool) -> None:
    (host.earlier_generation / "ready").write_text("#!/bin/sh\nrm -rf /\n")
    if resealed:
        (host.earlier_generation / "meta").write_text(
            f"{generation_seal(host.earlier_generation)} 2026-01-01T00:00:00Z\n"
        )
    assert host.run_settle() == 0
    assert (host.earlier_generation.exists(), host.current_generation.exists()) == (False, True)
    assert host.pending_trees() == []


def test_a_generation_that_no_deploy_has_written_goes(host: TreesHost) -> None:
    shutil.copytree(host.current_generation, host.current_generation.with_name("9"), symlinks=True)
    (host.current_generation.with_name("9") / "meta").write_text("0 x\n")
    assert host.pending_trees() == [("unrecorded", "9")]
    assert host.run_settle() == 0
    assert host.pending_trees() == []
    assert not host.current_generation.with_name("9").exists()


def test_a_temporary_switch_changes_no_record(host: TreesHost) -> None:
    (host.current_generation / "proven").unlink()
    assert host.pending_trees() == []


@pytest.mark.parametrize("forged", ["record", "ledger"])
def test_a_record_that_the_ledger_does_not_know_does_not_count(host: TreesHost, forged: str) -> None:
    record = host.record_path(host.engine_tree)
    if forged == "record":
        (host.engine_tree / "bin/liba.so.1").chmod(0o755)
        record.write_text(record.read_text().replace("420", "493"))
    else:
        host.ledger.write_text("")
    assert ("unrecorded", "llama-1") in host.pending_trees()
    assert host.run_settle() == 0
    assert host.pending_trees() == []


def test_records_of_what_is_gone_go(host: TreesHost) -> None:
    shutil.rmtree(host.earlier_generation)
    assert host.pending_trees() == [("stale", host.record_path(host.earlier_generation).name)]
    assert host.run_settle() == 0
    assert host.pending_trees() == []


def test_present_trees_are_reported_and_missing_ones_are_known(host: TreesHost) -> None:
    words = host.run("tree_records", "there").stdout.split("\0")
    there = {words[at + 1]: words[at + 2] for at, word in enumerate(words) if word == "there"}
    assert there[str(host.engine_tree)] == ""
    assert there[str(host.current_generation)] == host.asked["sealed"]
    made = build_target_state(sample_rig(), sample_facts())
    wanted = [*declared_trees(made), str(host.engine_tree)]
    assert find_missing_trees(made, [str(host.engine_tree)], there) == [*wanted[:-1], made.rig.roots.generations]
    there |= dict.fromkeys(wanted, "") | {str(host.current_generation): made.generation.digest}
    assert find_missing_trees(made, [str(host.engine_tree)], there) == []


def _write_digest(host: TreesHost, lie: str = "") -> Path:
    """The output of the job that has made the engine, with a digest of its own choice where it lies."""
    rows = []
    for path in sorted((host.engine_tree / "bin").iterdir()):
        if not path.is_symlink():
            name, one = str(path.relative_to(host.engine_tree)), hash_unchanged_file(path)
            rows.append(f"{replace(one, sha256=lie).row if lie else one.row} {name}\n")
    left = TreesOnHost(host.asked).install_hashes_path(host.engine_tree)
    left.parent.mkdir(exist_ok=True)
    left.write_text("".join(rows))
    left.chmod(0o600)
    return left


@pytest.mark.skipif(os.geteuid() != 0, reason="what root has written is believed, and nobody else's")
def test_files_hashed_by_the_job_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_trees_host(tmp_path / "host", monkeypatch)
    for path in host.engine_tree.rglob("*"):
        if not path.is_symlink():
            os.chown(path, 0, 0)
    left = _write_digest(host)
    read: list[str] = []

    def noting(path: Path, kind: str) -> str:
        read.append(path.name)
        return content_digest(path, kind)

    monkeypatch.setattr("roles.trees.host.reconcile.content_digest", noting)
    assert host.run_settle() == 0
    assert {"server", "liba.so.1"}.isdisjoint(read)
    assert {"build.log", "one.py"} <= {*read}
    assert not left.exists()
    assert host.pending_trees() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="what root has written is believed, and nobody else's")
@pytest.mark.parametrize("what", ["bytes", "somebody's", "anybody may write it", "a link", "cut", "a lie"])
def test_a_changed_file_is_read_and_words_of_others_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    host = make_trees_host(tmp_path / "host", monkeypatch)
    left = _write_digest(host, "0" * 64 if what != "bytes" else "")
    if what == "bytes":
        _swap(host.engine_tree / "bin/liba.so.1")
    elif what == "somebody's":
        os.chown(left, 65534, 65534)
    elif what == "anybody may write it":
        left.chmod(0o606)
    elif what == "a link":
        left.rename(tmp_path / "elsewhere")
        left.symlink_to(tmp_path / "elsewhere")
    elif what == "cut":
        left.write_text(left.read_text()[:-20])
    # a digest that is no file's own contradicts the tree's list
    right = what not in ("bytes", "a lie")
    assert host.run_settle() == (0 if right else 1)
    assert host.pending_trees() == ([] if right else [("unrecorded", "llama-1")])
