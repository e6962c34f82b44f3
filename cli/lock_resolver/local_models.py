"""An input of weights of many files, an operator's own folder, into rows of a lock."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cli.lock_resolver import downloads
from cli.lock_resolver.checkpoints import LockedCheckpoint
from cli.lock_resolver.downloads import DownloadUnavailable, FileContent
from cli.lock_resolver.hub_models import MAX_WORKERS, file_row, is_selected, refuse_selection
from cli.lock_resolver.lock_folders import LockInput
from rigwright.supply.inputs import Input
from rigwright.supply.lock import Artefact
from rigwright.weights.safetensors import LONGEST_POINTER, is_pointer
from roles.progress import progress

# What git and the hub's client keep beside the files that they have fetched.
IGNORED_FOLDERS = (".git", ".cache")


def folder_name(wanted: Input) -> str:
    """What the folder of an operator's own weights is called at their source."""
    return wanted.sources[0].rstrip("/").rpartition("/")[2].rpartition(":")[2]


def find_local_folder(wanted: Input, given: Path) -> Path | None:
    """Where an operator's own weights lie: the folder that is called as at their source, given itself or in there."""
    named = given / folder_name(wanted)
    if named.is_dir():
        return named
    return given if given.absolute().name == folder_name(wanted) else None


def local_rows(wanted: LockInput, folder: Path) -> list[Artefact]:
    """The rows of an operator's own weights, a file each.

    Args:
        wanted: The input.
        folder: Where they lie.

    Raises:
        DownloadUnavailable: there is none, or one that cannot be locked.
    """
    there = _list_files(wanted, folder)
    paths = [path for path in there if is_selected(wanted.input, path)]
    refuse_selection(paths, there, str(folder))
    for path in paths:
        if (folder / path).is_symlink() or not (folder / path).is_file():
            raise DownloadUnavailable(
                f"{folder / path} is a link or not a file: provide a folder with the files themselves"
            )
        if not (size := (folder / path).stat().st_size):
            raise DownloadUnavailable(f"{folder / path} is empty: exclude it")
        if size <= LONGEST_POINTER and is_pointer(read_first_bytes(folder / path, size)):
            raise DownloadUnavailable(f"{folder / path} is a Git LFS pointer: run `git lfs pull` there, or exclude it")
    total = sum((folder / path).stat().st_size for path in paths)
    done, lock = dict.fromkeys(paths, 0), threading.Lock()
    with progress.task("lock", f"hashing {folder}") as task:

        def hashed(path: str) -> FileContent:
            def report(at: int, size: int) -> None:
                with lock:
                    done[path] = at
                    task.report_done(sum(done.values()), total, "bytes")

            return downloads.hash_file(folder / path, report)

        with ThreadPoolExecutor(min(MAX_WORKERS, os.cpu_count() or 1)) as pool:
            contents = list(pool.map(hashed, paths))
    version = str(wanted.input.version)
    made = [file_row(wanted, path, content, version) for path, content in zip(paths, contents, strict=True)]
    found = dict(zip(paths, contents, strict=True))
    return LockedCheckpoint(
        str(folder), found, lambda path, count: read_first_bytes(folder / path, count)
    ).annotate_rows(made)


def read_first_bytes(path: Path, count: int) -> bytes:
    """The first bytes of a file of this machine."""
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise DownloadUnavailable(f"{path}: {error.strerror}") from None


def _list_files(wanted: LockInput, folder: Path) -> list[str]:
    """What lies in a folder and below, by path; links to folders are refused, for what they lead to is not seen."""
    found = []
    excluding = wanted.input.model_copy(update={"include": ()})
    for top, folders, files in os.walk(folder):
        below = Path(top).relative_to(folder)
        folders[:] = [name for name in folders if name not in IGNORED_FOLDERS]
        for name in folders:
            path = (below / name).as_posix()
            if (folder / path).is_symlink() and excluding.selects(f"{path}/"):
                raise DownloadUnavailable(
                    f"{folder / path} is a link: provide a folder with the files themselves, or exclude it"
                )
        found += [(below / name).as_posix() for name in files]
    return sorted(found)
