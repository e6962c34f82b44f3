"""Compiled engines that boxes copy: the choice of builders, and archives that a hostile box sends."""

import gzip
import io
import os
import subprocess
import tarfile
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import pytest

from rigwright.render import render
from rigwright.rollout.batch_plan import BatchLimits, RolloutBox, plan_batches
from rigwright.rollout.shared_build import (
    NoAgreement,
    agree_on_digest,
    choose_builders,
    list_receivers,
    place_builders_first,
    repack_tree,
)

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
            archive.addfile(one, io.BytesIO())
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


@pytest.mark.parametrize(
    ("size", "kind", "message"),
    [
        (-512, tarfile.REGTYPE, "size that no engine has"),
        (1 << 62, tarfile.REGTYPE, "larger than any engine"),
        # a folder has no content
        (512, tarfile.DIRTYPE, "size that no engine has"),
    ],
)
def test_a_member_has_a_possible_size(tmp_path: Path, size: int, kind: bytes, message: str) -> None:
    header = hostile("bin/x", type=kind, size=size).tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "sent").write_bytes(gzip.compress(header + bytes(2048)))
    with pytest.raises(ValueError, match=message):
        repack_tree(tmp_path / "sent", tmp_path / "own")


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
