"""Compiled engines that boxes of a rollout copy from others: which boxes build them, and what is copied.

Two boxes build each tree. Others copy it if both report one digest, of the names, kinds, modes and contents of its
files; the copy on this machine and the one on the receiving box must have it, too.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import tarfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

from rigwright.host import script_output
from rigwright.model.installation import FILES, MARKER, record_path
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.rollout.batch_plan import RolloutBox

BUILDERS = 2
"""Boxes that must have built a tree before others copy it."""
MOST_ENTRIES = 10_000
MOST_BYTES = 16 << 30
"""Of the files of a tree; an engine for three architectures has 1 GiB."""
_NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,200}")
_PATH = re.compile(rf"bin(?:/{_NAME.pattern}){{0,8}}")

BUILDS_SCHEMA: script_output.Schema = {
    "built": (script_output.file_name, script_output.sha256),
    "copied": (script_output.file_name,),
}
"""The output of templates/rollout/builds.sh.j2: trees that the box has compiled, with their digests, and others."""


class NoAgreement(Exception):
    """A tree that no box copies; the text has the reason."""


def choose_builders(boxes: Sequence[RolloutBox], targets: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Tree -> the boxes that build it for others: at most two, those that have it first.

    Args:
        boxes: All boxes of the inventory, in its order.
        targets: Names of the boxes to deploy.
    """
    order = _order_by_sources([box for box in boxes if box.name in targets])
    wanted = sorted({tree for box in order for tree in box.builds})
    having = {tree: [box.name for box in boxes if tree in box.built] for tree in wanted}
    building = {tree: [box.name for box in order if tree in box.builds] for tree in wanted}
    return {tree: (*having[tree], *building[tree])[:BUILDERS] for tree in wanted}


