"""Files of archives that are elsewhere: of a wheel, those that are asked for; of a source, it is fetched whole."""

from __future__ import annotations

import io
import lzma
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, BinaryIO

import requests

from cli.resolving import web
from cli.resolving.web import Unavailable
from rigwright.patches.apply import LARGEST, Read, Refused
from rigwright.problems import printable
from roles.envs.host.lists import place, rows
from roles.envs.host.tree import Refused as Unlisted

AHEAD = 64 << 10  # bytes that are asked for at once, at least
UNREADABLE = (
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading an archive raises where its bytes are none: zipfile and tarfile hand on what is below them."""


class WithoutRanges(Exception):
    """A server that gives whole files alone."""


class Ranged(io.RawIOBase):
    """A file on the web, of which only what is read is asked for."""

    def __init__(self, session: requests.Session, url: str, size: int) -> None:
        self.session, self.url, self.size = session, url, size
        self.at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Read from another byte."""
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # typeshed has a wider one
        """Read as much as fits, or is left.

        Raises:
            Unavailable: its server does not answer.
            WithoutRanges: it answers with the whole file.
        """
        count = min(len(buffer), self.size - self.at)
        if count <= 0:
            return 0
        asked = web.PLAIN | {"Range": f"bytes={self.at}-{self.at + count - 1}"}
        try:
            with self.session.get(self.url, stream=True, headers=asked, timeout=web.TIMEOUT) as answer:
                answer.raise_for_status()
                if answer.status_code != 206:
                    raise WithoutRanges
                found = next(answer.iter_content(count), b"")[:count]
        except requests.RequestException as error:
            raise web.unavailable(error) from None
        buffer[: len(found)] = found
        self.at += len(found)
        return len(found)


@contextmanager
def opened(session: requests.Session, url: str, size: int, report: web.Report) -> Iterator[BinaryIO]:
    """A file on the web as one that can be read anywhere, for as long as the block runs.

    Args:
        session: As `web.session` makes it.
        url: Where it is.
        size: Its bytes.
        report: Is told how far it is, where its server gives it whole alone.

    Raises:
        Unavailable: it is not to be had.
    """
    remote = Ranged(session, url, size)
    try:
        if remote.seek(-1, io.SEEK_END) and not remote.read(1):
            raise Unavailable("is shorter than its index says")
    except WithoutRanges:
        with tempfile.TemporaryFile() as file:
            web.fetch(session, url, report, file, size)
            file.seek(0)
            yield file
        return
    remote.seek(0)
    yield io.BufferedReader(remote, AHEAD)


@contextmanager
def of_wheel(file: BinaryIO | Path) -> Iterator[tuple[Read, dict[str, str]]]:
    """What reads files of a wheel that it lists, by where they are installed, and that list: path -> SHA-256.

    Raises:
        Unavailable: it is no wheel; what reads raises it, too.
    """
    with ExitStack() as stack:
        with _told("wheel"):
            wheel = stack.enter_context(zipfile.ZipFile(file))
            (name,) = [one for one in wheel.namelist() if one.count("/") == 1 and one.endswith(".dist-info/RECORD")]
            with wheel.open(name) as record:
                listed = rows(record.read(LARGEST).decode(), name)
        paths = {installed: (path, digest) for path, digest in listed if (installed := place(path, ""))}

        def read(path: str) -> bytes | None:
            if path not in paths:
                return None
            with _told("wheel"), wheel.open(paths[path][0]) as found:
                return _bounded(found)

        yield read, {path: digest for path, (_, digest) in paths.items()}


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Have whatever the library raises of an archive's bytes mean that it is none."""
    try:
        yield
    except WithoutRanges:
        raise Unavailable("has a server that gives parts of it, and then the whole") from None
    except KeyError:
        raise Unavailable(f"is not a readable {what}: it lacks a file that it lists") from None
    except (*UNREADABLE, Unlisted) as error:
        raise Unavailable(f"is not a readable {what}: {printable(str(error))}") from None


@contextmanager
def of_source(path: Path, subtree: str) -> Iterator[Read]:
    """What reads plain files of a source archive, by their paths below a folder inside its top folder.

    Raises:
        Unavailable: it is no such archive; what reads raises it, too.
    """
    with ExitStack() as stack:
        with _told("source archive"):
            archive = stack.enter_context(tarfile.open(path, "r:gz"))
            members = {one.name: one for one in archive}
        top = next(iter(members), "").partition("/")[0]

        def read(name: str) -> bytes | None:
            one = members.get("/".join(part for part in (top, subtree, name) if part))
            if one is None:
                return None
            found = archive.extractfile(one) if one.isreg() else None
            if found is None:
                raise Refused("it is a link, or not a regular file")
            with _told("source archive"):
                return _bounded(found)

        yield read


def _bounded(file: IO[bytes]) -> bytes:
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise Refused(f"it has more than {LARGEST:,} bytes")
    return content
