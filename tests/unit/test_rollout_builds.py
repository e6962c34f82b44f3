"""Compiled engines that boxes copy: the copies between boxes, under their deploy locks."""

# ruff: noqa: F811 (fixtures of another file)

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import Mock

import pytest

from checks.connections import ConnectedHost
from cli import rollout_builds
from cli.exit_codes import InvalidRequest
from cli.rollout_builds import share_builds, without_copies
from rigwright.model.installation import record_path
from rigwright.model.roots import Roots
from rigwright.rollout.batch_plan import RolloutBox
from rigwright.rollout.shared_build import NoAgreement, render_receive_script
from roles.deploy_lock import DeployLock
from roles.operations import reconnecting_shell
from tests.unit.samples import changed_rig, sample_rig
from tests.unit.ssh_host import ShellHost
from tests.unit.test_shared_build import TREE, A, digest_on_host, lacking, pack, tree  # noqa: F401 (a fixture)


@dataclass
class SharingFleet:
    """Three boxes as folders of this machine, each with a shell of this machine in place of SSH."""

    folder: Path
    boxes: dict[str, ConnectedHost]
    holder: str = ""
    """The holder of each deploy lock."""
    is_cut: bool = False
    """Whether each connection breaks while a tree is sent."""
    locked: list[str] = field(default_factory=list)
    """The boxes whose deploy lock this process holds."""

    def tree(self, name: str) -> Path:
        """The engine of a box."""
        return Path(self.boxes[name].rig.roots.installation_path(TREE))

    @contextmanager
    def hold_deploy_lock(self, box: ConnectedHost, doing: str) -> Iterator[DeployLock]:
        """A stand-in for cli.instance_access.hold_deploy_lock: the lock of a host is in the folder /run of root."""
        if self.holder:
            raise InvalidRequest(f"{box.name}: refused: {self.holder}")
        assert doing == f"rollout: copy of {TREE}"
        self.locked.append(box.name)
        lock = DeployLock(box.target, doing)
        lock.channel = Mock(closed=self.is_cut)
        try:
            yield lock
        finally:
            self.locked.remove(box.name)

    def connect(self, inventory: str, limit: str) -> tuple[list[ConnectedHost], dict[str, str]]:
        """As checks.connections.connect_inventory does."""
        return [self.boxes[name] for name in limit.split(",")], {}


@pytest.fixture
def sharing(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SharingFleet:
    """Two boxes that have compiled an engine, and a third."""
    boxes = {}
    for name in ("one", "two", "three"):
        folders = {one: str(tmp_path / name / one) for one in ("software", "state", "config", "models")}
        rig = changed_rig(sample_rig(), roots=Roots.model_construct(**folders))
        boxes[name] = ConnectedHost(name, rig, ShellHost())
        if name != "three":
            shutil.copytree(tree, rig.roots.installation_path(TREE), symlinks=True)
    fleet = SharingFleet(tmp_path, boxes)
    monkeypatch.setattr(rollout_builds, "connect_inventory", fleet.connect)
    monkeypatch.setattr(rollout_builds, "hold_deploy_lock", fleet.hold_deploy_lock)
    monkeypatch.setattr(reconnecting_shell, "find_deploy_lock", lambda _: None)
    made = Mock(folder=TREE, record={"engine": "llama.cpp", "digest": "0123456789ab"})
    monkeypatch.setattr(rollout_builds, "_find_lacking", lambda box: {TREE: made} if box.name == "three" else {})
    return fleet


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="the script gives files to root")


