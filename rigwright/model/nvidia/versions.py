"""How the version of a driver is read off its packages."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rigwright.supply.lock import Artefact

# An epoch, a branch, and more: 1:580.95.05-1. Tools that count for themselves are left out by their names.
VERSION = re.compile(r"(?:[0-9]+:)?(([0-9]{3})\.[0-9.]+[0-9])(?:-.*|[~+].*)?")
# These hold apt to a branch, 595, or to one driver, 595.91.07; what their own versions are is NVIDIA's affair.
PINNING = re.compile(r"nvidia-driver-pinning-([0-9.]+)")


def driver_version_of(version: str) -> str:
    """The driver that a package with this version is of; empty for one that is of none."""
    matched = VERSION.fullmatch(version)
    return matched[1] if matched else ""


def is_pinning(name: str, driver: str) -> bool:
    """Whether a package holds apt to a driver, or to its branch."""
    matched = PINNING.fullmatch(name)
    return matched is not None and f"{driver}.".startswith(f"{matched[1]}.")


def locked_driver_version(rows: Iterable[Artefact]) -> str:
    """The one driver that the rows of a lock are of; empty where they are of none, or of several."""
    found = {driver_version_of(row.version) for row in rows if row.kind == "deb" and not PINNING.fullmatch(row.name)}
    return found.pop() if len(found) == 1 else ""
