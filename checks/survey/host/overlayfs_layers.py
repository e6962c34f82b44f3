"""The lower folders of an overlay, where the kernel has been told of them without their names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

TRIES = 500
"""Files of a layer that are looked for above it; one that nothing covers settles it."""
NUMBER = (1 << 56) - 1
"""Of an inode number: in the rest an overlay may say which file system it is of (kernel's overlayfs.rst, `xino`)."""


def shown(top: str, layers: list[str], covered: set[str]) -> list[str]:
    """Of some layers, the uppermost first, those that an overlay has; in the others' places what there is instead.

    A file of a layer that none above it covers is there with its own inode number. Of a layer that is covered whole, or
    has no files, there is nothing to be seen.

    Args:
        top: Where the overlay is, as a path; links on the way from there are not followed.
        layers: Folders.
        covered: Paths in the overlay at which something else is mounted.
    """
    return [
        layer if _is_shown(top, layer, layers[:index], covered) else f"something else than {layer}"
        for index, layer in enumerate(layers)
    ]


def _is_shown(top: str, layer: str, above: list[str], covered: set[str]) -> bool:
    for tries, (path, inode) in enumerate(_files(layer)):
        if tries == TRIES:
            break
        if not _is_covered(path, above, covered):
            try:
                return not (os.lstat(f"{top}/{path}").st_ino ^ inode) & NUMBER
            except OSError:
                return False
    return True


def _files(layer: str) -> Iterator[tuple[str, int]]:
    """Paths and inode numbers."""
    for folder, names, files in os.walk(layer):
        names.sort()
        for name in sorted(files):
            there = os.lstat(f"{folder}/{name}")
            if stat.S_ISREG(there.st_mode):
                yield os.path.relpath(f"{folder}/{name}", layer), there.st_ino


def _is_covered(path: str, above: list[str], covered: set[str]) -> bool:
    ways = [path, *(str(one) for one in Path(path).parents)][:-1]
    if any(f"/{way}" in covered for way in ways):
        return True
    return any(_hides(f"{layer}/{way}", way == path) for layer in above for way in ways)


def _hides(place: str, is_itself: bool) -> bool:
    """Whether what is there in an upper layer has what is below its path disappear (kernel's overlayfs.rst)."""
    try:
        mode = os.lstat(place).st_mode
        if is_itself or not stat.S_ISDIR(mode):
            return True
        return os.getxattr(place, "trusted.overlay.opaque", follow_symlinks=False) == b"y"
    except OSError:
        return False