@as_root
def test_a_box_installs_what_two_others_have_compiled(
    sharing: SharingFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    share_builds("fleet.py", ["three"], {TREE: ("one", "two")})
    assert f"three: copied {TREE} of one, as compiled by two" in " ".join(capsys.readouterr().out.split())
    copy, source = sharing.tree("three"), sharing.tree("one")
    assert digest_on_host(copy) == digest_on_host(source)
    marker = json.loads((copy / "build.json").read_text())
    assert marker["inputs"] == {"engine": "llama.cpp", "digest": "0123456789ab"}
    assert (marker["copied_from"], marker["tree"]) == (["one", "two"], digest_on_host(source))
    sums = subprocess.run(["sha256sum", "--check", "--quiet", "files.sha256"], cwd=copy, check=False)
    assert sums.returncode == 0
    owned = Path(sharing.boxes["three"].rig.roots.ledger).read_text().splitlines()
    assert {f"tree {copy}", f"dir {copy.parent}"} <= {*owned}
    assert not list(Path(sharing.boxes["three"].rig.roots.builds).iterdir())
    # a copy is no build: neither the plan nor the builders' reports count it
    boxes = [RolloutBox("three", built=frozenset({TREE})), RolloutBox("one", built=frozenset({TREE})), lacking("four")]
    kept = [box.built for box in without_copies("fleet.py", boxes)]
    assert kept == [frozenset(), frozenset({TREE}), frozenset()]
    with pytest.raises(NoAgreement, match="three has not built it"):
        rollout_builds._fetch_tree("fleet.py", TREE, ("three", "one"), sharing.folder)


@pytest.mark.parametrize("builder", ["one", "two"])
def test_a_box_copies_nothing_if_its_builders_disagree(
    sharing: SharingFleet, capsys: pytest.CaptureFixture[str], builder: str
) -> None:
    (sharing.tree(builder) / "bin/llama-server").write_text("another program")
    share_builds("fleet.py", ["three"], {TREE: ("one", "two")})
    said = " ".join(capsys.readouterr().out.split())
    digests = [f"{name} has {digest_on_host(sharing.tree(name))}" for name in ("one", "two")]
    assert said == f"three: no copy of {TREE}: its builders disagree: {', '.join(digests)}"
    assert not sharing.tree("three").exists()


def test_a_box_that_sends_another_tree_than_it_reports_is_refused(
    sharing: SharingFleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest_on_host(sharing.tree("one"))
    (sharing.tree("one") / "bin/llama-server").write_text("another program")
    monkeypatch.setattr(rollout_builds, "_read_digest", lambda box, tree: before)
    share_builds("fleet.py", ["three"], {TREE: ("one", "two")})
    assert "one has sent another tree, with digest " in " ".join(capsys.readouterr().out.split())
    assert not sharing.tree("three").exists()


@as_root
def test_a_copy_that_changes_on_its_way_is_refused_by_the_box(
    sharing: SharingFleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_builds, "_fetch_tree", fetch_another_tree)
    share_builds("fleet.py", ["three"], {TREE: ("one", "two")})
    assert f"three: no copy of {TREE}: the copy has digest " in " ".join(capsys.readouterr().out.split())
    assert not sharing.tree("three").exists()
    assert not list(Path(sharing.boxes["three"].rig.roots.builds).iterdir())


def fetch_another_tree(inventory: str, tree: str, two: Sequence[str], folder: Path) -> str:
    """A tree that has another digest than both builders report."""
    (folder / "tree/bin").mkdir(parents=True)
    pack(folder / "tree", folder / "tree.tar.gz")
    return A


def test_a_box_with_another_run_copies_nothing(sharing: SharingFleet, capsys: pytest.CaptureFixture[str]) -> None:
    sharing.holder = "another process holds the deploy lock"
    share_builds("fleet.py", ["three"], {TREE: ("one", "two")})
    assert f"three: no copy of {TREE}: three: refused: {sharing.holder}" in " ".join(capsys.readouterr().out.split())
    assert not (sharing.folder / "three").exists()


@as_root
def test_a_box_installs_a_copy_under_its_deploy_lock_alone(
    sharing: SharingFleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, render = list[list[str]](), rollout_builds.render_prepare_script

    def watch(roots: Roots, tree: str) -> str:
        locked.append([*sharing.locked])
        return render(roots, tree)

    monkeypatch.setattr(rollout_builds, "render_prepare_script", watch)
    sharing.is_cut = True
    share_builds("fleet.py", ["three"], {TREE: ("one", "two")})
    assert f"three: no copy of {TREE}: the deploy lock was lost" in " ".join(capsys.readouterr().out.split())
    assert (locked, sharing.tree("three").exists()) == ([["three"]], False)


@as_root
@pytest.mark.parametrize("begun", ["active", "activating", "installed"])
def test_a_build_that_begins_while_a_copy_is_verified_is_kept(
    sharing: SharingFleet, tree: Path, tmp_path: Path, begun: str
) -> None:
    roots = sharing.boxes["three"].rig.roots
    target, record = sharing.tree("three"), Path(record_path(roots, roots.installation_path(TREE)))
    record.parent.mkdir(parents=True)
    record.write_text("")
    # the build begins after the first look, and leaves its tree
    (tmp_path / "programs").mkdir()
    program = tmp_path / "programs/tar"
    marker = "build.json" if begun == "installed" else "begun"
    begin = f"mkdir -p {target} && echo own > {target}/{marker} && echo {begun} > {tmp_path}/state\n"
    program.write_text(f'#!/bin/sh\n{begin}exec {shutil.which("tar")} "$@"\n')
    unit = tmp_path / "programs/systemctl"
    unit.write_text(f"#!/bin/sh\ncat {tmp_path}/state 2>/dev/null || echo inactive\n")
    for one in (program, unit):
        one.chmod(0o755)
    work = Path(roots.builds) / f"{TREE}.copy"
    work.mkdir(parents=True)
    pack(tree, work / "tree.tar.gz")
    script = render_receive_script(roots, TREE, digest_on_host(tree), "{}")
    path = f"{tmp_path}/programs:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if begun == "installed" else 1), done.stderr
    assert (target / marker).read_text() == "own\n"
    assert (begun == "installed") or "its own build has begun" in done.stderr
    assert record.exists()


@as_root
def test_a_copy_replaces_the_record_of_an_earlier_tree(sharing: SharingFleet) -> None:
    roots = sharing.boxes["three"].rig.roots
    record = Path(record_path(roots, roots.installation_path(TREE)))
    record.parent.mkdir(parents=True)
    record.write_text("")
    share_builds("fleet.py", ["three"], {TREE: ("one", "two")})
    assert (sharing.tree("three").exists(), record.exists()) == (True, False)


@as_root
def test_a_box_sends_paths_that_need_no_further_header(
    sharing: SharingFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        kernels = sharing.tree(name) / "bin" / ("k" * 60)
        kernels.mkdir(mode=0o755)
        (kernels / ("k" * 60)).touch(0o644)
    share_builds("fleet.py", ["three"], {TREE: ("one", "two")})
    assert f"three: copied {TREE} of one" in " ".join(capsys.readouterr().out.split())
