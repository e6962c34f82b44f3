"""Distribution packages with dependencies, and the partial mirror that apt verifies them by.

The machine's own apt finds, fetches and verifies them.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from pydantic import TypeAdapter, ValidationError

from cli.lock_resolver.apt_archives import APT_TIMEOUTS, HELPER, TARGET, IsolatedApt, run_program
from cli.lock_resolver.downloads import DownloadUnavailable, FileContent
from rigwright.host.supported_systems import CODENAMES, COMPONENTS, KEYRING
from rigwright.supply.apt_release import APART, PACKAGES, SIGNED, ArchiveSuite, Release, parse_release
from rigwright.validated_types import RelativePath

PART = ".part"
"""Ends the names of files that every bundle has, until all else is there: an earlier bundle stays whole."""
# apt keeps lists as they came, for their hashes are what is signed
VERBATIM = {
    "Acquire::Languages": "none",
    "Acquire::IndexTargets::deb::Packages::KeepCompressed": "true",
    "Acquire::IndexTargets::deb::Packages::KeepCompressedAs": "xz gz bz2 lzma zst lz4 .",
}
LOCKED = "copy:"
"""Begins the address of an archive of locked packages, which are in a bundle already."""


@dataclass(frozen=True)
class PartialMirror:
    """The files that were put into the folder of a system's archives."""

    files: dict[str, FileContent]
    """By path below it."""
    suites: tuple[ArchiveSuite, ...]
    staged: tuple[str, ...]
    """The paths that have PART behind them yet."""


@dataclass(frozen=True)
class _PackageList:
    """One list of packages that an apt has read."""

    base: str
    """Its archive's address, with a slash behind it."""
    suite: str
    name: str
    """Its path below the suite's folder, without how it is compressed."""
    file: Path
    """Where apt has it."""

    def sibling_path(self, name: str) -> Path:
        """Another file of the suite's, where apt has it: slashes are underscores there."""
        end = self.file.name.rindex(self.name.replace("/", "_"))
        return self.file.with_name(f"{self.file.name[:end]}{name}")


def build_mirror(apt: IsolatedApt, system: str, addresses: list[list[str]], folder: Path) -> PartialMirror:
    """Lay out what an apt has fetched as its archives have it.

    Args:
        apt: It has read its sources with `VERBATIM`, and verified them.
        system: The distribution of the packages.
        addresses: Of each package that it has fetched the quoted address, the file's name at apt, and more.
        folder: Where they go: a folder an archive.

    Raises:
        DownloadUnavailable: an archive does not say in what it signs what there is.
    """
    lists = _collect_lists(apt)
    bases = list(dict.fromkeys(one.base for one in lists))
    files: dict[str, FileContent] = {}
    staged: list[str] = []

    def put(path: str, content: bytes, end: str = "") -> None:
        _remove_metadata(path)
        place = folder / f"{path}{end}"
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_name(f"{place.name}.new")
        new.write_bytes(content)
        new.replace(place)
        files[path] = FileContent(hashlib.sha256(content).hexdigest(), len(content))
        staged.extend([path] if end else [])

    suites = []
    by_suite: dict[tuple[str, str], list[_PackageList]] = defaultdict(list)
    for one in lists:
        by_suite[one.base, one.suite].append(one)
    for (base, suite), its in by_suite.items():
        number = bases.index(base)
        place = f"{number}/dists/{suite}"
        signed = [name for way in (SIGNED, APART) for name in way if its[0].sibling_path(name).exists()]
        for name in signed:
            put(f"{place}/{name}", its[0].sibling_path(name).read_bytes(), PART)
        says = _parse_release(base, its[0].sibling_path(signed[0]))
        for one in its:
            name, content = _signed_list(one, says)
            put(f"{place}/{name}", content, PART)
        components = tuple(dict.fromkeys(one.name.partition("/")[0] for one in its))
        suites.append(
            ArchiveSuite(
                system=system,
                archive=number,
                suite=suite,
                components=components,
                signed=says.signed,
                valid_until=says.valid_until,
            )
        )
    for quoted, name, *_ in addresses:
        address = quoted.strip("'")
        base = next(base for base in bases if address.startswith(base))
        path = unquote(address.removeprefix(base))
        put(f"{bases.index(base)}/{path}", (apt.work / "archives" / name).read_bytes())
    return PartialMirror(files, tuple(suites), tuple(staged))


def _collect_lists(apt: IsolatedApt) -> list[_PackageList]:
    wanted = "$(REPO_URI) $(RELEASE) $(METAKEY) $(FILENAME)"
    listed = apt.run_apt_get("indextargets", "--format", wanted, "Created-By: Packages")
    rows = [
        line.split(" ", 3) for line in listed.splitlines() if TARGET.fullmatch(line) and not line.startswith(LOCKED)
    ]
    found = [_PackageList(base, suite.rstrip("/"), name, Path(file)) for base, suite, name, file in rows]
    return [one for one in found if one.file.exists()]  # apt keeps no empty ones


