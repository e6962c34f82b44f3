"""The survey's view of trees, of the links that lead to them and of generations, on folders made for it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checks.survey.answers import SurveyAnswers
from checks.survey.base_system import PYTHON
from checks.survey.host import (
    common,
    compile_caches,
    generations,
    mount_table,
    path_permissions,
    python_shadowing,
    trees,
)
from checks.survey.programs import COMPILED, PROGRAMS
from checks.survey.serving import GENERATIONS
from checks.survey.trees import TREES, WAYS, TreeChange, Trees
from roles.trees.host import reconcile
from tests.unit.test_checks_survey import run
from tests.unit.test_trees import CHANGED
from tests.unit.test_trees import host as host
from tests.unit.trees_host import TreesHost, make_trees_host

ODD = os.fsdecode(b"\xff\n\x1b[2J")


def survey_trees(host: TreesHost, deep: bool = False) -> Trees:
    root = str(host.root)
    asked: dict[str, Any] = {
        "software": f"{root}/opt",
        "installed": {
            f"{root}/opt": ["tools-"],
            f"{root}/opt/engines": [""],
            f"{root}/opt/weights": ["rigwright_weights"],
            f"{root}/etc/generations": ["1", "2", "9"],
        },
        "declared": [str(host.engine_tree), str(host.tools_tree), str(host.weights_tree)],
        "records": {"folder": f"{root}/var/trees", "ledger": str(host.ledger)},
        "unless": {f"{root}/etc/generations": ["proven"]},
        "marker": "build.json",
        "prefixes": [str(host.tools_tree)],
        "deep": deep,
    }
    return SurveyAnswers({"trees": {"told": trees.look(asked)}}).read(TREES)


def changes(host: TreesHost, deep: bool = False) -> list[TreeChange]:
    return [change for tree in survey_trees(host, deep).trees for change in tree.changes]


@pytest.mark.parametrize("deep", [False, True])
def test_a_recorded_tree_is_unchanged(host: TreesHost, deep: bool) -> None:
    found = survey_trees(host, deep)
    assert [(tree.there, tree.unrecorded, tree.changes, tree.count) for tree in found.trees] == [(True, "", [], 0)] * 5
    assert found.tree(str(host.engine_tree)).marker == '{"inputs": {}}\n'
    assert found.distributions == {str(host.tools_tree): ["one-1.0.dist-info"]}
    assert found.beside == []


def test_a_large_tree_that_is_as_it_was_is_not_walked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_trees_host(tmp_path / "host", monkeypatch)
    monkeypatch.setattr(reconcile, "MANY", 1)
    assert host.run_settle() == 0
    monkeypatch.setattr(trees, "walk", lambda *_: pytest.fail("walked"))
    assert changes(host) == []
    with pytest.raises(pytest.fail.Exception, match="walked"):
        changes(host, deep=True)
    (host.engine_tree / "bin/server").chmod(0o755)
    with pytest.raises(pytest.fail.Exception, match="walked"):
        changes(host)


def test_few_bytes_are_read(host: TreesHost, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = trees.hashed

    def hashed(path: str) -> str:
        read.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(trees, "hashed", hashed)
    (host.engine_tree / "bin/server").chmod(0o755)
    assert (changes(host), read) == ([], ["server"])


@pytest.mark.parametrize("what", CHANGED)
def test_each_change_of_bytes_is_seen(host: TreesHost, what: str) -> None:
    CHANGED[what](host)
    (found,) = changes(host)
    assert found.what in ("other", "missing")
    assert found.expected != found.found
    assert found.since.endswith(" UTC")


LOOSE: dict[str, Callable[[TreesHost], object]] = {
    "a mode": lambda host: (host.engine_tree / "bin/server").chmod(0o757),
    "a folder's mode": lambda host: (host.engine_tree / "bin").chmod(0o1777),
    "the tree's own": lambda host: host.tools_tree.chmod(0o777),
    "a generation's": lambda host: (host.current_generation / "units").chmod(0o777),
}


@pytest.mark.parametrize("what", LOOSE)
def test_further_rights_are_seen(host: TreesHost, what: str) -> None:
    LOOSE[what](host)
    (found,) = changes(host)
    assert (found.what, "with mode 755" in found.expected, "777" in found.found or "757" in found.found) == (
        "loose",
        True,
        True,
    )


@pytest.mark.parametrize("name", ["libggml-cuda.so", ".hidden", ODD])
def test_added_files_are_seen_with_any_name(host: TreesHost, name: str) -> None:
    (host.engine_tree / "bin" / name).touch()
    (found,) = changes(host)
    assert (found.what, found.path.startswith("bin/")) == ("added", True)


def test_the_first_of_many_are_reported_and_all_are_counted(host: TreesHost) -> None:
    for number in range(100):
        (host.engine_tree / f"more{number}").touch()
    (host.engine_tree / "bin/server").write_text("x")
    tree = survey_trees(host).tree(str(host.engine_tree))
    assert (tree.count, len(tree.changes), {one.what for one in tree.changes}) == (101, 9, {"added", "other"})


def test_a_link_in_the_place_of_a_tree_does_not_count(host: TreesHost) -> None:
    host.engine_tree.rename(host.root / "away")
    host.engine_tree.symlink_to(host.root / "away")
    found = survey_trees(host)
    assert (found.tree(str(host.engine_tree)).there, found.beside) == (False, [str(host.engine_tree)])


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (lambda host: host.record_path(host.engine_tree).unlink(), "no record of it"),
        (lambda host: host.record_path(host.engine_tree).write_text("{}"), "a record that the ledger does not know"),
        (lambda host: host.ledger.write_text("\xff\nrecord\n"), "a record that the ledger does not know"),
        (
            lambda host: shutil.copy(host.record_path(host.tools_tree), host.record_path(host.engine_tree)),
            "a record that the ledger",
        ),
    ],
)
def test_without_a_record_of_roots_the_state_is_unknown(
    host: TreesHost, forge: Callable[[TreesHost], object], said: str
) -> None:
    forge(host)
    tree = survey_trees(host).tree(str(host.engine_tree))
    assert tree.unrecorded.startswith(said)


def test_a_record_that_is_invalid_is_no_answer(host: TreesHost) -> None:
    host.record_path(host.engine_tree).write_text("[]")
    digest = trees.hashed(str(host.record_path(host.engine_tree)))
    host.ledger.write_text(f"record {host.record_path(host.engine_tree).name} {digest}\n")
    with pytest.raises((TypeError, KeyError)):
        survey_trees(host)


def test_neighbours_are_named(host: TreesHost) -> None:
    (host.root / "opt/helper").touch()
    (host.root / "opt/tools-2").symlink_to("/root")
    (host.root / "opt/engines/other").mkdir()
    found = survey_trees(host)
    assert [Path(path).name for path in found.beside] == ["helper", "tools-2"]
    assert [Path(tree.path).name for tree in found.trees if tree.unrecorded] == ["other"]


def test_generations_are_read_whole(host: TreesHost) -> None:
    config = str(host.root / "etc")
    names = {"meta": "meta", "proven": "proven", "activating": "activating"}
    (host.earlier_generation / "references").write_text(
        f"{host.engine_tree}\n/nowhere/{ODD}\n", errors="surrogateescape"
    )
    (host.root / "etc/more").touch()
    told = generations.look({"config": config, "folder": f"{config}/generations", **names})
    found = SurveyAnswers({"generations": {"told": told}}).read(GENERATIONS)
    assert (found.current, found.activating, found.beside) == (
        "generations/2",
        False,
        ["current", "generations", "more"],
    )
    assert [one.number for one in found.kept] == [1, 2]
    assert found.kept[1].files["tools"] == "-> /opt/tools-1"
    assert found.kept[1].files["ready"].endswith(" 755")
    assert found.kept[0].lost


MOUNTS = """\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 8:2 / /opt rw,noexec - ext4 /dev/sdb1 rw
3 2 8:1 /tmp/x\\040y /opt/rw/engines/a\\134b rw - ext4 /dev/sda1 rw
4 1 0:5 / /proc rw - proc proc rw
5 1 0:6 / /srv/models/one rw - tmpfs tmpfs rw
"""


def test_mounts_that_matter_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fstab = "# /opt/no tmpfs\n/dev/sdb1 /opt ext4 defaults 0 2\n"
    fstab += "tmpfs /opt/rw/tools tmpfs rw 0 0\ntmpfs /opt/rw/x tmpfs noauto 0 0\n"
    texts = {"/proc/1/mountinfo": MOUNTS, "/etc/fstab": fstab}
    monkeypatch.setattr(common, "read", lambda path, *_: texts.get(str(path)))
    monkeypatch.setattr(mount_table, "UNIT_FOLDERS", ())
    told = path_permissions.look({"roots": ["/opt/rw", "/srv/models"], "below": ["/opt/rw"]})
    found = SurveyAnswers({"path_permissions": {"told": told}}).read(WAYS)
    assert [(one.point, one.root) for one in found.mounts] == [
        ("/", "/"),
        ("/opt", "/"),
        ("/opt/rw/engines/a\\b", "/tmp/x y"),
        ("/srv/models/one", "/"),
    ]
    assert found.waiting == ["/opt/rw/tools"]


def test_a_way_through_a_link_is_both_ways(tmp_path: Path) -> None:
    (tmp_path / "real/sw").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "loop").symlink_to("loop")
    found = [one["path"] for one in path_permissions.way(str(tmp_path / "linked/sw"))]
    assert {str(tmp_path / "linked"), str(tmp_path / "real"), "/"} <= set(found)
    assert str(tmp_path / "loop") in [one["path"] for one in path_permissions.way(str(tmp_path / "loop"))]


def test_programs_are_run_to_a_bounded_end(tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    apart.write_text('#!/bin/sh\nshift\nexec sh -c "$1"\n')
    apart.chmod(0o755)
    asked = {"says": [str(apart), "echo a; echo b >&2; exit 3"], "floods": [str(apart), "yes | head -c 9000000"]}
    found = SurveyAnswers(run({"programs": (20.0, asked)})).read(PROGRAMS)
    assert (found["says"].status, set(found["says"].text.split())) == (3, {"a", "b"})
    assert len(found["floods"].text) < 70_000


def test_the_first_modules_of_python_are_a_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, site = tmp_path / "usr/lib/python3.13", tmp_path / "usr/local/lib/python3.13/dist-packages"
    for folder in (library / "__pycache__", site, tmp_path / "var/lib/dpkg/info"):
        folder.mkdir(parents=True)
    (library / "json.py").touch()
    (tmp_path / "var/lib/dpkg/info/python.list").write_text("/usr\n/usr/lib/python3.13/json.py\n")
    (site / "paths.pth").write_text("/somewhere\n")
    (site / "module.py").touch()
    monkeypatch.setattr(python_shadowing, "ROOT", tmp_path)
    assert SurveyAnswers({"python_shadowing": {"told": python_shadowing.look({})}}).read(PYTHON).foreign == []
    (library / "json").mkdir()
    (library / ODD).touch()
    (site / "more.pth").write_text("/somewhere\nimport os\n")
    (site / "sitecustomize.py").touch()
    (tmp_path / "usr/lib/python313.zip").touch()
    found = SurveyAnswers({"python_shadowing": {"told": python_shadowing.look({})}}).read(PYTHON).foreign
    assert len(found) == 5


def test_whose_compiled_code_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "own/x").touch()
    (tmp_path / "warm").mkdir(mode=0o777)
    (tmp_path / "warm").chmod(0o777)
    above = {"above": [str(tmp_path)], "warm": [str(tmp_path / "warm"), str(tmp_path / "none")]}
    told = compile_caches.look({"own": [str(tmp_path / "own"), str(tmp_path / "none")], **above})
    found = SurveyAnswers({"compile_caches": {"told": told}}).read(COMPILED)
    assert (found.own[str(tmp_path / "own")].mode, found.own[str(tmp_path / "none")].owner) == (0o700, "")
    assert str(tmp_path / "warm") in found.loose
