"""Inputs of many files, from the hub or a local folder, into rows of a lock."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import requests
from pydantic import TypeAdapter, ValidationError

from cli.lock_resolver import downloads
from cli.lock_resolver.checkpoint_inspection import LockedCheckpoint
from cli.lock_resolver.downloads import DownloadUnavailable, FileContent
from cli.lock_resolver.lock_files import LockInput
from cli.lock_resolver.model_hub import HubEndpoint, HubFile, HubListing
from rigwright.problems import format_value
from rigwright.supply.lock import Artefact
from rigwright.supply.lock_inputs import Input
from rigwright.validated_types import Commit, FileName, RelativePath
from rigwright.weights.safetensors import LONGEST_POINTER, is_pointer
from roles.progress import progress

BRANCH = "main"  # the name of a repository's own, where an input names none
MAX_WORKERS = 8  # files that are fetched at once
SMALL = 50_000_000  # bytes; a larger file is hashed by the hub or not locked
# git's own, and part of no model
GIT_FILES = (".gitattributes", ".gitignore", ".gitkeep")
MAX_NAMED_PATHS = 8  # names that a message lists

EndpointResult = TypeVar("EndpointResult")


@dataclass(frozen=True)
class ModelResolver:
    """A resolver of weights of many files."""

    places: tuple[HubEndpoint, ...]
    """The endpoints of the hub, in order."""

    def resolve_rows(self, wanted: LockInput) -> list[Artefact]:
        """The rows of a repository, a file each.

        Raises:
            DownloadUnavailable: it is not to be had, or has a file that cannot be locked; the text says what to do.
        """
        return self._first_endpoint(lambda place: _repository_rows(place, wanted))

    def read_listing(self, wanted: LockInput, revision: str | None = None) -> HubListing:
        """The files of a repository at a revision, the input's own without one; nothing of it is fetched.

        Raises:
            DownloadUnavailable: it is not to be had.
        """
        repository, asked = str(wanted.input.repository), revision or input_revision(wanted)
        return self._first_endpoint(lambda place: place.read_listing(repository, asked))

    def _first_endpoint(self, attempt: Callable[[HubEndpoint], EndpointResult]) -> EndpointResult:
        """The answer of the first place that has one."""
        failed: list[DownloadUnavailable] = []
        for place in self.places:
            try:
                return attempt(place)
            except DownloadUnavailable as error:
                failed.append(error)
        texts = dict.fromkeys(map(str, failed))
        raise DownloadUnavailable("; ".join(texts), gone=all(error.gone for error in failed))


def input_revision(wanted: LockInput) -> str:
    """The branch, tag or commit that an input follows."""
    return wanted.input.version or BRANCH


def select_files(wanted: LockInput, files: Iterable[HubFile]) -> list[HubFile]:
    """The files that an input's patterns select, by path."""
    return sorted((one for one in files if is_selected(wanted.input, one.path)), key=lambda one: one.path)


def is_selected(wanted: Input, path: str) -> bool:
    """Whether an input's patterns want a file of a model; never one of git's own."""
    return wanted.selects(path) and path.rpartition("/")[2] not in GIT_FILES


def _repository_rows(place: HubEndpoint, wanted: LockInput) -> list[Artefact]:
    repository = str(wanted.input.repository)
    listing = place.read_listing(repository, input_revision(wanted))
    try:
        commit = TypeAdapter(Commit).validate_python(listing.commit)
    except ValidationError:
        raise DownloadUnavailable(
            f"{place} names no commit of {repository}, but {format_value(listing.commit)}"
        ) from None
    files = select_files(wanted, listing.files)
    refuse_selection([one.path for one in files], [one.path for one in listing.files], repository)
    for one in files:
        if one.sha256 is None and (one.size or 0) > SMALL:
            raise DownloadUnavailable(f"{one.path} has {one.size} bytes and no SHA-256 at {place}: exclude it")
    if listing.gated:
        place.check_access(repository, commit, files[0].path)
    small = [one for one in files if one.sha256 is None]
    session = place.open_session()
    kept: dict[str, bytes] = {}

    def fetched(one: HubFile) -> FileContent:
        content, body = _fetch_small_file(session, place.file_url(repository, commit, one.path), one)
        if one.path.endswith((".json", ".safetensors")):
            kept[one.path] = body
        return content

    def beginning(path: str, count: int) -> bytes:
        if path in kept:
            return kept[path][:count]
        try:
            return downloads.fetch_beginning(session, place.file_url(repository, commit, path), count)
        except DownloadUnavailable as error:
            raise DownloadUnavailable(f"{path}: its server {error}", error.gone) from None

    contents = {one.path: FileContent(one.sha256, one.size or 0) for one in files if one.sha256 is not None}
    with progress.task("lock", f"hashing small files of {repository}") as task, ThreadPoolExecutor(MAX_WORKERS) as pool:
        for number, (one, content) in enumerate(zip(small, pool.map(fetched, small), strict=True), 1):
            contents[one.path] = content
            task.report_done(number, len(small), "steps")
    made = [file_row(wanted, one.path, contents[one.path], commit, listing.licence, listing.gated) for one in files]
    return LockedCheckpoint(repository, contents, beginning).annotate_rows(made)


