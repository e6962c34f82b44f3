"""Versions of packages: what is before their revision, and how they are compared where numbers will do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE
from rigwright.model.nvidia.versions import locked_driver_version
from rigwright.supply.lock import Artefact

# The package of a group whose version is the group's.
LEADS = {TOOLKIT_ARCHIVE: "nvidia-container-toolkit", DOCKER_ARCHIVE: "docker-ce"}


def upstream_version(version: str) -> str:
    """What a package's maker calls a version: without the epoch and the distribution's revision (deb-version(7))."""
    plain = version.partition(":")[2] or version
    return plain.rpartition("-")[0] or plain


def leading_numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: of 26.1.5+dfsg1-9 those are 26, 1 and 5."""
    begins = re.match(r"[0-9]+(?:\.[0-9]+)*", upstream_version(version))
    return tuple(map(int, begins[0].split("."))) if begins else ()


def leading_package(group: str) -> str:
    """The package whose version a group's is; empty for a driver, which has many."""
    return next((lead for name, lead in LEADS.items() if group == name or group.startswith(f"{name}-")), "")


def locked_version(group: str, rows: Iterable[Artefact]) -> str:
    """The version that the rows of a group are of; empty where they are of none."""
    if not (lead := leading_package(group)):
        return locked_driver_version(rows)
    return next((upstream_version(row.version) for row in rows if row.kind == "deb" and row.name == lead), "")
