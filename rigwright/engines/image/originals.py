"""Takes files out of an image's layers, as whoever starts it would find them: a store is read, and nothing is run.

Python's own library alone: hosts run it by itself, as nobody, `python3 -I originals.py STORE IMAGE SITE PLAN INTO
OPAQUE`. PLAN is JSON: `shadows` has each path below SITE, a folder of the image, that is copied to INTO, and a pattern
of what Python would import in its place, which must not be there. What is a link is not copied. OPAQUE is a file with
what `python3 -I originals.py STORE IMAGE SITE PLAN` prints: folders of layers that hide those of the layers below. Root
runs that, for nobody else is told. In a container of the image, `python3 -I originals.py / - SITE PLAN INTO /dev/null`
copies the files that it has.
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
OPAQUE = "trusted.overlay.opaque"
"""The attribute of such a folder, `y` (kernel, Documentation/filesystems/overlayfs.rst, "whiteouts and opaque
directories"); processes without CAP_SYS_ADMIN have no access to it."""
ROOT = "/"
"""In place of a store: the root of a running container, where the layers are one."""
Hiding = frozenset[str]
"""Folders of layers that hide what is below them, by their whole paths."""


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


def folders(layer: Path, parts: Iterable[str]) -> Iterator[Path]:
    """The folders of a layer on the way to a path, for as far as they are some."""
    place = layer
    for part in parts:
        place = place / part
        try:
            if not stat.S_ISDIR(place.lstat().st_mode):
                return
        except OSError:
            return
        yield place


def find_in_layer(layer: Path, parts: list[str], hiding: Hiding) -> int | None:
    """What lies at a path of a layer, opened; -1 where it hides what is below it, None where it says nothing."""
    place, nothing = layer, None
    for part in parts[:-1]:
        place = place / part
        try:
            mode = place.lstat().st_mode
        except FileNotFoundError:
            return nothing
        if not stat.S_ISDIR(mode):
            return -1
        nothing = -1 if str(place) in hiding else nothing
    try:
        handle = os.open(place / parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return nothing
    except OSError:  # a link, or a device: that is how an overlay says that a file is gone
        return -1
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    return -1


def opened(layers: Iterable[Path], path: str, hiding: Hiding) -> int:
    """The uppermost file at a path, opened; -1 where a container would see none."""
    parts = [part for part in path.split("/") if part]
    return next((one for layer in layers if (one := find_in_layer(layer, parts, hiding)) is not None), -1)


def names(layers: Iterable[Path], path: str, hiding: Hiding) -> list[str]:
    """What lies in a folder."""
    seen: dict[str, bool] = {}
    for layer in layers:
        place, hides = layer, False
        for part in filter(None, path.split("/")):
            place = place / part
            if place.is_symlink() or not place.is_dir():
                hides = hides or place.is_symlink() or place.exists()
                break
            hides = hides or str(place) in hiding
        else:
            for one in place.iterdir():
                seen.setdefault(one.name, not stat.S_ISCHR(one.lstat().st_mode))
        if hides:
            break
    return sorted(name for name, there in seen.items() if there)


def opaque(layers: Iterable[Path], paths: Iterable[str]) -> Iterator[str]:
    """The folders of layers on the way to paths, and those paths, that hide what is below them. For root alone."""
    for layer in layers:
        ways = {place for path in paths for place in folders(layer, filter(None, path.split("/")))}
        for place in sorted(ways):
            try:
                hides = os.getxattr(place, OPAQUE, follow_symlinks=False)
            except OSError:  # it has no such attribute, or its file system none at all
                continue
            if hides == b"y":
                yield str(place)


def looked_at(site: str, path: str) -> Iterator[str]:
    """The folders that are looked into for a file below SITE."""
    folder, _, name = f"{site}/{path}".rpartition("/")
    yield from (f"{folder}/{name.removesuffix('.py')}", f"{folder}/__pycache__")


def unused(layers: list[Path], site: str, path: str, pattern: str, hiding: Hiding) -> Iterator[str]:
    """Why Python would not read a file that is put over one of the image; it reads others that lie beside."""
    folder, _, name = f"{site}/{path}".rpartition("/")
    module = name.removesuffix(".py")
    beside = names(layers, folder, hiding)
    beside += [f"{module}/{one}" for one in names(layers, f"{folder}/{module}", hiding)]
    for other in beside:
        if re.fullmatch(pattern, f"{folder}/{other}".removeprefix(f"{site}/")):
            yield f"{path} is never imported: {other} takes precedence"
    for other in names(layers, f"{folder}/__pycache__", hiding):
        if module != name and re.fullmatch(rf"{re.escape(module)}\.[^/]+\.pyc", other):
            handle = opened(layers, f"{folder}/__pycache__/{other}", hiding)
            # PEP 552: of a hash, and not to be checked
            if handle >= 0 and int.from_bytes(_read(handle, 8)[4:], "little") & 0b11 == 0b01:
                yield f"{path} is never read: __pycache__/{other} is used regardless of its source"


def _read(handle: int, most: int) -> bytes:
    with os.fdopen(handle, "rb") as file:
        return file.read(most)


def main() -> int:
    """Copy what is asked for, or print what is opaque; the exit status."""
    store, image, site, plan, *rest = sys.argv[1:]
    layers = [Path(store)] if store == ROOT else list(chain(Path(store), image))
    shadows: dict[str, str] = json.loads(Path(plan).read_text())["shadows"]
    if not rest:
        json.dump([*opaque(layers, {one for path in shadows for one in looked_at(site, path)})], sys.stdout)
        return 0
    into, hiding = rest
    return copied(layers, site, Path(into), shadows, frozenset(json.loads(Path(hiding).read_text() or "[]")))


def copied(layers: list[Path], site: str, into: Path, shadows: dict[str, str], hiding: Hiding) -> int:
    """Copy files of an image to a folder; the exit status."""
    wrong: list[str] = []
    for path, pattern in shadows.items():
        wrong += unused(layers, site, path, pattern, hiding)
        handle = opened(layers, f"{site}/{path}", hiding)
        if handle < 0:
            sys.stdout.write(f"{site}/{path} is not a regular file of the image, or is behind a link\n")
            continue
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(os.fstat(handle).st_mode) & 0o777
        target.write_bytes(_read(handle, MOST))
        target.chmod(mode | 0o600)
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
