"""Packages of one archive that are locked together."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from rigwright.model.debs.versions import locked_version, upstream_version
from rigwright.supply.lock import Artefact, Lock


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
        """What the folder with files of all of them is called: their versions may differ where the group's does not."""
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


def find_version_differences(one: PackageGroup, there: dict[str, str]) -> list[str]:
    """What of a group is not installed in its version, in words.

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
