"""A catalogue folder and the locks folder next to it: its inputs, their locks, and writing those anew."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rigwright import toml
from rigwright.declaration.catalog_loader import CatalogFile, load_catalog
from rigwright.inventory import layer_folders
from rigwright.problems import Invalid, Problem
from rigwright.project_root import require_own_place
from rigwright.supply import lock
from rigwright.supply.lock import LOCK_HEADER, SUFFIX, Artefact
from rigwright.supply.lock_inputs import Input


@dataclass(frozen=True)
class LockInput:
    """One input and where it stands."""

    name: str
    input: Input
    catalogue: Path
    shipped: bool = False
    """Whether it is of Rigwright's own catalogue, and locked beside the inventory that uses it."""

    def as_problem(self, text: str) -> Problem:
        """It as a problem."""
        return Problem(str(self.catalogue), f"inputs.{self.name}", text)


@dataclass(frozen=True)
class LockFolders:
    """Both folders, as they were read."""

    locks: Path
    wanted: tuple[LockInput, ...]
    locked: dict[Path, tuple[Artefact, ...]]
    """Lock file -> its rows; only the files that `rigwright lock` wrote."""
    keys: dict[str, str]
    """Driver -> the armoured key of its archive, as it lies beside the lock; only of those files."""
    unread: tuple[Problem, ...]
    """The problems of such files; they count as empty."""

    @property
    def all_rows(self) -> list[Artefact]:
        """Everything that is locked."""
        return [row for rows in self.locked.values() for row in rows]

    def rows_of(self, wanted: LockInput) -> list[Artefact]:
        """The locked rows of an input."""
        if wanted.input.is_grouped:
            return [row for row in self.all_rows if row.group == wanted.name]
        return [row for row in self.all_rows if not row.group and row.name == wanted.name]

    def input_path(self, name: str) -> str:
        """The catalogue file of an input, for messages; the folder of the locks where the input is elsewhere."""
        return str(next((one.catalogue for one in self.wanted if one.name == name), self.locks))

    def render_files(self, rows: dict[str, list[Artefact]], keys: dict[str, str]) -> dict[Path, str]:
        """File -> its text, of all locks and of the keys beside them.

        Args:
            rows: Every input's, by its name.
            keys: Driver -> its archive's armoured key.
        """
        targets: dict[Path, list[LockInput]] = {}
        for one in sorted(self.wanted, key=lambda one: one.shipped):
            targets.setdefault(_lock_path(one.catalogue, self.locks), []).append(one)
        locks = {
            path: lock.render_lock([row for one in wanted for row in rows[one.name]], _catalogue_label(wanted[0]))
            for path, wanted in targets.items()
        }
        return locks | {
            self.locks / row.file: keys[str(row.group)] for found in rows.values() for row in _key_rows(found)
        }

    def write_files(self, texts: dict[Path, str]) -> None:
        """Write files, each in one step after all were written beside, and remove those that are needed no more.

        Raises:
            OSError: one could not be written; the old ones are still there.
        """
        require_own_place(self.locks)
        self.locks.mkdir(exist_ok=True)
        beside = {path: path.with_name(f".{path.name}.new") for path in texts}
        try:
            for path, new in beside.items():
                with new.open("w", encoding="utf-8") as file:
                    file.write(texts[path])
                    file.flush()
                    os.fsync(file.fileno())
        except OSError:
            for new in beside.values():
                new.unlink(missing_ok=True)
            raise
        for path, new in beside.items():
            new.replace(path)
        for path in [*self.locked, *(self.locks / row.file for row in _key_rows(self.all_rows))]:
            if path not in texts:
                path.unlink(missing_ok=True)


def _key_rows(rows: list[Artefact]) -> list[Artefact]:
    """The rows of keys that lie beside the lock."""
    return [row for row in rows if row.kind == "key" and row.group]


def _catalogue_label(one: LockInput) -> str:
    """A catalogue, as the header of its lock names it."""
    whose = "Rigwright's own " if one.shipped else ""
    return f"{whose}{one.catalogue.parent.name}/{one.catalogue.name}"


def collect_inputs(catalog: Path) -> list[LockInput]:
    """All that a folder of catalogue files asks for.

    Raises:
        Invalid: a mistake in one of them.
    """
    # over ours: its entries may name ours
    load_catalog(layer_folders(catalog.parent / "rig.py", catalog.name))
    return [
        LockInput(name, one, path)
        for path in sorted(catalog.glob("*.toml"))
        for name, one in sorted(toml.load_toml(path, CatalogFile).inputs.items())
    ]


def read_folders(
    base: Path, own: Sequence[LockInput], offered: Sequence[LockInput] = (), used: Collection[str] = ()
) -> LockFolders:
    """Read what base/locks has of inputs.

    Args:
        base: The folder of the catalogue and the locks.
        own: The inputs of its catalogue.
        offered: Inputs that are locked here only where they are needed.
        used: The names of those that are. Inputs of them that are locked here already stay too: a rig of another
            inventory of the same folder may use them.

    Raises:
        Invalid: a lock file by hand that is broken or in the way.
    """
    locks = base / "locks"
    locked: dict[Path, tuple[Artefact, ...]] = {}
    by_hand: dict[Path, tuple[Artefact, ...]] = {}
    problems: list[Problem] = []
    unread: list[Problem] = []
    keys: dict[str, str] = {}
    for path in sorted(locks.glob(f"*{SUFFIX}")):
        ours = path.read_bytes().startswith(LOCK_HEADER.encode())
        try:
            rows = lock.load_lock_file(path)
        except Invalid as error:
            if not ours:
                problems += error.problems
                continue
            unread += error.problems
            rows = ()
        (locked if ours else by_hand)[path] = rows
        for row in _key_rows(list(rows)) if ours else ():
            try:
                keys[str(row.group)] = lock.load_archive_key(locks, row)
            except Invalid as error:
                unread += error.problems
    here = {row.group for rows in locked.values() for row in rows}
    there = {row.group or row.name for rows in by_hand.values() for row in rows}
    wanted = [*own, *(one for one in offered if (one.name in used and one.name not in there) or one.name in here)]
    targets = {_lock_path(one.catalogue, locks): one.catalogue for one in wanted}
    for path, rows in by_hand.items():
        if path in targets:
            text = f"was not written by `rigwright lock`: turn its rows into inputs in {targets[path]}, and remove it"
            problems.append(Problem(str(path), "the file", text))
        else:
            problems += _refuse_locked_elsewhere(path, rows, wanted)
    if problems:
        raise Invalid(problems)
    return LockFolders(locks, tuple(wanted), locked, keys, tuple(unread))


def _lock_path(catalogue: Path, locks: Path) -> Path:
    return locks / f"{catalogue.stem}{SUFFIX}"


def _refuse_locked_elsewhere(path: Path, rows: tuple[Artefact, ...], wanted: list[LockInput]) -> list[Problem]:
    """Refuse an input that a file written by hand already locks."""
    held = {row.group or row.name: bool(row.group) for row in rows}
    return [
        one.as_problem(f"{path} has it too, and was not written by `rigwright lock`: remove its rows there")
        for one in wanted
        if held.get(one.name) == one.input.is_grouped
    ]
