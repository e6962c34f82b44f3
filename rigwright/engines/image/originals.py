"""Takes files out of an image's layers, as whoever starts it would find them: a store is read, and nothing is run.

Python's own library alone: hosts run it by itself, as nobody, `python3 -I originals.py STORE IMAGE SITE INTO PLAN`.
PLAN is JSON: `shadows` has each path below SITE, a folder of the image, that is copied to INTO, and a pattern of what
Python would import in its place, which must not be there. What is a link is not copied.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
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


def opened(layers: Iterable[Path], path: str) -> int:
    """The uppermost file at a path, opened; -1 where a container would see none."""
    parts = [part for part in path.split("/") if part]
    return next((one for layer in layers if (one := found(layer, parts)) is not None), -1)


def names(layers: Iterable[Path], path: str) -> list[str]:
    """What lies in a folder."""
    seen: dict[str, bool] = {}
    for layer in layers:
        place = layer
        for part in filter(None, path.split("/")):
            place = place / part
            if place.is_symlink() or not place.is_dir():
                break
        else:
            for one in place.iterdir():
                seen.setdefault(one.name, not stat.S_ISCHR(one.lstat().st_mode))
            continue
        if place.is_symlink() or place.exists():
            break  # it hides what is below it
    return sorted(name for name, there in seen.items() if there)


def unused(layers: list[Path], site: str, path: str, pattern: str) -> Iterator[str]:
    """Why Python would not read a file that is put over one of the image; it reads others that lie beside."""
    folder, _, name = f"{site}/{path}".rpartition("/")
    module = name.removesuffix(".py")
    beside = [*names(layers, folder), *(f"{module}/{one}" for one in names(layers, f"{folder}/{module}"))]
    for other in beside:
        if re.fullmatch(pattern, f"{folder}/{other}".removeprefix(f"{site}/")):
            yield f"{path} is never imported: {other} takes precedence"
    for other in names(layers, f"{folder}/__pycache__"):
        if module != name and re.fullmatch(rf"{re.escape(module)}\.[^/]+\.pyc", other):
            handle = opened(layers, f"{folder}/__pycache__/{other}")
            # PEP 552: of a hash, and not to be checked
            if handle >= 0 and int.from_bytes(_read(handle, 8)[4:], "little") & 0b11 == 0b01:
                yield f"{path} is never read: __pycache__/{other} is used regardless of its source"


def _read(handle: int, most: int) -> bytes:
    with os.fdopen(handle, "rb") as file:
        return file.read(most)


def main() -> int:
    """Copy what is asked for; the exit status."""
    store, image, site, into, plan = sys.argv[1:]
    layers = list(chain(Path(store), image))
    wrong: list[str] = []
    for path, pattern in json.loads(Path(plan).read_text())["shadows"].items():
        wrong += unused(layers, site, path, pattern)
        handle = opened(layers, f"{site}/{path}")
        if handle < 0:
            sys.stdout.write(f"{site}/{path} is not a regular file of the image, or is behind a link\n")
            continue
        target = Path(into) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(os.fstat(handle).st_mode) & 0o777
        target.write_bytes(_read(handle, MOST))
        target.chmod(mode | 0o600)
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
