"""Root's quick judgement of a whole large tree: it is unchanged, or unknown."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from .tree_entry import extra_permissions

MANY = 2000  # entries, from which on passes of find(1) are quicker than a walk
TOP, LISTED = "%i %m %U %G\\0", "%y %i %s %m %U %G %T@ %C@ {} %l\\0"
SHARES = 4  # passes that run at the same time: with two processors, too, none waits for one that has got more
FEW = 100  # of a tree's entries one: a folder with fewer is not worth a name
PLAIN = re.compile(r"[A-Za-z0-9_.+/-]+")  # the characters that `-path` takes literally


def split_into_passes(names: Iterable[str]) -> list[list[str]]:
    """The folders of a tree that passes of their own look at, by pass; the rest is one pass more.

    Args:
        names: Of all that is in it.
    """
    below: Counter[str] = Counter()
    total = 0
    for name in names:
        total += 1
        while name := name.rpartition("/")[0]:
            below[name] += 1
    most = total // SHARES

    def suits(folder: str) -> bool:
        above = folder.rpartition("/")[0]
        whole = below[folder] <= most and (not above or below[above] > most)
        return whole and below[folder] * FEW > total and PLAIN.fullmatch(folder) is not None

    found: list[list[str]] = [[] for _ in range(SHARES - 1)]
    for folder in sorted(filter(suits, below), key=lambda one: (-below[one], one)):
        least = min(found, key=lambda share: sum(below[one] for one in share))
        if sum(below[one] for one in least) + below[folder] <= most:
            least.append(folder)
    return [share for share in found if share]


def fingerprint_tree(tree: Path, loose: Sequence[str] = (), shared: Sequence[Sequence[str]] = ()) -> str:
    """SHA-256 of what find(1) tells of a tree, times of its folders included; empty where that fails.

    As long as it is the same, nothing of the tree has changed: the kernel sets a ctime at each change. Otherwise
    its state is unknown: something may have come and gone in a folder, or the folder may list its contents in another
    order.

    Args:
        tree: Its path.
        loose: The names that come and go at its top.
        shared: As `split_into_passes` gave it; most of the time goes into waiting for one entry after the other.
    """
    import subprocess  # here: few hosts have a tree that is so large, and importing it takes as long as looking does

    apart = [word for share in shared for name in share for word in ("-o", "-path", f"./{name}")][1:]
    left = [word for name in loose for word in ("-path", f"./{name}", "-prune", "-o")]
    left += ["-type", "d", "(", *apart, ")", "-prune", "-o"] if apart else []
    passes = [[".", "-path", ".", "-printf", TOP, "-o", *left, "-printf", LISTED.format("%P")]]
    passes += [[*(f"./{name}" for name in share), "-printf", LISTED.format("%p")] for share in shared]
    # a pipe without a reader would hold up each pass
    told, complaints = [os.memfd_create("told") for _ in passes], os.memfd_create("complaints")
    digest = hashlib.sha256()
    running: list[subprocess.Popen[bytes]] = []
    try:
        for words, output in zip(passes, told, strict=True):
            command = ["/usr/bin/find", *words]
            running.append(
                subprocess.Popen(command, cwd=tree, env={"LC_ALL": "C"}, stdin=-3, stdout=output, stderr=complaints)
            )
        failed = sum(one.wait() for one in running)
        for output in told:
            with open(output, "rb", closefd=False) as file:
                file.seek(0)
                digest.update(file.read())
        failed += os.fstat(complaints).st_size
    except OSError:
        return ""
    finally:
        for one in running:
            one.wait()
        for output in (*told, complaints):
            os.close(output)
    return "" if failed or extra_permissions(tree, "d") else digest.hexdigest()
