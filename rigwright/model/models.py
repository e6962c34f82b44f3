"""Models: which locked files their keys can stand for. What an engine makes of them is its kind's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rigwright.model.lock_coverage import describe_uncovered
from rigwright.problems import describe_unknown
from rigwright.supply.artefact import CONFIG
from rigwright.supply.inputs import Input
from rigwright.supply.lock import Artefact, Lock


class MissingModelFile(Exception):
    """A model's key stands for nothing; the text says why, a line each."""


@dataclass(frozen=True)
class FileCandidates:
    """The locked files that one key of a model may mean."""

    name: str
    """The input's."""
    path: str
    """The file that the key names; empty where it names none."""
    by_path: Mapping[str, Artefact]

    def find(self, path: str) -> Artefact:
        """The file with a path.

        Raises:
            MissingModelFile: it is not locked.
        """
        if path not in self.by_path:
            raise MissingModelFile(f"{self.name}: {describe_unknown('locked file', path, self.by_path)}")
        return self.by_path[path]


@dataclass(frozen=True)
class ModelSelection:
    """Where a model's files are looked for."""

    inputs: Mapping[str, Input]
    """The catalogue's."""
    lock: Lock
    inventory: str
    """The file to lock for, for messages."""
    lenient: bool = False
    """Whether any file will do, because the lock is only being made."""

    def candidates(self, reference: str) -> FileCandidates:
        """The files that `INPUT` or `INPUT:PATH` may mean.

        Raises:
            MissingModelFile: there is no such input, or it is not locked.
        """
        name, _, path = reference.partition(":")
        rows = self._rows(name)
        if self.lenient:
            return FileCandidates(name, rows[0].path, {rows[0].path: rows[0]})
        return FileCandidates(name, path, {row.path: row for row in rows})

    def folder(self, name: str) -> tuple[Artefact, ...]:
        """All files of an input, config.json first; while the lock is being made, any that stands for them.

        Raises:
            MissingModelFile: there is no such input, it is not locked, or is one file.
        """
        rows = self._rows(name)
        if not rows[0].group:
            raise MissingModelFile(
                f"{name} is a single file, not a folder: make it an input with include, or select it with file"
            )
        return tuple(sorted(rows, key=lambda row: (row.path != CONFIG, row.order)))

    def _rows(self, name: str) -> tuple[Artefact, ...]:
        """What an input is locked as.

        Raises:
            MissingModelFile: it is not, or there is none of that name.
        """
        if wrong := describe_uncovered(name, "weight", self.inputs, self.lock, self.inventory):
            raise MissingModelFile(wrong)
        return self.lock.groups.get(name) or (self.lock.artefacts[name],)
