"""A distribution's signed statement about its packages: the Release file of an archive's suite.

Nothing here proves a signature: the apt of the host does, by the host's own keyring.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timezone
from typing import Annotated

from pydantic import Field

from rigwright.host.supported_systems import CODENAMES
from rigwright.problems import FrozenModel
from rigwright.safe_text import printable
from rigwright.validated_types import CatalogName, System, Text

PACKAGES = "packages"
"""The folder of a bundle with a folder a system in it, and in that one an archive."""
SIGNED = ("InRelease",)
APART = ("Release", "Release.gpg")
"""The signed text, in one file or in two (wiki.debian.org/DebianRepository/Format)."""
LARGEST = 8 << 20  # bytes of a Release file; Debian's have 150 KB
TIME = "%Y-%m-%d %H:%M:%S UTC"
# Text before, after or between would be read by one program as signed, and by another one not.
CLEARSIGNED = re.compile(
    r"-----BEGIN PGP SIGNED MESSAGE-----\n(?:Hash: [A-Za-z0-9, -]+\n)*\n((?:(?!-----).*\n)*)"
    r"-----BEGIN PGP SIGNATURE-----\n(?:(?!-----).*\n)*-----END PGP SIGNATURE-----\n*"
)
SUM = re.compile(r" ([0-9a-f]{64}) +([0-9]{1,15}) ([!-~]+)")


class ArchiveSuite(FrozenModel):
    """One suite of an archive whose packages are in a bundle, with what its distribution has signed of it."""

    system: System = Field(description="Its system.")
    archive: Annotated[int, Field(ge=0, le=99, strict=True)] = Field(
        description="Its archive's folder, below that of its system's packages: suites of one address share one."
    )
    suite: CatalogName = Field(description="Its name, as in an apt source.")
    components: tuple[CatalogName, ...] = Field(
        min_length=1, description="Components whose package lists are included."
    )
    signed: Text = Field(description="The signed date, UTC.")
    valid_until: Text | None = Field(description="Valid-Until of its distribution, UTC; none if it has none.")

    @property
    def folder(self) -> str:
        """Where its Release file lies in a bundle."""
        return f"{PACKAGES}/{self.system}/{self.archive}/dists/{self.suite}"


@dataclass(frozen=True)
class Release:
    """The contents of a Release file."""

    names: frozenset[str]
    """The names of its suite."""
    signed: str
    valid_until: str | None
    sums: Mapping[str, tuple[str, int]]
    """Path from its folder -> SHA-256 and size in bytes."""

    def path(self, name: str, sha256: str, size: int) -> str | None:
        """Which form of a list has these bytes: its name, or that with how it is compressed; None where none has.

        Args:
            name: The list's own, such as main/binary-amd64/Packages; of empty lists there are many.
            sha256: Of the bytes.
            size: Their number.
        """
        forms = (path for path, known in self.sums.items() if known == (sha256, size))
        return next((path for path in forms if path.partition(f"{name}.")[0] in (name, "")), None)


def parse_release(text: str) -> Release:
    """Read a Release file, or what is signed of an InRelease.

    Raises:
        ValueError: it is invalid; the text tells why.
    """
    if "-----BEGIN PGP" in text:
        if not (whole := CLEARSIGNED.fullmatch(text)):
            raise ValueError("is not a single clearsigned message with one signature")
        text = re.sub(r"^- ", "", whole[1], flags=re.MULTILINE)
    fields: dict[str, str] = {}
    sums: dict[str, tuple[str, int]] = {}
    name = ""
    for line in text.rstrip("\n").split("\n"):
        if not line.startswith(" "):
            name, _, value = line.partition(":")
            if name in fields:
                raise ValueError(f"has {printable(name)} twice")
            fields[name] = value.strip()
        elif name == "SHA256":
            if not (row := SUM.fullmatch(line)) or row[3] in sums:
                raise ValueError("has an unreadable list of hashes")
            sums[row[3]] = (row[1], int(row[2]))
    if "Date" not in fields or not sums:
        raise ValueError("has no date or no hashes")
    until = fields.get("Valid-Until")
    names = frozenset(fields[key] for key in ("Suite", "Codename") if fields.get(key))
    return Release(names, _parse_time(fields["Date"]), None if until is None else _parse_time(until), sums)


def _parse_time(value: str) -> str:
    # a rig without a bundle is judged without it, and importing it takes its time
    from email.utils import parsedate_to_datetime

    try:
        when = parsedate_to_datetime(value)
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        return when.astimezone(timezone.utc).strftime(TIME)
    except (ValueError, OverflowError):
        raise ValueError("has an unreadable date") from None


def find_suite_faults(
    suite: ArchiveSuite, files: Mapping[str, tuple[str, int]], read: Callable[[str], str]
) -> list[tuple[str, str]]:
    """The faults of a suite of a bundle, with any signer.

    Args:
        suite: The suite, as the bundle's index has it.
        files: The bundle's files: path -> SHA-256 and size in bytes.
        read: Gives the text of one of them.

    Returns:
        A path and what is wrong with it, each.
    """
    codename = CODENAMES.get(suite.system)
    if suite.suite != codename and not suite.suite.startswith(f"{codename}-"):
        return [(suite.folder, f"is not a suite of {suite.system}")]
    ways = [way for way in (SIGNED, APART) if all(f"{suite.folder}/{name}" in files for name in way)]
    if not ways:
        return [(suite.folder, "has no InRelease signed by its distribution")]
    path = f"{suite.folder}/{ways[0][0]}"
    if files[path][1] > LARGEST:
        return [(path, f"is larger than {LARGEST >> 20} MiB")]
    try:
        found = parse_release(read(path))
    except (OSError, ValueError) as error:
        return [(path, str(error))]
    if suite.suite not in found.names:
        return [(path, f"is for {' or '.join(sorted(found.names)) or 'no suite'}, not {suite.suite}")]
    if (suite.signed, suite.valid_until) != (found.signed, found.valid_until):
        return [(path, f"is dated {found.signed}, valid until {found.valid_until}; the index says otherwise")]
    below = f"{suite.folder}/"
    lists = {one.removeprefix(below): known for one, known in files.items() if one.startswith(below)}
    other = [name for name, known in lists.items() if name not in SIGNED + APART and found.sums.get(name) != known]
    return [(f"{suite.folder}/{name}", "does not match the hash signed by its archive") for name in other]
