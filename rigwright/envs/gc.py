"""Packages and layers that were fetched, and that nothing is to be made of any more."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from rigwright.model.installation import Installation
from rigwright.model.inventory_schema import ShareEntry
from rigwright.model.roots import Roots
from rigwright.supply.lock import Artefact

# In the form of `Artefact.package_path`, for every source.
PATH = re.compile(r"_packages/[0-9a-f]{16}/[A-Za-z0-9][A-Za-z0-9._+!-]*")


def find_unshared(made: Installation, others: Sequence[Installation]) -> tuple[Artefact, ...]:
    """Packages, or layers, that no other one still is to be made of."""
    needed = {one.package_path for other in others for one in other.artefacts}
    return tuple(one for one in made.artefacts if one.package_path not in needed and not one.is_written)


def find_leftovers(
    roots: Roots,
    share: ShareEntry | None,
    declared: Sequence[Installation],
    built: Collection[str],
    there: Collection[str],
) -> list[Artefact]:
    """Packages of environments, and layers of images, that are whole, which a job that was ended has left.

    Args:
        roots: Directories on the host.
        share: The declared sharing of weights.
        declared: All installations of the rig.
        built: Folders of what is whole.
        there: Paths of files that lie below the models' root.
    """
    if share:
        return []
    missing = [made for made in declared if made.folder not in built]
    found = {
        one.package_path: one
        for made in declared
        if made not in missing
        for one in find_unshared(made, missing)
        if f"{roots.models}/{one.package_path}" in there
    }
    return list(found.values())


def find_undeclared(roots: Roots, installations: Sequence[Installation], there: Collection[str]) -> list[str]:
    """Paths of packages, whole or in part, of what was once to be installed and is not declared any more."""
    declared = {one.package_path for made in installations for one in made.artefacts}
    below = f"{roots.models}/"
    paths = (path.removeprefix(below) for path in there if path.startswith(below))
    return sorted(path for path in paths if PATH.fullmatch(path) and path not in declared)
