"""What an archive of packages has: read by apt, which verifies it with a key that the tables know."""

from __future__ import annotations

import io
import re
import tempfile
import time
from dataclasses import dataclass
from functools import cmp_to_key
from pathlib import Path

import requests

from cli.lock_resolver import downloads
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.isolated_apt import IsolatedApt, run_program
from rigwright.model.containers.archive_tables import KnownArchive
from rigwright.model.debs.versions import LEADS, upstream_version
from rigwright.model.nvidia.driver_tables import NvidiaArchive
from rigwright.model.nvidia.versions import driver_version_of, is_pinning
from rigwright.nvidia.cuda.toolkit_validation import dotted_numbers
from rigwright.nvidia.driver import openpgp
from rigwright.nvidia.driver.driver_facts import LIBRARY, MODULES
from roles.progress import progress

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
    """What one archive has."""

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
        session: As `web.session` makes it.
        base: Its folder's address.
        known: What the tables say of it.

    Raises:
        DownloadUnavailable: as of `signed`.
    """
    return read_signed_archive(session, base, f"{base}/{known.key}", known.fingerprint, "the tables of drivers")


def read_signed_archive(
    session: requests.Session, base: str, key_url: str, fingerprint: str, whose: str, suite: str = "/"
) -> ArchiveContents:
    """Read an archive.

    Args:
        session: As `web.session` makes it.
        base: Its folder's address.
        key_url: Its key's.
        fingerprint: That key's.
        whose: Who knows that, for messages.
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
        place: Whose list it is, for messages.

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
