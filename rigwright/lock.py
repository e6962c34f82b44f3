"""The lock: every byte that reaches a rig from outside, with its hash, in one uniform table of artefacts."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from rigwright import toml
from rigwright.problems import Frozen, Invalid, Problem
from rigwright.types import CatalogName, FileName, Positive, Sha256, Source


class Artefact(Frozen):
    """One file from outside."""

    kind: Literal["source", "weight"] = Field(description="What it is.")
    name: CatalogName = Field(description="What catalogue entries call it.")
    version: CatalogName = Field(description="Its version, or the revision of the repository that it comes from.")
    file: FileName = Field(description="Its file name.")
    sha256: Sha256
    size: Positive = Field(description="Bytes.")
    sources: tuple[Source, ...] = Field(
        min_length=1,
        description="Where it is had, in order: `index:PROJECT` (the host's package index), `NAME:PATH` "
        "(below each of the rig's mirrors of that name) or an http(s) URL.",
    )

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class LockFile(Frozen):
    """What one *.lock.toml holds."""

    schema_version: Literal[1] = Field(alias="schema", description="Version of this format.")
    artefact: tuple[Artefact, ...] = ()

    @field_validator("schema_version", mode="before")
    @classmethod
    def _whole_number(cls, value: object) -> object:
        if type(value) is not int:  # true and 1.0 compare equal to 1
            raise ValueError("the number 1")
        return value


class Lock:
    """The artefacts of several lock files, a later folder's rows over an earlier one's."""

    def __init__(self, artefacts: dict[str, Artefact]) -> None:
        self.artefacts = artefacts

    @classmethod
    def load(cls, folders: list[Path]) -> Lock:
        """Read every *.lock.toml of the folders.

        Raises:
            Invalid: a file of another schema, a mistake in it, or one name twice in one folder.
        """
        artefacts: dict[str, Artefact] = {}
        problems: list[Problem] = []
        for folder in folders:
            here: dict[str, Artefact] = {}
            for path in sorted(folder.glob("*.lock.toml")):
                try:
                    rows = toml.parse(path, LockFile).artefact
                except Invalid as error:
                    problems += error.problems
                    continue
                for row in rows:
                    if row.name in here:
                        problems.append(Problem(str(path), f"artefact.{row.name}", "is there twice"))
                    here[row.name] = row
            artefacts |= here
        if problems:
            raise Invalid(problems)
        return cls(artefacts)
