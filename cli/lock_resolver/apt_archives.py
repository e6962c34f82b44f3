"""Archives of packages, read and verified by an apt with a state of its own."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cmp_to_key
from pathlib import Path

import requests

from cli.lock_resolver import downloads
from cli.lock_resolver.downloads import DownloadUnavailable
from rigwright.model.containers.archive_tables import KnownArchive
from rigwright.model.deb_package_groups import LEADS, upstream_version
from rigwright.model.nvidia_tables import NvidiaArchive, driver_version_of, is_pinning
from rigwright.nvidia.cuda_toolkit import dotted_numbers
from rigwright.nvidia.driver import openpgp
from rigwright.nvidia.driver.driver_facts import LIBRARY, MODULES
from roles.progress import progress

# How apt-get 2 and 3 begin a line that says what is wrong; of a signature they only warn.
REASONS = ("E: ", "Error: ", "W: GPG error", "W: OpenPGP", "Warning: OpenPGP")
HELPER = "/usr/lib/apt/apt-helper"
COMPRESSED = (".xz", ".gz", ".bz2", ".lzma", ".zst", ".lz4")
# A line of `apt-get indextargets`: an address and three further fields
TARGET = re.compile(r"[a-z][a-z0-9+-]*:/\S* \S+ \S+ \S.*")


class IsolatedApt:
    """An apt that knows some sources and no packages."""

    def __init__(self, work: Path, sources: list[str], **settings: str) -> None:
        """Set it up in an empty folder, and let it read its sources.

        Args:
            work: Where its state goes.
            sources: Lines of a sources.list.
            settings: More of apt's own, in place of this machine's.

        Raises:
            DownloadUnavailable: there is no apt here, or it cannot read or verify one of them.
        """
        self.work = work
        for name in ("lists/partial", "archives/partial", "state", "cache", "parts"):
            (work / name).mkdir(parents=True)
        (work / "status").touch()
        (work / "sources.list").write_text("".join(f"{line}\n" for line in sources))
        set_ = {
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "root",
            "APT::Update::Error-Mode": "any",
            "Acquire::GzipIndexes": "false",
            # whatever this machine lets its own archives do
            "Acquire::AllowInsecureRepositories": "false",
            "Acquire::AllowWeakRepositories": "false",
            "APT::Get::AllowUnauthenticated": "false",
            "Dir::State": work / "state",
            "Dir::State::status": work / "status",
            "Dir::State::Lists": work / "lists",
            "Dir::Cache": work / "cache",
            "Dir::Cache::archives": work / "archives",
            "Dir::Etc::SourceList": work / "sources.list",
            "Dir::Etc::SourceParts": work / "parts",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": work / "parts",
        }
        self.options = [word for name, value in (set_ | settings).items() for word in ("-o", f"{name}={value}")]
        self.resolving: list[str] = []
        """The options by which it reads lists without compression."""
        self.run_apt_get("update")

    def run_apt_get(self, *arguments: str) -> str:
        """Run apt-get.

        Raises:
            DownloadUnavailable: it failed.
        """
        return run_program(["apt-get", "-qq", *self.options, *arguments])

    def unpack_lists(self) -> None:
        """Copy its lists without compression, and read those from now on to choose packages.

        apt unpacks a compressed list from its beginning for each package that it reads in it.

        Raises:
            DownloadUnavailable: a list cannot be unpacked.
        """
        plain = self.work / "plain"
        (plain / "partial").mkdir(parents=True)
        for path in (self.work / "lists").iterdir():
            if path.suffix in COMPRESSED:
                (plain / path.stem).write_text(run_program([HELPER, "cat-file", str(path)]), newline="")
            elif path.is_file():
                (plain / path.name).hardlink_to(path)
        unpacked = {"Dir::State::Lists": plain, "Acquire::IndexTargets::deb::Packages::KeepCompressed": "false"}
        self.resolving = [word for name, value in unpacked.items() for word in ("-o", f"{name}={value}")]

    def choose_packages(self, *arguments: str) -> str:
        """Run apt-get over the packages of its sources.

        Raises:
            DownloadUnavailable: it failed.
        """
        return self.run_apt_get(*self.resolving, *arguments)

    def has_package(self, name: str) -> bool:
        """Whether its sources have a package.

        Raises:
            DownloadUnavailable: it cannot be asked.
        """
        return name in run_program(["apt-cache", *self.options, *self.resolving, "pkgnames", name]).splitlines()

    def read_package_lists(self) -> str:
        """All packages of its sources, as their archives describe them; apt has verified that they do."""
        return "\n\n".join(path.read_text("utf-8") for path in sorted((self.work / "lists").glob("*_Packages")))


def run_program(command: list[str]) -> str:
    """Run a program of a Debian system and give what it prints.

    Raises:
        DownloadUnavailable: it is not here, or failed.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C.UTF-8"}
        )
    except FileNotFoundError:
        raise DownloadUnavailable(f"{command[0]} is not on this machine: packages need Debian or Ubuntu") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        # there are more words around it
        reasons = [line for line in said if line.startswith(REASONS)] or said[-3:]
        raise DownloadUnavailable(f"{command[0]} failed: {' '.join(reasons[:3])}")
    if "\0" in done.stdout or (done.stdout and not done.stdout.endswith("\n")):
        raise DownloadUnavailable(f"{command[0]}: its output is truncated, or not text")
    return done.stdout


