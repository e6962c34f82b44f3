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

from cli.lock_resolver.apt_archives import APT_TIMEOUTS
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.isolated_apt import TARGET, IsolatedApt, run_program
from cli.lock_resolver.partial_mirror import VERBATIM, PartialMirror, build_mirror
from rigwright.host.systems import CODENAMES, COMPONENTS, KEYRING

T = TypeVar("T")
# An address in quotes, the file's name, its bytes and digest (apt-get(8), --print-uris)
ADDRESS = re.compile(r"'[^']+' \S+ [0-9]+ \S*")


@dataclass(frozen=True)
class PackageTransaction:
    """Packages that are installed at once."""

    names: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()
    """More of them, which some releases lack."""
    debs: tuple[Path, ...] = ()
    """Others, of another archive: their files are there."""


class DistributionArchive:
    """One system's packages."""

    def __init__(self, system: str, mirrors: Sequence[str]) -> None:
        self.system = system
        self.distribution = system.partition("-")[0]
        self.codename = CODENAMES[system]
        self.mirrors = mirrors
        self.keyring = Path(KEYRING.format(self.distribution))

    def fetch_packages(self, wanted: Sequence[PackageTransaction], folder: Path) -> PartialMirror:
        """Put packages and all that they need into a folder, as if nothing was installed, with what is signed of them.

        What one transaction needs, another may have no place for. The places are tried in order.

        Raises:
            DownloadUnavailable: there is no apt here, no key or no archive of this distribution, one that has expired,
                or apt fails.
        """

        def fetch_group(apt: IsolatedApt) -> PartialMirror:
            known: dict[str, list[str]] = {}
            for one in wanted:
                names = (*one.names, *(name for name in one.perhaps if apt.has_package(name)), *map(str, one.debs))
                words = ("--yes", "--no-install-recommends", "install", *names)
                there = {f"file:{path}" for path in one.debs}
                rows = parse_addresses(apt.run_apt_get("--print-uris", *words))
                known.update({row[0]: row for row in rows if unquote(row[0].strip("'")) not in there})
                apt.run_apt_get("--download-only", *words)
            return build_mirror(apt, self.system, list(known.values()), folder)

        return self._try_sources(COMPONENTS[self.distribution], fetch_group, **APT_TIMEOUTS, **VERBATIM)

    def list_component(self, component: str) -> str:
        """All packages of one part of the archive, as the first place that has it describes them.

        Raises:
            DownloadUnavailable: as above.
        """
        return self._try_sources(component, IsolatedApt.read_package_lists)

    def _try_sources(self, components: str, act: Callable[[IsolatedApt], T], **settings: str) -> T:
        """What comes of the first place at which apt does something."""
        if not self.keyring.exists():
            package = {"debian": "debian-archive-keyring", "ubuntu": "ubuntu-keyring"}[self.distribution]
            raise DownloadUnavailable(f"{self.keyring} is not on this machine: install {package}")
        failed = []
        for sources in self._apt_sources(components):
            with tempfile.TemporaryDirectory() as temporary:
                try:
                    return act(IsolatedApt(Path(temporary), sources, **settings))
                except DownloadUnavailable as error:
                    failed.append(str(error))
        raise DownloadUnavailable("; ".join(failed))

    def _apt_sources(self, components: str) -> list[list[str]]:
        """Each mirror of the rig, or else what this machine uses itself for the same distribution."""
        signed = f"deb [signed-by={self.keyring}]"
        found = [self._mirror_suites(base.rstrip("/")) for base in self.mirrors] or [self._machine_suites()]
        return [[f"{signed} {base} {suite} {components}" for base, suite in places] for places in found]

    def _mirror_suites(self, base: str) -> list[tuple[str, str]]:
        # Debian's security archive lies beside the other, Ubuntu's is one of its suites
        secure = f"{base}-security" if self.distribution == "debian" else base
        suites = (self.codename, f"{self.codename}-updates")
        return [*((base, suite) for suite in suites), (secure, f"{self.codename}-security")]

    def _machine_suites(self) -> list[tuple[str, str]]:
        release = _read_os_release()
        if release.get("ID") != self.distribution:
            raise DownloadUnavailable(
                "this machine runs another distribution: set its archive in the rig's mirrors, as apt"
            )
        wanted = "$(REPO_URI) $(RELEASE) $(CODENAME) $(LABEL)"
        listed = run_program(["apt-get", "indextargets", "--format", wanted, "Created-By: Packages"])
        found = source_suites(listed, self.distribution, release.get("VERSION_CODENAME") or "?", self.codename)
        if not found:
            raise DownloadUnavailable("this machine's apt has no archive: set one in the rig's mirrors, as apt")
        return found


def parse_addresses(listed: str) -> list[list[str]]:
    """Address in quotes, file name, size and digest of each package that apt would fetch, of its --print-uris."""
    return [line.split() for line in listed.splitlines() if ADDRESS.fullmatch(line)]


def source_suites(listed: str, distribution: str, own: str, wanted: str) -> list[tuple[str, str]]:
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


def _read_os_release() -> dict[str, str]:
    pairs = (line.partition("=") for line in Path("/etc/os-release").read_text().splitlines())
    return {name: value.strip('"') for name, _, value in pairs}
