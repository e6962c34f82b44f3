"""Problems of a rig whose lock is damaged or lacks inputs: the ways to repair it, and mistakes that need no lock."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rigwright.declaration.rig_resolution import resolve_rig
from rigwright.model.catalog_schema import Catalog
from rigwright.model.lock_coverage import UNLOCKED
from rigwright.problems import Invalid, Problem
from rigwright.project_root import ROOT
from rigwright.supply.lock_inputs import provisional_lock


def is_unlocked(problems: Iterable[Problem]) -> bool:
    """Whether the lock lacks an input: the problem of an instance without its files hides others."""
    return any(UNLOCKED in one.text for one in problems)


def find_unlocked_problems(
    inventory: Path, name: str, entry: object, catalog: Catalog, also: frozenset[str]
) -> list[Problem]:
    """Mistakes of an entry that need no lock: those that remain if every input of the catalogue is locked.

    Args:
        inventory: The inventory, for messages.
        name: The rig's name.
        entry: Its entry.
        catalog: The catalogue of its names.
        also: Keys that are valid beside those of an entry, for suggestions.
    """
    made = provisional_lock(catalog.inputs)
    unlocked = catalog.model_copy(update={"inputs": {}})
    try:
        resolve_rig(str(inventory), name, entry, unlocked, made, also, making="lock")
    except Invalid as error:
        # only the lock itself can have rows without an input
        return [one for one in error.problems if "there is no locked " not in one.text and UNLOCKED not in one.text]
    return []


def add_lock_repair(problems: list[Problem], inventory: Path) -> list[Problem]:
    """Problems of lock files, the last of each file with the two ways to repair it."""
    shipped = str(ROOT / "locks")
    last = {one.file: one for one in problems if one.key != "schema"}
    return [
        Problem(
            one.file,
            one.key,
            f"{one.text}; restore the file from version control, or run `rigwright lock"
            f"{'' if one.file.startswith(shipped) else f' {inventory}'}`",
        )
        if last.get(one.file) is one and "`rigwright lock" not in one.text
        else one
        for one in problems
    ]
