"""Debian packages: groups that are locked together, and the order of versions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE
from rigwright.model.nvidia_tables import locked_driver_version
from rigwright.supply.lock import Artefact, Lock

# The package of a group whose version is the group's.
LEADS = {TOOLKIT_ARCHIVE: "nvidia-container-toolkit", DOCKER_ARCHIVE: "docker-ce"}


def upstream_version(version: str) -> str:
    """The maker's own version of a package: without the epoch and the distribution's revision (deb-version(7))."""
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


@dataclass(frozen=True)
class PackageGroup:
    """Some packages, each in one version, and the key that their archive signs with."""

    name: str
    """As the lock has it: container-toolkit, docker-debian-13."""
    version: str
    """That of the package that gives it, as its maker calls it."""
    packages: dict[str, Artefact]
    """Package -> its file; the artefact's version is the package's, as apt writes it."""
    key: str
    """Armoured."""

    @property
    def store_name(self) -> str:
        """The name of the folder with files of all of them: their versions may differ where the group's does not."""
        files = "".join(row.sha256 for _, row in sorted(self.packages.items()))
        return f"{self.version}-{hashlib.sha256(files.encode()).hexdigest()[:12]}"

    @property
    def targets(self) -> tuple[str, ...]:
        """Words for apt-get install."""
        return tuple(f"{name}={row.version}" for name, row in sorted(self.packages.items()))

    def render_pin(self, priority: int) -> str:
        """Text for apt's preferences: these versions and no others of these packages."""
        records = (
            f"Package: {name}\nPin: version {row.version}\nPin-Priority: {priority}\n"
            for name, row in sorted(self.packages.items())
        )
        return "\n".join(records)


def locked_group(lock: Lock, name: str) -> PackageGroup | None:
    """A group of the lock; None where there is none of that name."""
    rows = lock.groups.get(name, ())
    packages = {row.name: row for row in rows if row.kind == "deb"}
    return PackageGroup(name, locked_version(name, rows), packages, lock.keys.get(name, "")) if packages else None


def find_version_differences(one: PackageGroup, there: Mapping[str, str]) -> list[str]:
    """The packages of a group that are not installed in its version, in words.

    Args:
        one: The group.
        there: Package -> the version that is installed.
    """
    return [
        f"{name} is {upstream_version(there[name]) if name in there else 'not installed'}, not "
        f"{upstream_version(row.version)}"
        for name, row in sorted(one.packages.items())
        if there.get(name) != row.version
    ]
