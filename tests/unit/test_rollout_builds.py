"""Compiled engines that boxes copy: the builders, their agreement, and archives that a hostile box sends."""

import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from unittest.mock import Mock

import pytest

from checks.connections import ConnectedHost
from cli import rollout_builds
from cli.exit_codes import InvalidRequest
from cli.rollout_builds import share_builds, without_copies
from rigwright.model.installation import record_path
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.rollout.batch_plan import BatchLimits, RolloutBox, plan_batches
from rigwright.rollout.shared_build import (
    NoAgreement,
    agree_on_digest,
    choose_builders,
    list_receivers,
    place_builders_first,
    render_receive_script,
    repack_tree,
)
from roles.deploy_lock import DeployLock
from roles.operations import reconnecting_shell
from tests.unit.samples import changed_rig, sample_rig
from tests.unit.ssh_host import ShellHost

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=timezone.utc)
TREE = "llama.cpp-0.3.36-0123456789ab"
A, B = "a" * 64, "b" * 64


def lacking(name: str, *trees: str, **keys: object) -> RolloutBox:
    """A box whose deploy compiles trees."""
    return RolloutBox(name, builds=frozenset(trees or (TREE,)), **keys)  # type: ignore[arg-type]


def plan(*boxes: RolloutBox, batch: int = 2) -> tuple[dict[str, tuple[str, ...]], list[tuple[str, ...]]]:
    """The builders, and the batches."""
    names = [box.name for box in boxes if box.builds or not box.built]
    builders = choose_builders(boxes, names)
    placed = place_builders_first(boxes, builders)
    return builders, [one.boxes for one in plan_batches(placed, names, BatchLimits(batch=batch), NOW)]


def test_two_boxes_build_a_tree_before_others_copy_it() -> None:
    other = lacking("b", "llama.cpp-0.3.36-other")
    builders, batches = plan(lacking("a"), other, lacking("c"), lacking("d"), lacking("e"))
    assert builders == {TREE: ("a", "c"), "llama.cpp-0.3.36-other": ("b",)}
    assert batches == [("a",), ("c", "b"), ("d", "e")]


def test_boxes_that_have_a_tree_build_it_for_others() -> None:
    there = RolloutBox("z", built=frozenset({TREE}))
    builders, batches = plan(lacking("a"), lacking("b"), there)
    assert builders == {TREE: ("z", "a")}
    assert batches == [("a",), ("b",)]


def test_a_builder_comes_after_the_box_that_it_fetches_weights_from() -> None:
    behind = frozenset({"c"})
    builders, batches = plan(lacking("a", sources=behind), lacking("b", sources=behind), lacking("c"))
    assert builders == {TREE: ("c", "a")}
    assert batches == [("c",), ("a",), ("b",)]


def test_one_builder_is_too_few() -> None:
    boxes = [lacking("a"), RolloutBox("b")]
    builders = choose_builders(boxes, ["a", "b"])
    assert list_receivers(boxes, builders) == {TREE: ()}
    assert place_builders_first(boxes, builders) == boxes
    assert list_receivers([*boxes, lacking("c"), lacking("d")], {TREE: ("a", "c")}) == {TREE: ("d",)}


