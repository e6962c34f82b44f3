"""The book of a box: runs of its instances and what was accepted of them, a file beside the inventory.

There it outlives the box: a rebuilt one is compared with what it was. Whoever keeps the folder keeps the book, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from rigwright.baseline.run import Fingerprint, Run
from rigwright.files import content, replace
from rigwright.problems import Frozen, printable
from rigwright.types import Name

FOLDER = "baselines"
RUNS = 50  # of an instance, that are kept
MOST = 16 << 20  # bytes of a book, far beyond what as many runs take
ACCEPTED = 10  # fingerprints of an instance, of which accepted runs are kept


class Unreadable(ValueError):
    """A file that is no book; says which, and what is wrong with it."""


class Accepted(Frozen):
    """Runs of one fingerprint that were accepted."""

    fingerprint: Fingerprint
    runs: tuple[Run, ...] = Field(min_length=1, max_length=RUNS)


class Page(Frozen):
    """One instance's."""

    runs: tuple[Run, ...] = Field(default=(), max_length=RUNS)
    """The latest last."""
    accepted: tuple[Accepted, ...] = Field(default=(), max_length=ACCEPTED)
    """The latest last."""

    @property
    def last(self) -> Run | None:
        """The latest run that is judged; None without one."""
        return next((run for run in reversed(self.runs) if run.counts), None)

    def before(self, run: Run) -> Accepted | None:
        """What a run is compared with: what was accepted under its fingerprint, or else under the one before."""
        same = [one for one in self.accepted if one.fingerprint == run.fingerprint]
        return next(reversed(same or self.accepted), None)

    def with_run(self, run: Run) -> Page:
        """It with one more run."""
        return self.model_copy(update={"runs": (*self.runs, run)[-RUNS:]})

    def accepting(self) -> Page:
        """It with all runs accepted that are like the last one, which is then what runs are compared with.

        Raises:
            ValueError: there is none to accept.
        """
        last = self.last
        if last is None:
            raise ValueError("no run to accept: one that is whole, not quick, and had the instance to itself")
        runs = tuple(run for run in self.runs if run.counts and run.fingerprint == last.fingerprint)
        others = tuple(one for one in self.accepted if one.fingerprint != last.fingerprint)
        mine = Accepted(fingerprint=last.fingerprint, runs=runs)
        return self.model_copy(update={"accepted": (*others, mine)[-ACCEPTED:]})


class Book(Frozen):
    """One box's."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    instances: dict[Name, Page] = Field(default={})

    def page(self, instance: str) -> Page:
        """An instance's."""
        return self.instances.get(instance, Page())

    def having(self, instance: str, page: Page) -> Book:
        """It with another page of an instance."""
        return self.model_copy(update={"instances": {**self.instances, instance: page}})


def path(inventory: str, host: str) -> Path:
    """Where the book of an inventory's host lies."""
    return Path(inventory).absolute().parent / FOLDER / f"{host}.json"


def read(file: Path) -> Book:
    """The book in a file; an empty one where there is none.

    Raises:
        Unreadable: it is none.
    """
    try:
        if not file.exists():
            return Book()
        found = content(file, MOST)
    except (OSError, ValueError) as error:
        raise Unreadable(f"{file}: {error}") from None
    try:
        return Book.model_validate_json(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        said = printable(f"{where}: {first['msg']}")
        raise Unreadable(f"{file}: {said}: give it back as it was, or remove it") from None


def write(file: Path, book: Book) -> None:
    """Write it, whole or not at all."""
    file.parent.mkdir(exist_ok=True)
    text = json.dumps(json.loads(book.model_dump_json(by_alias=True)), indent=1)
    replace(file, text + "\n")


def judged(page: Page, run: Run) -> tuple[Accepted | None, Sequence[str]]:
    """What a run is compared with, and what of the box is another than then."""
    before = page.before(run)
    return before, list(run.fingerprint.changes(before.fingerprint)) if before else []
