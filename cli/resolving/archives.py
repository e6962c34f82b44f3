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

from cli.resolving import web
from cli.resolving.apt import Apt, run
from cli.resolving.web import Unavailable
from rigwright.model.containers.tables import KnownArchive
from rigwright.model.debs.versions import LEADS, upstream
from rigwright.model.nvidia.tables import NvidiaArchive
from rigwright.model.nvidia.versions import driver_of, pins
from rigwright.nvidia.cuda.compilers import numbers
from rigwright.nvidia.driver import openpgp
from rigwright.nvidia.driver.found import LIBRARY, MODULES
from roles.progress import progress

# An old archive could hide a newer one; some machines let theirs run out (apt.conf(5)).
TIMELY = {"Acquire::Check-Date": "true", "Acquire::Check-Valid-Until": "true"}


@dataclass(frozen=True)
class Package:
    """One binary package."""

    name: str
    version: str
    path: str
    """Of its file, below the archive's address."""
    sha256: str
    size: int


@dataclass(frozen=True)
class Contents:
    """What one archive has."""

    place: str
    """Where it was read, for messages."""
    packages: tuple[Package, ...]
    key: str = ""
    """Its armoured key; empty for a distribution's."""

    @property
    def drivers(self) -> list[str]:
        """The drivers that it has, the oldest first."""
        found = {
            driver_of(one.version)
            for one in self.packages
            if LIBRARY.fullmatch(one.name) or MODULES.fullmatch(one.name)
        }
        return sorted(found - {""}, key=numbers)

    def versions(self, lead: str) -> list[str]:
        """The versions that it has of a package, as its maker calls them, the oldest first."""
        found = sorted((one.version for one in self.packages if one.name == lead), key=_by_version)
        return list(dict.fromkeys(upstream(version) for version in found))

    def group(self, known: KnownArchive, version: str) -> list[Package]:
        """Every package that a rig has of an archive: of one version those that have it, the others in their newest.

        Raises:
            Unavailable: it lacks one.
        """
        chosen = []
        for name in known.packages:
            there = [one for one in self.packages if one.name == name]
            fitting = [one for one in there if name not in known.versioned or upstream(one.version) == version]
            if not fitting:
                has = f"of {name} it has {', '.join(self.versions(name)) or 'none'}"
                raise Unavailable(f"{self.place} has no {name} {version}; {has}", gone=True)
            chosen.append(max(fitting, key=lambda one: _by_version(one.version)))
        return chosen

    def of(self, driver: str) -> list[Package]:
        """Every package of a driver, and what holds apt to it, each in its newest version.

        Raises:
            Unavailable: it has no such driver.
        """
        if driver not in self.drivers:
            branch = driver.partition(".")[0]
            same = [one for one in self.drivers if one.startswith(f"{branch}.")]
            has = f"of branch {branch} it has {', '.join(same) or 'none'}"
            if not same and self.drivers:
                has += f", of others {', '.join(self.drivers)}"
            raise Unavailable(f"{self.place} has no driver {driver}; {has}", gone=True)
        chosen: dict[str, Package] = {}
        for one in self.packages:
            # of packages that follow kernels there is one a kernel, and the metapackage chooses
            wanted = driver_of(one.version) == driver and not one.name.startswith("linux-")
            if wanted or pins(one.name, driver):
                known = chosen.get(one.name)
                if known is None or _rank(one, driver) > _rank(known, driver):
                    chosen[one.name] = one
        return [chosen[name] for name in sorted(chosen)]


def _rank(one: Package, driver: str) -> tuple[bool, object]:
    return driver_of(one.version) == driver, _by_version(one.version)


def _compare(one: str, other: str) -> int:
    if one == other:
        return 0
    try:
        run(["dpkg", "--compare-versions", one, "gt", other])
    except Unavailable:
        return -1
    return 1


_by_version = cmp_to_key(_compare)


def nvidia(session: requests.Session, base: str, known: NvidiaArchive) -> Contents:
    """Read one of NVIDIA's archives of drivers.

    Args:
        session: As `web.session` makes it.
        base: Its folder's address.
        known: What the tables say of it.

    Raises:
        Unavailable: as of `signed`.
    """
    return signed(session, base, f"{base}/{known.key}", known.fingerprint, "the tables of drivers")


def signed(
    session: requests.Session, base: str, key_url: str, fingerprint: str, whose: str, suite: str = "/"
) -> Contents:
    """Read an archive.

    Args:
        session: As `web.session` makes it.
        base: Its folder's address.
        key_url: Its key's.
        fingerprint: That key's.
        whose: Who knows that, for messages.
        suite: Its suite and components, as a line of apt's sources has them; one that is flat has a slash.

    Raises:
        Unavailable: it is not to be had, its key is not the one that the tables know, or apt does not verify it.
    """
    with progress.task("lock", f"reading {base}"):
        key = _key(session, key_url, fingerprint, whose)
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary)
            trusted = work / "archive.asc"
            trusted.write_text(key, newline="")
            try:
                listed = Apt(work, [f"deb [signed-by={trusted}] {base}/ {suite}"], **TIMELY).lists()
            except Unavailable as error:
                text = f"{base} cannot be read and verified by its key {fingerprint}: {error}"
                if openpgp.read(key).sha1 and "sqv" in text:
                    text += ": the key signs itself with SHA-1, which this machine's apt refuses: lock on Debian 12"
                raise Unavailable(text) from None
        return Contents(base, packages(listed, base), key)


def _key(session: requests.Session, url: str, fingerprint: str, whose: str) -> str:
    into = io.BytesIO()
    try:
        web.fetch(session, url, lambda done, total: None, into)
    except Unavailable as error:
        raise Unavailable(f"{url} {error}", gone=error.gone) from None
    try:
        text = into.getvalue().decode("ascii")
        key = openpgp.read(text)
    except UnicodeDecodeError:
        raise Unavailable(f"{url} is not an ASCII-armoured OpenPGP key") from None
    except ValueError as error:
        raise Unavailable(f"{url} {error}") from None
    if key.fingerprint != fingerprint:
        raise Unavailable(f"{url} is the key {key.fingerprint}, and {whose} know {fingerprint}")
    if key.expires is not None and key.expires <= time.time():
        day = time.strftime("%Y-%m-%d", time.gmtime(key.expires))
        raise Unavailable(f"{url} expired on {day}: a new key needs its fingerprint in {whose}")
    return text


def packages(listed: str, place: str) -> tuple[Package, ...]:
    """The packages for this architecture in an archive's list.

    Args:
        listed: deb-control paragraphs.
        place: Whose list it is, for messages.

    Raises:
        Unavailable: a package that is asked for has no file, hash or size.
    """
    found = []
    for stanza in re.split(r"\n\s*\n", listed):
        fields = dict(re.findall(r"^([A-Za-z0-9-]+):[ \t]*(.*?)[ \t]*$", stanza, re.MULTILINE))
        if fields.get("Architecture") not in ("amd64", "all") or not {"Package", "Version"} <= fields.keys():
            continue
        try:
            path, size = fields["Filename"].removeprefix("./"), int(fields["Size"])
            found.append(Package(fields["Package"], fields["Version"], path, fields["SHA256"].lower(), size))
        except (KeyError, ValueError):
            if driver_of(fields["Version"]) or fields["Package"] in LEADS.values():
                raise Unavailable(f"{place} has {fields['Package']} without a file, SHA-256 or size") from None
    return tuple(found)
