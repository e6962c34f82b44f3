"""Bundles: folders with all files that offline hosts need, and the digest of a deploy's inputs."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from rigwright.host.supported_systems import KEYRING
from rigwright.problems import FrozenModel, Invalid, Problem, translate_validation
from rigwright.supply.apt_release import PACKAGES, ArchiveSuite, find_suite_faults
from rigwright.supply.lock import Artefact, Lock, rows_digest
from rigwright.validated_types import Count, RelativePath, Sha256, System, Text

INDEX = "bundle.json"
DEBS = "debs"
"""The folder of locked Debian packages, with a folder a group of the lock."""
RELATIONS = "Packages"
"""The file of such a group with relations of its packages."""
RELATIONS_LARGEST = 4 << 20  # bytes; a driver's 50 packages have 30 KB
LOCKED = "locked"
"""The folder of their archive on a host, beside those of the distribution's."""
ADVISORIES = "advisories"
"""The folder of files of advisories (`rigwright show advisories --db`), which no host is sent."""
SCHEMA = 2
LARGEST = 64 << 20  # bytes of an index; a row has some 200
AGAIN = "recreate it with `rigwright bundle`"
PART = 1 << 20  # bytes
# The name that archives give the file of a package: its name, its version without the epoch, its architecture.
_DEB = re.compile(r"([a-z0-9][a-z0-9.+-]*)_([A-Za-z0-9.+~-]+)_[a-z0-9]+\.deb")


class BundleRow(FrozenModel):
    """One file of a bundle."""

    path: RelativePath = Field(description="Path, relative to the bundle's folder.")
    sha256: Sha256 = Field(description="SHA-256 of its contents.")
    size: Count = Field(description="Bytes.")


class BundleIndex(FrozenModel):
    """The contents of bundle.json."""

    schema_version: Literal[2] = Field(alias="schema", description="Format version.")
    made: Text = Field(description="Creation time, UTC.")
    systems: tuple[System, ...] = Field(description="The system of its packages.")
    suites: tuple[ArchiveSuite, ...] = Field(description="One table per archive suite.")
    files: tuple[BundleRow, ...] = Field(description="One row per file.")
    digest: Sha256 = Field(description="SHA-256 of suites and files, as in a lock.")

    @field_validator("schema_version", mode="before")
    @classmethod
    def _this_one(cls, value: object) -> object:
        if value == 1:
            raise ValueError(f"{SCHEMA}: earlier bundles were not signed; {AGAIN}")
        return value

    @field_validator("files")
    @classmethod
    def _each_once(cls, rows: tuple[BundleRow, ...]) -> tuple[BundleRow, ...]:
        if twice := [path for path, number in Counter(row.path for row in rows).items() if number > 1]:
            raise ValueError(f"one row per file: {twice[0]} is listed twice")
        return rows

    @field_validator("digest")
    @classmethod
    def _unchanged(cls, digest: str, info: ValidationInfo) -> str:
        rows, suites = info.data.get("files"), info.data.get("suites")
        if rows is not None and suites is not None and index_digest(suites, rows) != digest:
            raise ValueError("the SHA-256 of the rows: one was changed")
        return digest


@dataclass(frozen=True)
class LocalFile:
    """A file on the operator's machine that a host is to have."""

    path: Path
    name: str
    sha256: str
    size: int
    """Bytes."""

    def refusal(self) -> str:
        """Why it is not the file that it is to be; "" if it is."""
        digest = hashlib.sha256()
        try:
            with self.path.open("rb") as file:
                while part := file.read(PART):
                    digest.update(part)
        except OSError as error:
            return f"{self.path}: {error.strerror}"
        found = digest.hexdigest()
        return (
            ""
            if found == self.sha256
            else f"{self.path} has SHA-256 {found}, but its bundle says {self.sha256}: {AGAIN}"
        )


