"""Debian packages: groups that are locked together, the order of versions, and relations, which the lock has not.

A bundle adds the relations, such as Depends, to the lock's name, version, file and hash. A list for apt takes
everything else from the lock, so a changed bundle cannot name another file.
"""

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


RELATION_FIELDS = (
    *("Package", "Version", "Architecture", "Source", "Section", "Multi-Arch", "Installed-Size"),
    *("Pre-Depends", "Depends", "Provides", "Conflicts", "Breaks", "Replaces"),
)
"""The fields of a package's own control file that it has, in their order; the first three are required."""
REQUIRED = RELATION_FIELDS[:3]
# Names, versions and relations, as deb-control(5) has them
_LINE = re.compile(r"([A-Z][A-Za-z-]*): ([A-Za-z0-9.+~:()<>=|, /_-]{1,20000})")

Relations = Mapping[str, Mapping[str, str]]
"""Package -> field -> value."""


def render_relations(controls: Iterable[str]) -> str:
    """The text of a group.

    Args:
        controls: A control file each, of the fields above alone.
    """
    return "\n".join(re.sub(r"\n\s+", " ", control.strip()) + "\n" for control in controls)


def parse_relations(text: str) -> Relations:
    """Read a group's text.

    Raises:
        ValueError: it is no such text.
    """
    found: dict[str, dict[str, str]] = {}
    for paragraph in filter(None, text.rstrip("\n").split("\n\n")):
        fields: dict[str, str] = {}
        for line in paragraph.splitlines():
            matched = _LINE.fullmatch(line)
            if not matched or matched[1] not in RELATION_FIELDS or matched[1] in fields:
                raise ValueError("has a line that is no field of a package")
            fields[matched[1]] = matched[2]
        if not set(REQUIRED) <= fields.keys() or fields["Package"] in found:
            raise ValueError("has a package without a version, or twice")
        found[fields["Package"]] = fields
    return found


def render_apt_list(rows: Iterable[Artefact], relations: Relations) -> str:
    """The list of an archive with locked packages, for an apt that trusts it: hashes and files are the lock's.

    Raises:
        ValueError: a package's relations are missing, or of another version.
    """
    stanzas = []
    for row in rows:
        fields = relations.get(row.name)
        if fields is None or fields["Version"] != row.version or fields["Architecture"] not in ("amd64", "all"):
            raise ValueError(f"does not have {row.name} {row.version}")
        lines = [f"{name}: {fields[name]}" for name in RELATION_FIELDS if name in fields]
        stanzas.append("\n".join([*lines, f"Filename: {row.file}", f"Size: {row.size}", f"SHA256: {row.sha256}", ""]))
    return "\n".join(stanzas)
