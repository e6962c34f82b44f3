"""An input of weights of many files, an operator's own folder, into rows of a lock."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cli.resolving import web
from cli.resolving.checkpoints import Whole
from cli.resolving.folders import Wanted
from cli.resolving.models import TOGETHER, refuse, row_of, selects
from cli.resolving.web import Content, Unavailable
from rigwright.supply.inputs import Input
from rigwright.supply.lock import Artefact
from rigwright.weights.safetensors import LONGEST_POINTER, is_pointer
from roles.progress import progress

# What git and the hub's client keep beside the files that they have fetched.
BESIDE = (".git", ".cache")


def called(wanted: Input) -> str:
    """What the folder of an operator's own weights is called at their source."""
    return wanted.sources[0].rstrip("/").rpartition("/")[2].rpartition(":")[2]


def own_folder(wanted: Input, given: Path) -> Path | None:
    """Where an operator's own weights lie: the folder that is called as at their source, given itself or in there."""
    named = given / called(wanted)
    if named.is_dir():
        return named
    return given if given.absolute().name == called(wanted) else None


def own(wanted: Wanted, folder: Path) -> list[Artefact]:
    """The rows of an operator's own weights, a file each.

    Args:
        wanted: The input.
        folder: Where they lie.

    Raises:
        Unavailable: there is none, or one that cannot be locked.
    """
    there = _files(wanted, folder)
    paths = [path for path in there if selects(wanted.input, path)]
    refuse(paths, there, str(folder))
    for path in paths:
        if (folder / path).is_symlink() or not (folder / path).is_file():
            raise Unavailable(f"{folder / path} is a link or not a file: provide a folder with the files themselves")
        if not (size := (folder / path).stat().st_size):
            raise Unavailable(f"{folder / path} is empty: exclude it")
        if size <= LONGEST_POINTER and is_pointer(first_bytes(folder / path, size)):
            raise Unavailable(f"{folder / path} is a Git LFS pointer: run `git lfs pull` there, or exclude it")
    total = sum((folder / path).stat().st_size for path in paths)
    done, lock = dict.fromkeys(paths, 0), threading.Lock()
    with progress.task("lock", f"hashing {folder}") as task:

        def hashed(path: str) -> Content:
            def report(at: int, size: int) -> None:
                with lock:
                    done[path] = at
                    task.at(sum(done.values()), total, "bytes")

            return web.hash_file(folder / path, report)

        with ThreadPoolExecutor(min(TOGETHER, os.cpu_count() or 1)) as pool:
            contents = list(pool.map(hashed, paths))
    version = str(wanted.input.version)
    made = [row_of(wanted, path, content, version) for path, content in zip(paths, contents, strict=True)]
    found = dict(zip(paths, contents, strict=True))
    return Whole(str(folder), found, lambda path, count: first_bytes(folder / path, count)).told(made)


def first_bytes(path: Path, count: int) -> bytes:
    """The first bytes of a file of this machine."""
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from None


def _files(wanted: Wanted, folder: Path) -> list[str]:
    """What lies in a folder and below, by path; links to folders are refused, for what they lead to is not seen."""
    found = []
    excluding = wanted.input.model_copy(update={"include": ()})
    for top, folders, files in os.walk(folder):
        below = Path(top).relative_to(folder)
        folders[:] = [name for name in folders if name not in BESIDE]
        for name in folders:
            path = (below / name).as_posix()
            if (folder / path).is_symlink() and excluding.selects(f"{path}/"):
                raise Unavailable(
                    f"{folder / path} is a link: provide a folder with the files themselves, or exclude it"
                )
        found += [(below / name).as_posix() for name in files]
    return sorted(found)