@dataclass(frozen=True)
class BundledPackages:
    """A system's packages in a bundle, as a job is sent them."""

    files: tuple[LocalFile, ...] = ()
    """Named by their hashes: two archives may each have a file of one name."""
    places: tuple[tuple[str, str], ...] = ()
    """Such a name and where the file lies below the folder of all its system's archives, each."""
    suites: tuple[ArchiveSuite, ...] = ()
    keyring: str = ""
    """The host's own, by which it verifies them."""
    locked: str = ""
    """The list of one more archive, whose packages the lock proves; empty without it."""

    @property
    def versions(self) -> dict[str, str]:
        """Package -> the version that there is of it, without its epoch."""
        return {found[1]: found[2] for _, path in self.places if (found := match_deb(path))}

    def with_files_of(self, names: Collection[str]) -> BundledPackages:
        """The same, of which only the files of some packages are sent, and all that is signed of them.

        The places of the others are listed nonetheless: by these, apt knows the packages.
        """
        wanted = {name for name, path in self.places if not (found := match_deb(path)) or found[1] in names}
        return replace(self, files=tuple(file for file in self.files if file.name in wanted))

    def with_locked(self, files: Sequence[LocalFile], listed: str) -> BundledPackages:
        """The same with an archive of locked packages.

        Args:
            files: Their files, with the lock's hashes.
            listed: Their list, of `render_apt_list`.
        """
        by_hash = tuple(replace(file, name=file.sha256) for file in files)
        places = tuple((file.sha256, f"{LOCKED}/{file.name}") for file in files)
        return replace(self, files=(*self.files, *by_hash), places=(*self.places, *places), locked=listed)


@dataclass(frozen=True)
class Bundle:
    """A bundle that lies there, with its files' sizes as they should be."""

    folder: Path
    systems: tuple[str, ...]
    rows: tuple[BundleRow, ...]
    suites: tuple[ArchiveSuite, ...] = ()
    digest: str = ""
    index_sha256: str = ""
    """SHA-256 of its index, which its signature is about."""

    def find(self, artefact: Artefact) -> LocalFile | None:
        """The file with an artefact's bytes."""
        return next((self._file(row, artefact.file) for row in self.rows if row.sha256 == artefact.sha256), None)

    def files(self, artefacts: Iterable[Artefact]) -> tuple[LocalFile, ...]:
        """The files with the bytes of artefacts that are all in it."""
        return tuple(file for artefact in artefacts if (file := self.find(artefact)))

    def read_relations(self, group: str) -> str:
        """The relations of a group's packages, of `render_relations`.

        Raises:
            ValueError: the bundle has none, or the file is not the listed one.
        """
        path = f"{DEBS}/{group}/{RELATIONS}"
        row = next((row for row in self.rows if row.path == path), None)
        if row is None or row.size > RELATIONS_LARGEST:
            raise ValueError(f"{self.folder} has no list of the packages of {group}")
        try:
            content = (self.folder / path).read_bytes()
        except OSError as error:
            raise ValueError(f"{self.folder / path}: {error.strerror}") from None
        if hashlib.sha256(content).hexdigest() != row.sha256:
            raise ValueError(f"{self.folder / path} is not the listed file")
        return content.decode("ascii", "replace")

    def folder_files(self, folder: str) -> tuple[LocalFile, ...]:
        """The files below a folder of it."""
        rows = [row for row in self.rows if row.path.startswith(f"{folder}/")]
        return tuple(self._file(row, row.path.rpartition("/")[2]) for row in rows)

    def packages(self, system: str) -> BundledPackages:
        """The archives of a system; none where the bundle has no packages for it."""
        beginning = f"{PACKAGES}/{system}/"
        rows = [row for row in self.rows if row.path.startswith(beginning)]
        return BundledPackages(
            tuple({row.sha256: self._file(row, row.sha256) for row in rows}.values()),
            tuple((row.sha256, row.path.removeprefix(beginning)) for row in rows),
            tuple(suite for suite in self.suites if suite.system == system),
            KEYRING.format(system.partition("-")[0]) if rows else "",
        )

    def _file(self, row: BundleRow, name: str) -> LocalFile:
        return LocalFile(self.folder / row.path, name, row.sha256, row.size)


def match_deb(path: str) -> re.Match[str] | None:
    """Name and version of a package by the path of its file; None for another file."""
    return _DEB.fullmatch(path.rpartition("/")[2])


def index_digest(suites: Iterable[ArchiveSuite], rows: Iterable[BundleRow]) -> str:
    """The digest of an index's tables."""
    return rows_digest(one.model_dump(mode="json") for one in (*suites, *rows))