def _fetch_small_file(session: requests.Session, url: str, one: HubFile) -> tuple[FileContent, bytes]:
    """Fetch and hash a file that the hub does not; its git object's name shows that it is the one that is listed."""
    if one.size == 0:
        raise DownloadUnavailable(f"{one.path} is empty: exclude it")
    into = io.BytesIO()
    try:
        content = downloads.fetch_file(session, url, lambda done, total: None, into)
    except DownloadUnavailable as error:
        raise DownloadUnavailable(f"{one.path}: its server {error}", error.gone) from None
    body = into.getvalue()
    # git's own name of a file's content (gitformat-loose-object(5))
    if one.blob not in (None, hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()):
        raise DownloadUnavailable(f"{one.path}: its server answers with another file than the hub lists: try again")
    if is_pointer(body):
        raise DownloadUnavailable(f"{one.path} is a Git LFS pointer without its content: exclude it")
    return content, body


def file_row(
    wanted: LockInput, path: str, content: FileContent, version: str, licence: str | None = None, gated: bool = False
) -> Artefact:
    """The row of one file.

    Raises:
        DownloadUnavailable: something of it cannot stand in a lock.
    """
    folder, _, file = path.rpartition("/")
    try:
        return Artefact(
            kind="weight",
            name=wanted.name,
            version=version,
            group=wanted.name,
            repository=wanted.input.repository,
            folder=folder or None,
            selection=wanted.input.selection,
            licence=licence,
            gated=True if gated else None,
            file=file,
            sha256=content.sha256,
            size=content.size,
            sources=wanted.input.sources_of(path),
        )
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        key = detail["loc"][0] if detail["loc"] else "row"
        raise DownloadUnavailable(
            f"{path}: its {key} is refused: {format_value(detail['input'])}: exclude it"
        ) from None


def refuse_selection(paths: Sequence[str], there: Sequence[str], where: str) -> None:
    """Refuse a selection of nothing, and names that would be no plain files in the model's folder on a host.

    Args:
        paths: The selected paths.
        there: All there is.
        where: The owner of the files, for messages.

    Raises:
        DownloadUnavailable: with every such name, and what to do.
    """
    if not paths:
        few = ", ".join(sorted(there)[:MAX_NAMED_PATHS]) + (" and others" if len(there) > MAX_NAMED_PATHS else "")
        raise DownloadUnavailable(f"include and exclude select no file of {where}, which has {few or 'none'}")
    folders = {path.rpartition("/")[0] for path in paths}
    folders |= {parent for folder in folders for parent in _parent_folders(folder)}
    wrong = [
        f"{format_value(path)} {text}: exclude it"
        for path in sorted(set(paths))
        if (text := _path_problem(path, folders))
    ]
    wrong += [f"{format_value(path)} is listed twice" for path in sorted(set(paths)) if list(paths).count(path) > 1]
    if wrong:
        raise DownloadUnavailable(f"{where}: {'; '.join(wrong)}")


def _parent_folders(folder: str) -> list[str]:
    return [folder[:at] for at, letter in enumerate(folder) if letter == "/"]


def _path_problem(path: str, folders: set[str]) -> str:
    """The reason why a path cannot be locked; "" where there is none."""
    if path.startswith("/"):
        return "is an absolute path"
    if ".." in path.split("/"):
        return "leads out of its folder"
    if path in folders:
        return "is a file and a folder"
    try:
        TypeAdapter(RelativePath).validate_python(path)
        TypeAdapter(FileName).validate_python(path.rpartition("/")[2])
    except ValidationError:
        return "is not a valid name: must be letters, digits and ._+-, a letter or digit first"
    return ""


# The files that git and the hub's client keep next to those that they have fetched.
IGNORED_FOLDERS = (".git", ".cache")


def folder_name(wanted: Input) -> str:
    """The name of the folder of an operator's own weights at their source."""
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
    """The files in a folder and below, by path; links to folders are refused, for their targets are not seen."""
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
