"""The lock: every byte that reaches a rig from outside, with its hash, in one uniform table of artefacts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from rigwright import local_files, toml
from rigwright.problems import FrozenModel, Invalid, Problem
from rigwright.supply.artefact import Artefact as Artefact
from rigwright.supply.artefact import ArtefactKind as ArtefactKind
from rigwright.validated_types import Count, Sha256

SUFFIX = ".lock.toml"
LARGEST_KEY = 1 << 20  # bytes of an archive's key; NVIDIA's has 1,700
# The beginning of a file that `rigwright lock` may write again, or remove.
LOCK_HEADER = "# Written by `rigwright lock`"


class LockFile(FrozenModel):
    """The contents of one *.lock.toml."""

    schema_version: Literal[1] = Field(alias="schema", description="Format version.")
    artefact: tuple[Artefact, ...] = Field(default=(), description="The rows.")
    artefacts: Count = Field(description="Number of rows, to detect a truncated file.")
    digest: Sha256 = Field(description="SHA-256 of the rows, to detect changes.")

    @field_validator("schema_version", mode="before")
    @classmethod
    def _whole_number(cls, value: object) -> object:
        if type(value) is not int:  # true and 1.0 compare equal to 1
            raise ValueError("the number 1")
        return value

    @field_validator("artefacts")
    @classmethod
    def _check_count(cls, count: int, info: ValidationInfo) -> int:
        rows = info.data.get("artefact")
        if rows is not None and len(rows) != count:
            raise ValueError(f"the number of rows, {len(rows)}: the file was truncated or edited by hand")
        return count

    @field_validator("digest")
    @classmethod
    def _check_digest(cls, digest: str, info: ValidationInfo) -> str:
        rows = info.data.get("artefact")
        if rows is not None and rows_digest(_row_values(row) for row in rows) != digest:
            raise ValueError("the SHA-256 of the rows: one was edited by hand")
        return digest


def rows_digest(rows: Iterable[dict[str, object]]) -> str:
    """SHA-256 of rows as they are written, in their order."""
    return hashlib.sha256(json.dumps(list(rows), sort_keys=True).encode()).hexdigest()


def _row_values(row: Artefact) -> dict[str, object]:
    """A row as it is written: its keys in their order, without those it lacks."""
    return row.model_dump(mode="json", exclude_none=True)


def load_lock_file(path: Path) -> tuple[Artefact, ...]:
    """The rows of one lock file.

    Raises:
        Invalid: another schema, a mistake in it, fewer rows than it says, or one row twice.
    """
    rows = toml.load_toml(path, LockFile).artefact
    keys = [*map(_sort_key, rows)]
    if len(set(keys)) < len(keys):
        raise Invalid([_duplicate_problem(path, row) for at, row in enumerate(rows) if keys[at] in keys[:at]])
    return rows


def render_lock(rows: Iterable[Artefact], catalogue: str) -> str:
    """A lock file with these rows: the same text for the same rows, whatever their order.

    Args:
        rows: The locked rows.
        catalogue: The catalogue file whose inputs they are, as its header names it.
    """
    ordered = sorted(rows, key=lambda row: row.order)
    lines = [f"{LOCK_HEADER} from {catalogue}; edit inputs there.", "schema = 1"]
    lines += [f"artefacts = {len(ordered)}", f'digest = "{rows_digest(_row_values(row) for row in ordered)}"']
    for row in ordered:
        lines += ["", "[[artefact]]"]
        lines += [f"{key} = {toml.render_value(value)}" for key, value in _row_values(row).items()]
    return "\n".join(lines) + "\n"


def _sort_key(row: Artefact) -> tuple[str | None, str]:
    return (row.group, row.path if row.group else row.name)


def load_archive_key(folder: Path, row: Artefact) -> str:
    """The armoured key of an archive, which lies beside the lock that has its row.

    Args:
        folder: Where the lock lies.
        row: The key's row.

    Raises:
        Invalid: it is not there, or is another one.
    """
    path = folder / row.file
    try:
        content = local_files.read_content(path, LARGEST_KEY)
    except ValueError as error:
        said = f"is locked, and {error}"
    else:
        if hashlib.sha256(content).hexdigest() == row.sha256 and content.isascii():
            return content.decode()
        said = "is not the locked key"
    raise Invalid([Problem(str(path), "the file", f"{said}: run `rigwright lock`")])


def _duplicate_problem(path: Path, row: Artefact) -> Problem:
    place = f"{row.group}.{row.path}" if row.group else row.name
    return Problem(str(path), f"artefact.{place}", "is listed twice")


class Lock:
    """The artefacts of several lock files, a later folder's rows over an earlier one's."""

    def __init__(
        self,
        artefacts: dict[str, Artefact],
        groups: dict[str, tuple[Artefact, ...]] | None = None,
        keys: dict[str, str] | None = None,
        overrides: frozenset[str] = frozenset(),
    ) -> None:
        self.artefacts = artefacts
        """Name -> the artefact; those of no group."""
        self.groups = groups or {}
        """Environment or driver -> its artefacts. A later folder's is there whole, without an earlier one's rows."""
        self.keys = keys or {}
        """Driver -> the armoured key of its archive, where that has one."""
        self.overrides = overrides
        """Groups whose rows are a later folder's than the first, which is Rigwright's own."""

    def rows(self, name: str) -> tuple[Artefact, ...]:
        """The rows of a locked input: one artefact, or a group's; empty where it was not locked."""
        one = self.artefacts.get(name)
        return self.groups.get(name) or ((one,) if one else ())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all rows, whatever files they stand in."""
        rows = [*self.artefacts.values(), *(row for rows in self.groups.values() for row in rows)]
        return rows_digest(_row_values(row) for row in sorted(rows, key=lambda row: row.order))

    @classmethod
    def load(cls, folders: list[Path]) -> Lock:
        """Read every *.lock.toml of the folders.

        Raises:
            Invalid: a file of another schema, a mistake in it, one row twice in one folder, or a key that is gone.
        """
        artefacts: dict[str, Artefact] = {}
        groups: dict[str, tuple[Artefact, ...]] = {}
        keys: dict[str, str] = {}
        problems: list[Problem] = []
        overrides: set[str] = set()
        for folder in folders:
            here: dict[tuple[str | None, str], Artefact] = {}
            for path in sorted(folder.glob(f"*{SUFFIX}")):
                try:
                    rows = load_lock_file(path)
                except Invalid as error:
                    problems += error.problems
                    continue
                new = {_sort_key(row): row for row in rows}
                problems += [_duplicate_problem(path, row) for name, row in new.items() if name in here]
                here |= new
            artefacts |= {row.name: row for row in here.values() if not row.group}
            ordered = sorted(here.values(), key=lambda row: row.order)
            for group in {row.group for row in ordered if row.group}:
                groups[group] = tuple(row for row in ordered if row.group == group)
                overrides |= {group} if folder != folders[0] else set()
                keys.pop(group, None)
                for row in groups[group]:
                    if row.kind == "key":
                        try:
                            keys[group] = load_archive_key(folder, row)
                        except Invalid as error:
                            problems += error.problems
        if problems:
            raise Invalid(problems)
        return cls(artefacts, groups, keys, frozenset(overrides))