def render_index(made: str, systems: Iterable[str], suites: Iterable[ArchiveSuite], rows: Iterable[BundleRow]) -> str:
    """An index: the same text for the same files, but for the time."""
    ordered = sorted(rows, key=lambda row: row.path)
    named = sorted(suites, key=lambda suite: suite.folder)
    index = {
        "schema": SCHEMA,
        "made": made,
        "systems": sorted(systems),
        "digest": index_digest(named, ordered),
        "suites": [suite.model_dump(mode="json") for suite in named],
        "files": [row.model_dump(mode="json") for row in ordered],
    }
    return json.dumps(index, indent=1) + "\n"


def load_bundle(folder: Path) -> Bundle:
    """Read a bundle's index and look for its files. Their bytes are hashed when they are sent.

    Raises:
        Invalid: no bundle, a broken or changed index, every file that is missing or has another size, and every suite
            of packages that differs from its description.
    """
    path = folder / INDEX
    try:
        content = _read_index(path)
        index = BundleIndex.model_validate(json.loads(content.decode()))
    except OSError as error:
        raise Invalid([Problem(str(path), "the bundle", f"{error.strerror}: {AGAIN}")]) from None
    except ValidationError as error:
        raise Invalid(translate_validation(error, BundleIndex, str(path), "")) from None
    except (ValueError, RecursionError):
        raise Invalid([Problem(str(path), "the bundle", f"is not JSON: {AGAIN}")]) from None
    wrong = {row.path: found for row in index.files if (found := _describe_wrong_file(folder / row.path, row))}
    files = {row.path: (row.sha256, row.size) for row in index.files if row.path not in wrong}
    for suite in index.suites:
        for where, found in find_suite_faults(suite, files, lambda name: (folder / name).read_text("utf-8")):
            wrong.setdefault(where, f"{found}: {AGAIN}")
    if wrong:
        raise Invalid(Problem(str(path), where, found) for where, found in wrong.items())
    sha256 = hashlib.sha256(content).hexdigest()
    return Bundle(folder, index.systems, index.files, index.suites, index.digest, sha256)


def _read_index(path: Path) -> bytes:
    """An index's bytes; a pipe would be read for ever, and so would what never ends.

    Raises:
        OSError: it is no file of a likely size, or cannot be read.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is not a file")
    if found.st_size > LARGEST:
        raise OSError(errno.EFBIG, f"is larger than {LARGEST >> 20} MiB")
    return path.read_bytes()


def listed_paths(folder: Path) -> set[str]:
    """The paths in a bundle's index; none where there is no sound one."""
    try:
        return {row.path for row in BundleIndex.model_validate_json(_read_index(folder / INDEX)).files}
    except (OSError, ValueError):  # pydantic's errors are among the latter
        return set()


def _describe_wrong_file(path: Path, row: BundleRow) -> str:
    try:
        found = path.stat()
    except OSError as error:
        return f"{error.strerror}: {AGAIN}"
    if not stat.S_ISREG(found.st_mode):  # a pipe would be read for ever
        return f"is not a file: {AGAIN}"
    return "" if found.st_size == row.size else f"has {found.st_size} bytes, but {row.size} are listed: {AGAIN}"


GROUP = 8  # digits that are read out at a time


def supply_digest(lock: Lock, bundle: Bundle | None) -> str:
    """SHA-256 of a lock's rows and a bundle's index: of every file from outside, by its hash.

    Neither where they lie nor when they were made counts.
    """
    parts = f"{lock.digest} {bundle.digest if bundle else 'no bundle'}"
    return hashlib.sha256(parts.encode()).hexdigest()


def format_digest(digest: str) -> str:
    """A digest in groups, as it is printed and read out; one word to a shell."""
    return "-".join(digest[at : at + GROUP] for at in range(0, len(digest), GROUP))


def parse_digest(value: object) -> str | None:
    """A digest as an operator has typed it, in groups or not; None if it is no digest."""
    digits = re.sub(r"[ -]", "", value).lower() if isinstance(value, str) else ""
    return digits if re.fullmatch(r"[0-9a-f]{64}", digits) else None


def describe_digest_mismatch(found: str, expected: str) -> str:
    """Why the bundle is not the intended one; "" where it is, or no digest was given.

    Args:
        found: The digest of lock and bundle.
        expected: The one that came another way; "" where none did.
    """
    if expected in ("", found):
        return ""
    return (
        f"lock and bundle have the digest {format_digest(found)}, but {format_digest(expected)} is "
        f"expected: one of them was changed"
    )