def test_builders_agree_or_are_named_with_their_digests() -> None:
    assert agree_on_digest(TREE, {"a": A, "b": A}) == A
    with pytest.raises(NoAgreement, match=f"its builders disagree: a has {A}, b has {B}"):
        agree_on_digest(TREE, {"a": A, "b": B})
    with pytest.raises(NoAgreement, match="b has not built it"):
        agree_on_digest(TREE, {"a": A, "b": ""})
    with pytest.raises(NoAgreement, match="fewer than two"):
        agree_on_digest(TREE, {"a": A})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A compiled engine."""
    made = tmp_path / "tree"
    (made / "bin/kernels").mkdir(parents=True)
    (made / "bin/llama-server").write_text("program")
    (made / "bin/llama-server").chmod(0o755)
    (made / "bin/libggml.so.1").write_text("library")
    (made / "bin/libggml.so.1").chmod(0o644)
    (made / "bin/libggml.so").symlink_to("libggml.so.1")
    (made / "bin/kernels/sm_86.bin").write_text("kernel")
    (made / "bin/kernels/sm_86.bin").chmod(0o644)
    for folder in ("bin", "bin/kernels"):
        (made / folder).chmod(0o755)
    (made / "build.json").write_text("{}")
    return made


def digest_on_host(tree: Path) -> str:
    script = f"export LC_ALL=C\n{render('rollout/tree_digest.sh.j2')}\ntree_digest {tree}\n"
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def pack(tree: Path, target: Path) -> Path:
    subprocess.run(["tar", "-C", str(tree), "-czf", str(target), "bin"], check=True)
    return target


def test_a_copy_has_the_digest_that_hosts_compute(tree: Path, tmp_path: Path) -> None:
    before = digest_on_host(tree)
    assert repack_tree(pack(tree, tmp_path / "sent"), tmp_path / "own") == before
    (tmp_path / "copy").mkdir()
    subprocess.run(["tar", "-C", str(tmp_path / "copy"), "-xzf", str(tmp_path / "own")], check=True)
    assert digest_on_host(tmp_path / "copy") == before


@pytest.mark.parametrize("change", ["content", "mode", "link", "name", "more"])
def test_every_change_of_a_tree_changes_its_digest(tree: Path, tmp_path: Path, change: str) -> None:
    before = digest_on_host(tree)
    library = tree / "bin/libggml.so.1"
    if change == "content":
        library.write_text("Library")
    elif change == "mode":
        library.chmod(0o755)
    elif change == "link":
        (tree / "bin/libggml.so").unlink()
        (tree / "bin/libggml.so").symlink_to("llama-server")
    elif change == "name":
        library.rename(tree / "bin/libggml.so.2")
    else:
        (tree / "bin/empty").mkdir()
    after = digest_on_host(tree)
    assert after != before
    assert repack_tree(pack(tree, tmp_path / "sent"), tmp_path / "own") == after


def hostile(name: str, **changes: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for key, value in changes.items():
        setattr(made, key, value)
    return made


@pytest.mark.parametrize(
    "members",
    [
        [hostile("/etc/passwd")],
        [hostile("../bin/x")],
        [hostile("bin/../../x")],
        [hostile("bin/.hidden")],
        [hostile("bin/a b")],
        [hostile("bin/a\nf 755 bin/b ")],
        [hostile("etc/x")],
        [hostile("bin/x"), hostile("bin/x")],
        [hostile("bin/x", type=tarfile.SYMTYPE, linkname="/etc/passwd")],
        [hostile("bin/x", type=tarfile.SYMTYPE, linkname="../y")],
        [hostile("bin/x", type=tarfile.LNKTYPE, linkname="bin/y")],
        [hostile("bin/x", type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
        [hostile("bin/x", type=tarfile.FIFOTYPE)],
        [hostile("bin/" + "/".join("abcdefghi"))],
    ],
    ids=lambda members: repr(members[-1].name),
)
def test_an_archive_with_anything_else_is_refused(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    with tarfile.open(tmp_path / "sent", "w:gz") as archive:
        for one in members:
            archive.addfile(replace_size(one), io.BytesIO())
    with pytest.raises(ValueError, match="it has "):
        repack_tree(tmp_path / "sent", tmp_path / "own")


HEADERS = {
    "pax": b"x",
    "pax for all": b"g",
    "long name": b"L",
    "long link": b"K",
    "sparse": b"S",
    "volume": b"V",
    "contiguous": b"7",
}


@pytest.mark.parametrize("kind", HEADERS)
def test_headers_that_change_others_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # 400 kB of an archive are 400 MiB of a header, and 3000 of them a recursion
    header = hostile("bin/x", type=HEADERS[kind], size=1024).tobuf(tarfile.USTAR_FORMAT) + bytes(1024)
    large = hostile("bin/x", type=HEADERS[kind], size=400 << 20).tobuf(tarfile.USTAR_FORMAT)
    for content in (header * 3000, large + bytes(1 << 20)):
        (tmp_path / "sent").write_bytes(gzip.compress(content))
        sizes = watch_reads(monkeypatch)
        with pytest.raises(ValueError, match="it has something other than files"):
            repack_tree(tmp_path / "sent", tmp_path / "own")
        assert sizes == [512]


def watch_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes that are read of archives from now on."""
    sizes, read = list[int](), gzip.GzipFile.read

    def count(file: gzip.GzipFile, size: int | None = -1) -> bytes:
        sizes.append(size or 0)
        return read(file, size)

    monkeypatch.setattr(gzip.GzipFile, "read", count)
    return sizes


@pytest.mark.parametrize("size", [-512, 1 << 62])
def test_a_file_has_a_possible_size(tmp_path: Path, size: int) -> None:
    (tmp_path / "sent").write_bytes(gzip.compress(hostile("bin/x", size=size).tobuf(tarfile.GNU_FORMAT) + bytes(2048)))
    with pytest.raises(ValueError, match=r"size that no engine has|larger than any engine"):
        repack_tree(tmp_path / "sent", tmp_path / "own")


def test_a_folder_has_no_content(tmp_path: Path) -> None:
    header = hostile("bin/x", type=tarfile.DIRTYPE, size=512).tobuf(tarfile.USTAR_FORMAT)
    (tmp_path / "sent").write_bytes(gzip.compress(header + bytes(2048)))
    with pytest.raises(ValueError, match="size that no engine has"):
        repack_tree(tmp_path / "sent", tmp_path / "own")


def replace_size(one: tarfile.TarInfo) -> tarfile.TarInfo:
    one.size = 0
    return one


def test_a_foreign_archive_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"text", os.urandom(2000)):
        (tmp_path / "sent").write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read"):
            repack_tree(tmp_path / "sent", tmp_path / "own")


def test_a_cut_archive_is_refused_or_another_tree(tree: Path, tmp_path: Path) -> None:
    (tree / "bin/llama-server").write_bytes(os.urandom(100_000))
    whole, before = pack(tree, tmp_path / "sent").read_bytes(), digest_on_host(tree)
    for length in range(0, len(whole) - 100, len(whole) // 20):
        (tmp_path / "sent").write_bytes(whole[:length])
        with suppress(ValueError):
            assert repack_tree(tmp_path / "sent", tmp_path / "own") != before


def test_a_larger_archive_is_refused(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = pack(tree, tmp_path / "sent")
    monkeypatch.setattr("rigwright.rollout.shared_build.MOST_BYTES", 10)
    with pytest.raises(ValueError, match="larger than any engine"):
        repack_tree(sent, tmp_path / "own")


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
