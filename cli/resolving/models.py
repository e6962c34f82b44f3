"""An input of weights of many files, a repository of the hub, into rows of a lock."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import requests
from pydantic import TypeAdapter, ValidationError

from cli.resolving import web
from cli.resolving.checkpoints import Whole
from cli.resolving.folders import Wanted
from cli.resolving.hub import Listed, Listing, Place
from cli.resolving.web import Content, Unavailable
from rigwright.problems import shown
from rigwright.supply.inputs import Input
from rigwright.supply.lock import Artefact
from rigwright.types import Commit, FileName, RelativePath
from rigwright.weights.safetensors import is_pointer
from roles.progress import progress

BRANCH = "main"  # what a repository's own is called, where an input names none
TOGETHER = 8  # files that are fetched at once
SMALL = 50_000_000  # bytes; a larger file is hashed by the hub or not locked
# git's own, and part of no model
OF_GIT = (".gitattributes", ".gitignore", ".gitkeep")
FEW = 8  # names that a message lists

Found = TypeVar("Found")


@dataclass(frozen=True)
class Models:
    """What finds weights of many files."""

    places: tuple[Place, ...]
    """The endpoints of the hub, in order."""

    def rows(self, wanted: Wanted) -> list[Artefact]:
        """The rows of a repository, a file each.

        Raises:
            Unavailable: it is not to be had, or has a file that cannot be locked; the text says what to do.
        """
        return self._first(lambda place: _rows(place, wanted))

    def listing(self, wanted: Wanted, revision: str | None = None) -> Listing:
        """What a repository has at a revision, the input's own without one; nothing of it is fetched.

        Raises:
            Unavailable: it is not to be had.
        """
        repository, asked = str(wanted.input.repository), revision or revision_of(wanted)
        return self._first(lambda place: place.listing(repository, asked))

    def _first(self, attempt: Callable[[Place], Found]) -> Found:
        """What the first place gives that gives something."""
        failed: list[Unavailable] = []
        for place in self.places:
            try:
                return attempt(place)
            except Unavailable as error:
                failed.append(error)
        texts = dict.fromkeys(map(str, failed))
        raise Unavailable("; ".join(texts), gone=all(error.gone for error in failed))


def revision_of(wanted: Wanted) -> str:
    """The branch, tag or commit that an input follows."""
    return wanted.input.version or BRANCH


def chosen(wanted: Wanted, files: Iterable[Listed]) -> list[Listed]:
    """The files that an input's patterns select, by path."""
    return sorted((one for one in files if selects(wanted.input, one.path)), key=lambda one: one.path)


def selects(wanted: Input, path: str) -> bool:
    """Whether an input's patterns want a file of a model; never one of git's own."""
    return wanted.selects(path) and path.rpartition("/")[2] not in OF_GIT


def _rows(place: Place, wanted: Wanted) -> list[Artefact]:
    repository = str(wanted.input.repository)
    listing = place.listing(repository, revision_of(wanted))
    try:
        commit = TypeAdapter(Commit).validate_python(listing.commit)
    except ValidationError:
        raise Unavailable(f"{place} names no commit of {repository}, but {shown(listing.commit)}") from None
    files = chosen(wanted, listing.files)
    refuse([one.path for one in files], [one.path for one in listing.files], repository)
    for one in files:
        if one.sha256 is None and (one.size or 0) > SMALL:
            raise Unavailable(f"{one.path} has {one.size} bytes and no SHA-256 at {place}: exclude it")
    if listing.gated:
        place.enter(repository, commit, files[0].path)
    small = [one for one in files if one.sha256 is None]
    session = place.session()
    kept: dict[str, bytes] = {}

    def fetched(one: Listed) -> Content:
        content, body = _small(session, place.url(repository, commit, one.path), one)
        if one.path.endswith((".json", ".safetensors")):
            kept[one.path] = body
        return content

    def beginning(path: str, count: int) -> bytes:
        if path in kept:
            return kept[path][:count]
        try:
            return web.beginning(session, place.url(repository, commit, path), count)
        except Unavailable as error:
            raise Unavailable(f"{path}: its server {error}", error.gone) from None

    contents = {one.path: Content(one.sha256, one.size or 0) for one in files if one.sha256 is not None}
    with progress.task("lock", f"hashing small files of {repository}") as task, ThreadPoolExecutor(TOGETHER) as pool:
        for number, (one, content) in enumerate(zip(small, pool.map(fetched, small), strict=True), 1):
            contents[one.path] = content
            task.at(number, len(small), "steps")
    made = [row_of(wanted, one.path, contents[one.path], commit, listing.licence, listing.gated) for one in files]
    return Whole(repository, contents, beginning).told(made)


def _small(session: requests.Session, url: str, one: Listed) -> tuple[Content, bytes]:
    """Fetch and hash a file that the hub does not; its git object's name shows that it is the one that is listed."""
    if one.size == 0:
        raise Unavailable(f"{one.path} is empty: exclude it")
    into = io.BytesIO()
    try:
        content = web.fetch(session, url, lambda done, total: None, into)
    except Unavailable as error:
        raise Unavailable(f"{one.path}: its server {error}", error.gone) from None
    body = into.getvalue()
    # git's own name of a file's content (gitformat-loose-object(5))
    if one.blob not in (None, hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()):
        raise Unavailable(f"{one.path}: its server answers with another file than the hub lists: try again")
    if is_pointer(body):
        raise Unavailable(f"{one.path} is a Git LFS pointer without its content: exclude it")
    return content, body


def row_of(
    wanted: Wanted, path: str, content: Content, version: str, licence: str | None = None, gated: bool = False
) -> Artefact:
    """The row of one file.

    Raises:
        Unavailable: something of it cannot stand in a lock.
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
        raise Unavailable(f"{path}: its {key} is refused: {shown(detail['input'])}: exclude it") from None


def refuse(paths: Sequence[str], there: Sequence[str], where: str) -> None:
    """Refuse a selection of nothing, and names that would be no plain files in the model's folder on a host.

    Args:
        paths: What is selected.
        there: All there is.
        where: Whose files they are, for messages.

    Raises:
        Unavailable: with every such name, and what to do.
    """
    if not paths:
        few = ", ".join(sorted(there)[:FEW]) + (" and others" if len(there) > FEW else "")
        raise Unavailable(f"include and exclude select no file of {where}, which has {few or 'none'}")
    folders = {path.rpartition("/")[0] for path in paths}
    folders |= {parent for folder in folders for parent in _above(folder)}
    wrong = [f"{shown(path)} {text}: exclude it" for path in sorted(set(paths)) if (text := _fault(path, folders))]
    wrong += [f"{shown(path)} is listed twice" for path in sorted(set(paths)) if list(paths).count(path) > 1]
    if wrong:
        raise Unavailable(f"{where}: {'; '.join(wrong)}")


def _above(folder: str) -> list[str]:
    return [folder[:at] for at, letter in enumerate(folder) if letter == "/"]


def _fault(path: str, folders: set[str]) -> str:
    """What keeps a path from being locked; "" where nothing does."""
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