# An old archive could hide a newer one; some machines let theirs run out (apt.conf(5)).
APT_TIMEOUTS = {"Acquire::Check-Date": "true", "Acquire::Check-Valid-Until": "true"}


@dataclass(frozen=True)
class ArchivePackage:
    """One binary package."""

    name: str
    version: str
    path: str
    """Of its file, below the archive's address."""
    sha256: str
    size: int


@dataclass(frozen=True)
class ArchiveContents:
    """The contents of one archive."""

    place: str
    """Where it was read, for messages."""
    packages: tuple[ArchivePackage, ...]
    key: str = ""
    """Its armoured key; empty for a distribution's."""

    @property
    def driver_versions(self) -> list[str]:
        """The drivers that it has, the oldest first."""
        found = {
            driver_version_of(one.version)
            for one in self.packages
            if LIBRARY.fullmatch(one.name) or MODULES.fullmatch(one.name)
        }
        return sorted(found - {""}, key=dotted_numbers)

    def package_versions(self, lead: str) -> list[str]:
        """The versions that it has of a package, as its maker calls them, the oldest first."""
        found = sorted((one.version for one in self.packages if one.name == lead), key=_by_version)
        return list(dict.fromkeys(upstream_version(version) for version in found))

    def group_packages(self, known: KnownArchive, version: str) -> list[ArchivePackage]:
        """Every package that a rig has of an archive: of one version those that have it, the others in their newest.

        Raises:
            DownloadUnavailable: it lacks one.
        """
        chosen = []
        for name in known.packages:
            there = [one for one in self.packages if one.name == name]
            fitting = [one for one in there if name not in known.versioned or upstream_version(one.version) == version]
            if not fitting:
                has = f"of {name} it has {', '.join(self.package_versions(name)) or 'none'}"
                raise DownloadUnavailable(f"{self.place} has no {name} {version}; {has}", gone=True)
            chosen.append(max(fitting, key=lambda one: _by_version(one.version)))
        return chosen

    def driver_packages(self, driver: str) -> list[ArchivePackage]:
        """Every package of a driver, and what holds apt to it, each in its newest version.

        Raises:
            DownloadUnavailable: it has no such driver.
        """
        if driver not in self.driver_versions:
            branch = driver.partition(".")[0]
            same = [one for one in self.driver_versions if one.startswith(f"{branch}.")]
            has = f"of branch {branch} it has {', '.join(same) or 'none'}"
            if not same and self.driver_versions:
                has += f", of others {', '.join(self.driver_versions)}"
            raise DownloadUnavailable(f"{self.place} has no driver {driver}; {has}", gone=True)
        chosen: dict[str, ArchivePackage] = {}
        for one in self.packages:
            # of packages that follow kernels there is one a kernel, and the metapackage chooses
            wanted = driver_version_of(one.version) == driver and not one.name.startswith("linux-")
            if wanted or is_pinning(one.name, driver):
                known = chosen.get(one.name)
                if known is None or _package_rank(one, driver) > _package_rank(known, driver):
                    chosen[one.name] = one
        return [chosen[name] for name in sorted(chosen)]


def _package_rank(one: ArchivePackage, driver: str) -> tuple[bool, object]:
    return driver_version_of(one.version) == driver, _by_version(one.version)