def _parse_release(base: str, file: Path) -> Release:
    try:
        return parse_release(file.read_text("utf-8"))
    except ValueError as error:
        raise DownloadUnavailable(f"{base}: its {file.name.rpartition('_')[2]} {error}") from None


def _signed_list(one: _PackageList, says: Release) -> tuple[str, bytes]:
    """A list in a form that is signed: as it came, or without its compression."""
    for content in (one.file.read_bytes, lambda: run_program([HELPER, "cat-file", str(one.file)]).encode()):
        found = content()
        if path := says.path(one.name, hashlib.sha256(found).hexdigest(), len(found)):
            return path, found
    raise DownloadUnavailable(f"{one.base} {one.suite}: {one.name} has no signed form there")


def _remove_metadata(path: str) -> None:
    try:
        TypeAdapter(RelativePath).validate_python(path)
    except ValidationError:
        raise DownloadUnavailable(f"{PACKAGES}: {path} cannot be a file's name in a bundle") from None


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


@dataclass(frozen=True)
class LockedArchive:
    """Locked packages of another archive, whose files are there."""

    files: tuple[Path, ...]
    listed: str
    """Their list, as an archive has it."""

    def add_source(self, folder: Path) -> str:
        """Make an archive of them in a new folder, and give the line of a sources.list."""
        folder.mkdir()
        for path in self.files:
            (folder / path.name).symlink_to(path.absolute())
        (folder / "Packages").write_text(self.listed)
        return f"deb [trusted=yes] {LOCKED}{folder} /"


class DistributionArchive:
    """One system's packages."""

    def __init__(self, system: str, mirrors: Sequence[str]) -> None:
        self.system = system
        self.distribution = system.partition("-")[0]
        self.codename = CODENAMES[system]
        self.mirrors = mirrors
        self.keyring = Path(KEYRING.format(self.distribution))

    def fetch_packages(
        self,
        wanted: Sequence[PackageTransaction],
        folder: Path,
        components: Sequence[str] = (),
        locked: Sequence[LockedArchive] = (),
    ) -> PartialMirror:
        """Put packages and all that they need into a folder, as if nothing was installed, with what is signed of them.

        A package that one transaction needs may have no place in another. The places are tried in order.

        Args:
            wanted: The packages.
            folder: Where they go: a folder an archive.
            components: Further components of the archive.
            locked: Archives of packages that the folder of locked packages has: transactions may name those, too.

        Raises:
            DownloadUnavailable: there is no apt here, no key or no archive of this distribution, one that has expired,
                or apt fails.
        """

        def fetch_group(apt: IsolatedApt) -> PartialMirror:
            known: dict[str, list[str]] = {}
            apt.unpack_lists()
            for one in wanted:
                names = (*one.names, *(name for name in one.perhaps if apt.has_package(name)), *map(str, one.debs))
                words = ("--yes", "--no-install-recommends", "install", *names)
                there = {f"file:{path}" for path in one.debs}
                rows = parse_addresses(apt.choose_packages("--print-uris", *words))
                addresses = {row[0]: unquote(row[0].strip("'")) for row in rows}
                there |= {address for address in addresses.values() if address.startswith(LOCKED)}
                known.update({row[0]: row for row in rows if addresses[row[0]] not in there})
                apt.choose_packages("--download-only", *words)
            return build_mirror(apt, self.system, list(known.values()), folder)

        with tempfile.TemporaryDirectory() as temporary:
            sources = [one.add_source(Path(temporary, str(number))) for number, one in enumerate(locked)]
            named = " ".join([COMPONENTS[self.distribution], *components])
            return self._try_sources(named, fetch_group, sources, **APT_TIMEOUTS, **VERBATIM)

    def list_component(self, component: str) -> str:
        """All packages of one part of the archive, as the first place that has it describes them.

        Raises:
            DownloadUnavailable: as above.
        """
        return self._try_sources(component, IsolatedApt.read_package_lists)

    def _try_sources(
        self, components: str, act: Callable[[IsolatedApt], T], more: Sequence[str] = (), **settings: str
    ) -> T:
        """The result of the first place at which apt succeeds."""
        if not self.keyring.exists():
            package = {"debian": "debian-archive-keyring", "ubuntu": "ubuntu-keyring"}[self.distribution]
            raise DownloadUnavailable(f"{self.keyring} is not on this machine: install {package}")
        failed = []
        for sources in self._apt_sources(components):
            with tempfile.TemporaryDirectory() as temporary:
                try:
                    return act(IsolatedApt(Path(temporary), [*sources, *more], **settings))
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