def list_receivers(boxes: Sequence[RolloutBox], builders: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Tree -> the boxes that copy it; none where fewer than two boxes build it."""
    return {
        tree: tuple(box.name for box in boxes if tree in box.builds and box.name not in names)
        if len(names) == BUILDERS
        else ()
        for tree, names in builders.items()
    }


def place_builders_first(boxes: Sequence[RolloutBox], builders: Mapping[str, Sequence[str]]) -> list[RolloutBox]:
    """The boxes, builders before others, and each after the builders of the trees that it copies."""
    receivers = list_receivers(boxes, builders)
    named = {name for tree, names in builders.items() if receivers[tree] for name in names}
    behind = {
        box.name: {one for tree, names in builders.items() if box.name in receivers[tree] for one in names}
        for box in boxes
    }
    after = [replace(box, sources=box.sources | behind[box.name]) for box in boxes]
    return sorted(after, key=lambda box: box.name not in named)


def _order_by_sources(boxes: Sequence[RolloutBox]) -> list[RolloutBox]:
    """Boxes, each after those that it fetches weights from."""
    waiting, order = [*boxes], list[RolloutBox]()
    while waiting:
        names = {box.name for box in waiting}
        free = [box for box in waiting if not (box.sources - {box.name}) & names] or waiting[:1]
        order += free
        waiting = [box for box in waiting if box not in free]
    return order


def agree_on_digest(tree: str, digests: Mapping[str, str]) -> str:
    """The digest that all builders of a tree report.

    Args:
        tree: The tree.
        digests: Builder -> its digest; empty where it has not built the tree.

    Raises:
        NoAgreement: they report different ones, or fewer than two have built it.
    """
    if missing := [name for name, digest in digests.items() if not digest]:
        raise NoAgreement(f"{', '.join(missing)} has not built it")
    if len(digests) < BUILDERS:
        raise NoAgreement("fewer than two boxes have built it")
    if len({*digests.values()}) > 1:
        listed = ", ".join(f"{name} has {digest}" for name, digest in digests.items())
        raise NoAgreement(f"its builders disagree: {listed}")
    return next(iter(digests.values()))


def parse_builds(output: Iterable[str]) -> dict[str, str]:
    """Tree -> the digest of one that the box has compiled, and empty for one that it has copied.

    Raises:
        ValueError: the box reports something else.
    """
    found = script_output.parse_output(output, BUILDS_SCHEMA)
    return {**dict.fromkeys(found.all("copied"), ""), **dict(found.many("built"))}


def render_builds_query(roots: Roots, trees: Iterable[str]) -> str:
    """The script that reports the digests of trees that a box has compiled."""
    return render("rollout/builds.sh.j2", engines=roots.installations, trees=sorted(trees), marker=MARKER)


def render_prepare_script(roots: Roots, tree: str) -> str:
    """The script that makes `copy_folder`."""
    return render("rollout/prepare_copy.sh.j2", work=copy_folder(roots, tree), ledger=roots.ledger)


def render_receive_script(roots: Roots, tree: str, digest: str, record: str) -> str:
    """The script that verifies and installs the copy of a tree, which lies in `copy_folder`.

    Args:
        roots: Directories on the host.
        tree: The folder's name.
        digest: Of the tree.
        record: The content of its marker.
    """
    return render(
        "rollout/receive_build.sh.j2",
        ledger=roots.ledger,
        work=copy_folder(roots, tree),
        target=roots.installation_path(tree),
        known=record_path(roots, roots.installation_path(tree)),
        unit=f"rw-job-{tree}",
        digest=digest,
        record=record,
        files=FILES,
        marker=MARKER,
    )


def copy_folder(roots: Roots, tree: str) -> str:
    """Where a copy lies until it is verified."""
    return f"{roots.builds}/{tree}.copy"


class _ArchivedFile:
    """The content of a file in an archive, hashed while it is read."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.left, self.sum = file, size, hashlib.sha256()

    def read(self, size: int) -> bytes:
        """The next bytes."""
        content = self.file.read(min(size, self.left))
        if self.left and not content:
            raise EOFError("it is truncated")
        self.left -= len(content)
        self.sum.update(content)
        return content


def _read_headers(file: IO[bytes]) -> Iterator[tarfile.TarInfo]:
    """The headers of an archive of files, folders and links, each of one block; the content is for others to read.

    The headers that give longer names, sizes or keys to others are refused: tarfile reads them whole, and by recursion.

    Raises:
        ValueError: it has other headers.
        EOFError: it is truncated.
    """
    while any(block := file.read(tarfile.BLOCKSIZE)):
        found = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        if found.type not in (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE):
            raise ValueError("it has something other than files, folders, and links to names beside them")
        if found.size < 0 or (found.size and not found.isreg()):
            raise ValueError("it has a size that no engine has")
        yield found
        file.read(-found.size % tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        raise EOFError("it is truncated")


def repack_tree(source: Path, target: Path) -> str:
    """Write the tree that a box has sent into an archive of this machine's own; returns its digest.

    Raises:
        ValueError: the archive cannot be read, or has something that no compiled engine has.
        OSError: the copy cannot be written.
    """
    listed: dict[str, str] = {}
    sums: list[str] = []
    total = 0
    try:
        with gzip.open(source) as read, tarfile.open(str(target), "w:gz", compresslevel=1) as written:
            for one in _read_headers(cast("IO[bytes]", read)):
                total += one.size
                if one.name in listed or not _PATH.fullmatch(one.name):
                    raise ValueError("it has a name that no engine has, or one twice")
                if len(listed) >= MOST_ENTRIES or total > MOST_BYTES:
                    raise ValueError("it is larger than any engine")
                made = tarfile.TarInfo(one.name)
                if one.isreg():
                    made.size, made.mode = one.size, 0o755 if one.mode & 0o111 else 0o644
                    content = _ArchivedFile(cast("IO[bytes]", read), one.size)
                    written.addfile(made, cast("IO[bytes]", content))
                    sums.append(f"{content.sum.hexdigest()}  {one.name}\n")
                    listed[one.name] = f"f {made.mode:o} {one.name} \n"
                elif one.isdir() or _NAME.fullmatch(one.linkname):
                    made.type, made.mode = (tarfile.DIRTYPE, 0o755) if one.isdir() else (tarfile.SYMTYPE, 0o777)
                    made.linkname = "" if one.isdir() else one.linkname
                    written.addfile(made)
                    listed[one.name] = f"{'d' if one.isdir() else 'l'} {made.mode:o} {one.name} {made.linkname}\n"
                else:
                    raise ValueError("it has a link to something other than a name beside it")
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, UnicodeError) as error:
        raise ValueError(f"its archive cannot be read: {error}") from None
    return hashlib.sha256("".join([*sorted(listed.values()), *sorted(sums)]).encode()).hexdigest()
