"""A bundle: a folder with all that hosts need from outside, for hosts that reach nothing but the operator's machine."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from rigwright.problems import Frozen, Invalid, Problem, of_validation
from rigwright.supply.lock import Artefact, seal
from rigwright.types import Count, RelativePath, Sha256, System, Text

INDEX = "bundle.json"
PACKAGES = "packages"
"""The folder with one folder a system in it: a flat apt archive."""
AGAIN = "make it again with `rigwright bundle`"
PART = 1 << 20  # bytes


class Row(Frozen):
    """One file of a bundle."""

    path: RelativePath = Field(description="From the bundle's folder.")
    sha256: Sha256 = Field(description="Of its bytes.")
    size: Count = Field(description="Bytes.")


class Index(Frozen):
    """What bundle.json holds."""

    schema_version: Literal[1] = Field(alias="schema", description="Version of this format.")
    made: Text = Field(description="When, in UTC.")
    systems: tuple[System, ...] = Field(description="Whose packages are in it.")
    files: tuple[Row, ...] = Field(description="A row a file.")
    digest: Sha256 = Field(description="SHA-256 of the files' rows, as a lock's.")

    @field_validator("digest")
    @classmethod
    def _unchanged(cls, digest: str, info: ValidationInfo) -> str:
        rows = info.data.get("files")
        if rows is not None and sealed(rows) != digest:
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
            "" if found == self.sha256 else f"{self.path} has SHA-256 {found}, its bundle says {self.sha256}: {AGAIN}"
        )


@dataclass(frozen=True)
class Bundle:
    """A bundle that lies there, with its files' sizes as they should be."""

    folder: Path
    systems: tuple[str, ...]
    rows: tuple[Row, ...]

    def find(self, artefact: Artefact) -> LocalFile | None:
        """The file with an artefact's bytes."""
        return next((self._file(row, artefact.file) for row in self.rows if row.sha256 == artefact.sha256), None)

    def files(self, artefacts: Iterable[Artefact]) -> tuple[LocalFile, ...]:
        """The files with the bytes of artefacts that are all in it."""
        return tuple(file for artefact in artefacts if (file := self.find(artefact)))

    def packages(self, system: str) -> tuple[LocalFile, ...]:
        """The apt archive of a system; none where the bundle has no packages for it."""
        beginning = f"{PACKAGES}/{system}/"
        return tuple(
            self._file(row, row.path.removeprefix(beginning)) for row in self.rows if row.path.startswith(beginning)
        )

    def _file(self, row: Row, name: str) -> LocalFile:
        return LocalFile(self.folder / row.path, name, row.sha256, row.size)


def sealed(rows: Iterable[Row]) -> str:
    """The digest of an index's rows."""
    return seal(row.model_dump(mode="json") for row in rows)


def text(made: str, systems: Iterable[str], rows: Iterable[Row]) -> str:
    """An index: the same text for the same files, but for the time."""
    ordered = sorted(rows, key=lambda row: row.path)
    index = {
        "schema": 1,
        "made": made,
        "systems": sorted(systems),
        "digest": sealed(ordered),
        "files": [row.model_dump(mode="json") for row in ordered],
    }
    return json.dumps(index, indent=1) + "\n"


def read(folder: Path) -> Bundle:
    """Read a bundle's index and look for its files. Their bytes are hashed when they are sent.

    Raises:
        Invalid: no bundle, a broken or changed index, or every file that is missing or has another size.
    """
    path = folder / INDEX
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        index = Index.model_validate(raw)
    except OSError as error:
        raise Invalid([Problem(str(path), "the bundle", f"{error.strerror}: {AGAIN}")]) from None
    except ValidationError as error:
        raise Invalid(of_validation(error, Index, str(path), "")) from None
    except (ValueError, RecursionError):
        raise Invalid([Problem(str(path), "the bundle", f"is no JSON: {AGAIN}")]) from None
    problems = [Problem(str(path), row.path, wrong) for row in index.files if (wrong := _wrong(folder / row.path, row))]
    if problems:
        raise Invalid(problems)
    return Bundle(folder, index.systems, index.files)


def listed(folder: Path) -> set[str]:
    """The paths in a bundle's index; none where there is no sound one."""
    try:
        return {row.path for row in Index.model_validate_json((folder / INDEX).read_bytes()).files}
    except (OSError, ValueError):  # pydantic's errors are among the latter
        return set()


def _wrong(path: Path, row: Row) -> str:
    try:
        found = path.stat()
    except OSError as error:
        return f"{error.strerror}: {AGAIN}"
    if not stat.S_ISREG(found.st_mode):  # a pipe would be read for ever
        return f"is no file: {AGAIN}"
    return "" if found.st_size == row.size else f"has {found.st_size} bytes, {row.size} are listed: {AGAIN}"
