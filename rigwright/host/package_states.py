"""Packages of a host by dpkg's word: one type for plans, roles and checks.

Two collectors fill it: `templates/probe/packages.sh.j2`, which needs no Python on the host, and
`checks/survey/host/dpkg.py`, which reads dpkg's own file.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from rigwright.host.script_output import HostOutput, Schema, matching, one_of, text

HALF_STATES = ("half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")
METAPACKAGE = re.compile(r"linux-image-[a-z].*")
HEADERS = "linux-headers-"
KERNEL_PATTERNS = ("linux-image-*", f"{HEADERS}*")
"""Shell patterns of packages of kernels: images, metapackages and headers."""
KERNEL = re.compile(r"(?:^|[ ,(])linux-image-([0-9][^ ,]*)")


@dataclass(frozen=True)
class PackageState:
    """A package that is there, in whatever state."""

    name: str
    state: str
    """`installed`, or one of HALF_STATES."""
    version: str
    depends: str
    """The dependency of a kernel's installed metapackage; empty for any other."""

    @property
    def is_installed(self) -> bool:
        """Whether it is installed completely."""
        return self.state == "installed"


@dataclass(frozen=True)
class PackageStates:
    """Packages of a host."""

    rows: tuple[PackageState, ...] = ()
    """Those that were asked for."""
    held: tuple[str, ...] = ()
    """All that apt keeps as they are."""

    def matching(self, patterns: Collection[str]) -> PackageStates:
        """Those whose names match shell patterns, and all that are on hold."""
        rows = (row for row in self.rows if any(fnmatchcase(row.name, pattern) for pattern in patterns))
        return PackageStates(tuple(rows), self.held)

    @property
    def versions(self) -> MappingProxyType[str, str]:
        """Installed package -> its version."""
        return MappingProxyType({row.name: row.version for row in self.rows if row.is_installed})

    @property
    def half(self) -> tuple[str, ...]:
        """Packages whose installation began and did not end."""
        return tuple(sorted({row.name for row in self.rows if not row.is_installed}))

    @property
    def headers(self) -> frozenset[str]:
        """Installed packages of kernels' headers, the metapackages among them."""
        return frozenset(name for name in self.versions if name.startswith(HEADERS))

    @property
    def kernel_metapackages(self) -> tuple[tuple[str, str], ...]:
        """(metapackage, the kernel that it brings) of each installed one."""
        rows = ((row.name, KERNEL.search(row.depends)) for row in self.rows if row.is_installed)
        return tuple(sorted({(name, found[1]) for name, found in rows if found and METAPACKAGE.fullmatch(name)}))


_name = matching(r"[a-z0-9][a-z0-9+.-]{0,254}", "the name of a package")
PACKAGE_SCHEMA: Schema = {
    "package": (
        _name,
        one_of("installed", *HALF_STATES),
        matching(r"[A-Za-z0-9.+:~_-]{0,255}", "a version"),
        text,
    ),
    "held": (_name,),
}
"""The output of templates/probe/packages.sh.j2: fields of PackageState in their order, and names."""


def read_package_states(told: HostOutput) -> PackageStates:
    """The packages that a host reports."""
    return PackageStates(tuple(PackageState(*row) for row in told.many("package")), tuple(sorted(told.all("held"))))
