"""Takes files out of an image's layers, as whoever starts it would find them: a store is read, and nothing is run.

Python's own library alone: hosts run it by itself, as nobody, `python3 -I originals.py STORE IMAGE SITE INTO PATH...`.
Each PATH below SITE, a folder of the image, is copied to INTO, where the image has it; what is a link is not.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

MOST = 10_000_001
"""Bytes that are copied of a file: one more than a patch may be of."""


def chain(store: Path, image: str) -> Iterator[Path]:
    """The layers that a store of containers/storage has for an image, as folders, the uppermost first.

    Raises:
        ValueError: the store's lists are none.
    """
    images = json.loads((store / "overlay-images/images.json").read_text())
    layers = json.loads((store / "overlay-layers/layers.json").read_text())
    parents = {str(one["id"]): str(one.get("parent", "")) for one in layers}
    top = next(str(one["layer"]) for one in images if one["id"] == image)
    while top:
        yield store / "overlay" / top / "diff"
        top = parents.pop(top)


def found(layer: Path, parts: list[str]) -> int | None:
    """What lies at a path of a layer, opened; -1 where it hides what is below it, None where it says nothing."""
    place = layer
    for part in parts[:-1]:
        place = place / part
        try:
            mode = place.lstat().st_mode
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(mode):
            return -1
    try:
        handle = os.open(place / parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:  # a link, or a device: that is how an overlay says that a file is gone
        return -1
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    return -1


def main() -> int:
    """Copy what is asked for; the exit status."""
    store, image, site, into = sys.argv[1:5]
    layers = list(chain(Path(store), image))
    for path in sys.argv[5:]:
        parts = [part for part in f"{site}/{path}".split("/") if part]
        handle = next((one for layer in layers if (one := found(layer, parts)) is not None), -1)
        if handle < 0:
            continue
        with os.fdopen(handle, "rb") as file:
            target = Path(into) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read(MOST))
    return 0


if __name__ == "__main__":
    sys.exit(main())
