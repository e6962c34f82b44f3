"""The book of a box: runs of its instances and what was accepted of them, a file beside the inventory.

There it outlives the box: a rebuilt one is compared with what it was. Whoever keeps the folder keeps the book, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from rigwright.baseline.run import BaselineRun, Fingerprint
from rigwright.files import read_content, write_atomically
from rigwright.problems import FrozenModel, printable
from rigwright.types import Name

FOLDER = "baselines"
RUNS = 50  # of an instance, that are kept
MOST = 16 << 20  # bytes of a book, far beyond what as many runs take
ACCEPTED = 10  # fingerprints of an instance, of which accepted runs are kept


class UnreadableHistory(ValueError):
    """A file that is no book; says which, and what is wrong with it."""


class AcceptedRuns(FrozenModel):
    """Runs of one fingerprint that were accepted."""

    fingerprint: Fingerprint
    runs: tuple[BaselineRun, ...] = Field(min_length=1, max_length=RUNS)


class InstanceHistory(FrozenModel):
    """One instance's."""

    runs: tuple[BaselineRun, ...] = Field(default=(), max_length=RUNS)
    """The latest last."""
    accepted: tuple[AcceptedRuns, ...] = Field(default=(), max_length=ACCEPTED)
    """The latest last."""

    @property
    def last_run(self) -> BaselineRun | None:
        """The latest run that is judged; None without one."""
        return next((run for run in reversed(self.runs) if run.is_comparable), None)

    def find_accepted(self, run: BaselineRun) -> AcceptedRuns | None:
        """What a run is compared with: what was accepted under its fingerprint, or else under the one before."""
        same = [one for one in self.accepted if one.fingerprint == run.fingerprint]
        return next(reversed(same or self.accepted), None)

    def with_run(self, run: BaselineRun) -> InstanceHistory:
        """It with one more run."""
        return self.model_copy(update={"runs": (*self.runs, run)[-RUNS:]})

    def with_last_accepted(self) -> InstanceHistory:
        """It with all runs accepted that are like the last one, which is then what runs are compared with.

        Raises:
            ValueError: there is none to accept.
        """
        last = self.last_run
        if last is None:
            raise ValueError("no run to accept: one that is whole, not quick, and had the instance to itself")
        runs = tuple(run for run in self.runs if run.is_comparable and run.fingerprint == last.fingerprint)
        others = tuple(one for one in self.accepted if one.fingerprint != last.fingerprint)
        mine = AcceptedRuns(fingerprint=last.fingerprint, runs=runs)
        return self.model_copy(update={"accepted": (*others, mine)[-ACCEPTED:]})


class BaselineHistory(FrozenModel):
    """One box's."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    instances: dict[Name, InstanceHistory] = Field(default={})

    def for_instance(self, instance: str) -> InstanceHistory:
        """An instance's."""
        return self.instances.get(instance, InstanceHistory())

    def with_instance(self, instance: str, page: InstanceHistory) -> BaselineHistory:
        """It with another page of an instance."""
        return self.model_copy(update={"instances": {**self.instances, instance: page}})


def history_path(inventory: str, host: str) -> Path:
    """Where the book of an inventory's host lies."""
    return Path(inventory).absolute().parent / FOLDER / f"{host}.json"


def load_history(file: Path) -> BaselineHistory:
    """The book in a file; an empty one where there is none.

    Raises:
        UnreadableHistory: it is none.
    """
    try:
        if not file.exists():
            return BaselineHistory()
        found = read_content(file, MOST)
    except (OSError, ValueError) as error:
        raise UnreadableHistory(f"{file}: {error}") from None
    try:
        return BaselineHistory.model_validate_json(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        said = printable(f"{where}: {first['msg']}")
        raise UnreadableHistory(f"{file}: {said}: give it back as it was, or remove it") from None


def save_history(file: Path, book: BaselineHistory) -> None:
    """Write it, whole or not at all."""
    file.parent.mkdir(exist_ok=True)
    text = json.dumps(json.loads(book.model_dump_json(by_alias=True)), indent=1)
    write_atomically(file, text + "\n")


def find_reference(page: InstanceHistory, run: BaselineRun) -> tuple[AcceptedRuns | None, Sequence[str]]:
    """What a run is compared with, and what of the box is another than then."""
    before = page.find_accepted(run)
    return before, list(run.fingerprint.describe_changes(before.fingerprint)) if before else []