def _compare_versions(one: str, other: str) -> int:
    if one == other:
        return 0
    try:
        run_program(["dpkg", "--compare-versions", one, "gt", other])
    except DownloadUnavailable:
        return -1
    return 1


_by_version = cmp_to_key(_compare_versions)


def read_nvidia_archive(session: requests.Session, base: str, known: NvidiaArchive) -> ArchiveContents:
    """Read one of NVIDIA's archives of drivers.

    Args:
        session: As `downloads.open_session` makes it.
        base: Its folder's address.
        known: The facts about it in the tables.

    Raises:
        DownloadUnavailable: as of `read_signed_archive`.
    """
    return read_signed_archive(session, base, f"{base}/{known.key}", known.fingerprint, "the tables of drivers")


def read_signed_archive(
    session: requests.Session, base: str, key_url: str, fingerprint: str, whose: str, suite: str = "/"
) -> ArchiveContents:
    """Read an archive.

    Args:
        session: As `downloads.open_session` makes it.
        base: Its folder's address.
        key_url: Its key's.
        fingerprint: That key's.
        whose: The source of that knowledge, for messages.
        suite: Its suite and components, as a line of apt's sources has them; one that is flat has a slash.

    Raises:
        DownloadUnavailable: it is not to be had, its key is not the one that the tables know, or apt does not verify
        it.
    """
    with progress.task("lock", f"reading {base}"):
        key = _fetch_archive_key(session, key_url, fingerprint, whose)
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary)
            trusted = work / "archive.asc"
            trusted.write_text(key, newline="")
            try:
                listed = IsolatedApt(
                    work, [f"deb [signed-by={trusted}] {base}/ {suite}"], **APT_TIMEOUTS
                ).read_package_lists()
            except DownloadUnavailable as error:
                text = f"{base} cannot be read and verified by its key {fingerprint}: {error}"
                if openpgp.parse_openpgp_key(key).sha1 and "sqv" in text:
                    text += ": the key signs itself with SHA-1, which this machine's apt refuses: lock on Debian 12"
                raise DownloadUnavailable(text) from None
        return ArchiveContents(base, parse_packages(listed, base), key)


def _fetch_archive_key(session: requests.Session, url: str, fingerprint: str, whose: str) -> str:
    into = io.BytesIO()
    try:
        downloads.fetch_file(session, url, lambda done, total: None, into)
    except DownloadUnavailable as error:
        raise DownloadUnavailable(f"{url} {error}", gone=error.gone) from None
    try:
        text = into.getvalue().decode("ascii")
        key = openpgp.parse_openpgp_key(text)
    except UnicodeDecodeError:
        raise DownloadUnavailable(f"{url} is not an ASCII-armoured OpenPGP key") from None
    except ValueError as error:
        raise DownloadUnavailable(f"{url} {error}") from None
    if key.fingerprint != fingerprint:
        raise DownloadUnavailable(f"{url} is the key {key.fingerprint}, and {whose} know {fingerprint}")
    if key.expires is not None and key.expires <= time.time():
        day = time.strftime("%Y-%m-%d", time.gmtime(key.expires))
        raise DownloadUnavailable(f"{url} expired on {day}: a new key needs its fingerprint in {whose}")
    return text


def parse_packages(listed: str, place: str) -> tuple[ArchivePackage, ...]:
    """The packages for this architecture in an archive's list.

    Args:
        listed: deb-control paragraphs.
        place: The owner of the list, for messages.

    Raises:
        DownloadUnavailable: a package that is asked for has no file, hash or size.
    """
    found = []
    for stanza in re.split(r"\n\s*\n", listed):
        fields = dict(re.findall(r"^([A-Za-z0-9-]+):[ \t]*(.*?)[ \t]*$", stanza, re.MULTILINE))
        if fields.get("Architecture") not in ("amd64", "all") or not {"Package", "Version"} <= fields.keys():
            continue
        try:
            path, size = fields["Filename"].removeprefix("./"), int(fields["Size"])
            found.append(ArchivePackage(fields["Package"], fields["Version"], path, fields["SHA256"].lower(), size))
        except (KeyError, ValueError):
            if driver_version_of(fields["Version"]) or fields["Package"] in LEADS.values():
                raise DownloadUnavailable(f"{place} has {fields['Package']} without a file, SHA-256 or size") from None
    return tuple(found)
