"""The files to bring, and their sources: the file that the role writes for one run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from .reach import origin_of
from .records import LockedFile

OF_PATH = ("hub", "index", "channel")
"""Kinds of sources that have `file`."""


class FetchRefused(Exception):
    """A source that does not bring the file, or a file that is not brought; the message says why and what to do."""


class DiskFull(FetchRefused):
    """No room on the disk: no other source helps, and no other file fares better."""


@dataclass(frozen=True)
class TransferLimits:
    """How patient the program is; rates in bytes a second, times in seconds."""

    slowest: int = 65536
    """A source that is slower, while there is another one, is given up."""
    seconds: int = 30
    """For so long it may be slower."""
    least: int = 1024
    """The last source is tried again when it is slower than this."""
    longest: int = 60
    """For so long the last source may be slower."""
    stall: float = 60.0
    """Seconds over which the rate of the hub's client and of a peer's own downloads is measured: one that is slower
    than `slowest`, or than `least` where there is no other source, is given up."""
    begin: float = 15.0
    """For so long after this run's beginning a peer may begin to fetch what it has not."""
    connect: int = 30
    tries: int = 5
    """In a row without a byte, until a source is given up."""
    pause: float = 1.0
    """Between two tries, and between two looks at a peer's progress."""
    retry_after: float = 120.0
    """The most that a server's Retry-After is followed."""
    turn: float = 3600.0
    """For so long another run is waited for."""
    peer: float = 86400.0
    """The most that a peer's own downloads are waited for in one run, whatever the peer writes of its progress: it may
    write anything. A day is what 1 TB takes at 100 Mbit/s."""


@dataclass(frozen=True)
class FileSource:
    """Where a file may be had. Of which kind it is decides which of the other fields are set."""

    kind: str
    """`sent`, `peer`, `hub`, `index`, `channel`, `registry` or `http`."""
    base: str = ""
    """Of an index or a channel: empty for the host's own default; of a registry without a slash at its end."""
    endpoint: str = ""
    repository: str = ""
    revision: str = ""
    file: str = ""
    project: str = ""
    channel: str = ""
    url: str = ""
    locked: bool = False
    """Whether the lock names this address, and not the inventory: a catalogue from elsewhere may have chosen it."""
    name: str = ""
    token: bool = False
    """Whether the run's token is for this hub."""
    login: str = ""
    """Of a registry: the name of the credential with its login; empty without one."""
    xet: bool = False
    """Whether this hub may send its client to the addresses of Xet, which are not checked here."""

    @property
    def label(self) -> str:
        """How messages call it; never with what an address may hold before its `@`."""
        if self.kind in ("hub", "sent"):
            return self.name or self.kind
        if self.kind in ("index", "channel") and not self.base:
            return self.name or f"this host's own {self.channel or 'package index'}"
        host = (self.base or self.url).partition("://")[2].partition("/")[0].rpartition("@")[2]
        return self.name or (f"peer {host}" if self.kind == "peer" else host)


@dataclass(frozen=True)
class FileRequest:
    """A file and its sources, in the order in which they are asked."""

    file: LockedFile
    sources: tuple[FileSource, ...]


@dataclass(frozen=True)
class FetchSpec:
    """One run."""

    root: Path
    records: Path
    ledger: Path
    locks: Path
    hub_python: str
    package_python: str
    """It has pip or py-rattler."""
    sent: Path | None
    files: tuple[FileRequest, ...]
    pace: TransferLimits = field(default_factory=TransferLimits)
    parallel: int = 4
    """Transfers at once."""
    redirects: frozenset[str] = frozenset()
    """Origins that a source may lead to although they are not public."""
    reserve: int = 1 << 30
    """Bytes that are to stay free."""
    hub_user: str = ""
    """The user that the hub's client runs as."""
    fs_verity: bool = False
    """Whether the kernel is asked to guard what is verified."""


def load_spec(path: Path) -> FetchSpec:
    """Read a run's file.

    Raises:
        FetchRefused: a path in it leads, or could lead, out of the models' root.
    """
    given = json.loads(path.read_text())
    files = []
    for row in given["files"]:
        sources = tuple(FileSource(**source) for source in row.get("sources", ()))
        for relative in (row["path"], *(source.file for source in sources if source.kind in OF_PATH)):
            check_relative_path(relative)
        files.append(FileRequest(LockedFile(row["path"], row["sha256"], row["size"]), sources))
    if twice := {one.file.path for one in files if sum(one.file.path == other.file.path for other in files) > 1}:
        raise FetchRefused(f"{min(twice)} is asked for twice")
    return FetchSpec(
        root=Path(given["root"]),
        records=Path(given["records"]),
        ledger=Path(given["ledger"]),
        locks=Path(given["locks"]),
        hub_python=given.get("hub_python", ""),
        hub_user=given.get("hub_user", ""),
        package_python=given.get("package_python", ""),
        sent=Path(given["sent"]) if given.get("sent") else None,
        files=tuple(files),
        pace=TransferLimits(**given.get("pace", {})),
        parallel=given.get("parallel", 4),
        redirects=frozenset(map(origin_of, given.get("redirects", ()))),
        reserve=given.get("reserve", 1 << 30),
        fs_verity=given.get("fs_verity", False),
    )


def check_relative_path(relative: str) -> None:
    """Refuse a path that is not plainly one of a file below a folder.

    Raises:
        FetchRefused: it is absolute, has `..` or empty components, control characters, or a name that the program
            itself gives.
    """
    parts = relative.split("/")
    if (
        PurePosixPath(relative).is_absolute()
        or any(part in ("", ".", "..") for part in parts)
        or any(ord(character) < 32 or character in "\\\x7f" for character in relative)
        or parts[0].startswith(".")
        or parts[-1].endswith((".part", ".wrong"))
    ):
        raise FetchRefused(f"{relative!r} is not a valid path for a model file: lock the model again")
