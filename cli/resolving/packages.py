"""Distribution packages with all that they need, in the parts of their archives that an apt can verify them by.

The machine's own apt finds, fetches and verifies them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from cli.resolving.apt import TARGET, Apt, run
from cli.resolving.archives import TIMELY
from cli.resolving.mirrored import VERBATIM, Brought, mirrored
from cli.resolving.web import Unavailable
from rigwright.host.systems import CODENAMES, COMPONENTS, KEYRING

T = TypeVar("T")
# An address in quotes, the file's name, its bytes and digest (apt-get(8), --print-uris)
ADDRESS = re.compile(r"'[^']+' \S+ [0-9]+ \S*")


@dataclass(frozen=True)
class Transaction:
    """Packages that are installed at once."""

    names: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()
    """More of them, which some releases lack."""
    debs: tuple[Path, ...] = ()
    """Others, of another archive: their files are there."""


class Archive:
    """One system's packages."""

    def __init__(self, system: str, mirrors: Sequence[str]) -> None:
        self.system = system
        self.distribution = system.partition("-")[0]
        self.codename = CODENAMES[system]
        self.mirrors = mirrors
        self.keyring = Path(KEYRING.format(self.distribution))

    def bring(self, wanted: Sequence[Transaction], folder: Path) -> Brought:
        """Put packages and all that they need into a folder, as if nothing was installed, with what is signed of them.

        What one transaction needs, another may have no place for. The places are tried in order.

        Raises:
            Unavailable: there is no apt here, no key or no archive of this distribution, one that has expired, or apt
                fails.
        """

        def brought(apt: Apt) -> Brought:
            known: dict[str, list[str]] = {}
            for one in wanted:
                names = (*one.names, *(name for name in one.perhaps if apt.has(name)), *map(str, one.debs))
                words = ("--yes", "--no-install-recommends", "install", *names)
                there = {f"file:{path}" for path in one.debs}
                rows = parse_addresses(apt.get("--print-uris", *words))
                known.update({row[0]: row for row in rows if unquote(row[0].strip("'")) not in there})
                apt.get("--download-only", *words)
            return mirrored(apt, self.system, list(known.values()), folder)

        return self._first(COMPONENTS[self.distribution], brought, **TIMELY, **VERBATIM)

    def listing(self, component: str) -> str:
        """All packages of one part of the archive, as the first place that has it describes them.

        Raises:
            Unavailable: as above.
        """
        return self._first(component, Apt.lists)

    def _first(self, components: str, act: Callable[[Apt], T], **settings: str) -> T:
        """What comes of the first place at which apt does something."""
        if not self.keyring.exists():
            package = {"debian": "debian-archive-keyring", "ubuntu": "ubuntu-keyring"}[self.distribution]
            raise Unavailable(f"{self.keyring} is not on this machine: install {package}")
        failed = []
        for sources in self._sources(components):
            with tempfile.TemporaryDirectory() as temporary:
                try:
                    return act(Apt(Path(temporary), sources, **settings))
                except Unavailable as error:
                    failed.append(str(error))
        raise Unavailable("; ".join(failed))

    def _sources(self, components: str) -> list[list[str]]:
        """Each mirror of the rig, or else what this machine uses itself for the same distribution."""
        signed = f"deb [signed-by={self.keyring}]"
        found = [self._mirrored(base.rstrip("/")) for base in self.mirrors] or [self._own()]
        return [[f"{signed} {base} {suite} {components}" for base, suite in places] for places in found]

    def _mirrored(self, base: str) -> list[tuple[str, str]]:
        # Debian's security archive lies beside the other, Ubuntu's is one of its suites
        secure = f"{base}-security" if self.distribution == "debian" else base
        suites = (self.codename, f"{self.codename}-updates")
        return [*((base, suite) for suite in suites), (secure, f"{self.codename}-security")]

    def _own(self) -> list[tuple[str, str]]:
        release = _release()
        if release.get("ID") != self.distribution:
            raise Unavailable("this machine runs another distribution: set its archive in the rig's mirrors, as apt")
        wanted = "$(REPO_URI) $(RELEASE) $(CODENAME) $(LABEL)"
        listed = run(["apt-get", "indextargets", "--format", wanted, "Created-By: Packages"])
        found = places(listed, self.distribution, release.get("VERSION_CODENAME") or "?", self.codename)
        if not found:
            raise Unavailable("this machine's apt has no archive: set one in the rig's mirrors, as apt")
        return found


def parse_addresses(listed: str) -> list[list[str]]:
    """Address in quotes, file name, size and digest of each package that apt would fetch, of its --print-uris."""
    return [line.split() for line in listed.splitlines() if ADDRESS.fullmatch(line)]


def places(listed: str, distribution: str, own: str, wanted: str) -> list[tuple[str, str]]:
    """Where a machine's own distribution is had, for another release of it: addresses and suites.

    Args:
        listed: A line an archive: address, the suite as a source names it, the release's codename, its label.
        distribution: Its name, in small letters.
        own: Codename of the release that the machine runs.
        wanted: Codename of the release that is wanted.
    """
    found, label = [], distribution.capitalize()
    for base, suite, codename, of in (line.split(" ", 3) for line in listed.splitlines() if TARGET.fullmatch(line)):
        # a source may call a release stable; Ubuntu gives updates the codename of what they update
        named = suite if own in suite else codename
        if of in (label, f"{label}-Security") and own in named:
            found.append((base, named.replace(own, wanted)))
    return list(dict.fromkeys(found))


def _release() -> dict[str, str]:
    pairs = (line.partition("=") for line in Path("/etc/os-release").read_text().splitlines())
    return {name: value.strip('"') for name, _, value in pairs}
