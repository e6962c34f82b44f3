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

from cli.lock_resolver import downloads
from cli.lock_resolver.downloads import DownloadUnavailable
from rigwright.patches.apply import LARGEST, PatchRefused, Read
from rigwright.problems import printable
from roles.envs.host.lists import installed_path, parse_record_rows
from roles.envs.host.tree import EnvironmentRejected

READ_AHEAD_BYTES = 64 << 10  # bytes that are asked for at once, at least
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
"""The errors of reading an archive with invalid bytes: zipfile and tarfile hand on those below them."""


class RangesUnsupported(Exception):
    """A server that gives whole files alone."""


class RemoteFile(io.RawIOBase):
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
            DownloadUnavailable: its server does not answer.
            RangesUnsupported: it answers with the whole file.
        """
        count = min(len(buffer), self.size - self.at)
        if count <= 0:
            return 0
        asked = downloads.UNCOMPRESSED | {"Range": f"bytes={self.at}-{self.at + count - 1}"}
        try:
            with self.session.get(self.url, stream=True, headers=asked, timeout=downloads.TIMEOUT) as answer:
                answer.raise_for_status()
                if answer.status_code != 206:
                    raise RangesUnsupported
                found = next(answer.iter_content(count), b"")[:count]
        except requests.RequestException as error:
            raise downloads.describe_failure(error) from None
        buffer[: len(found)] = found
        self.at += len(found)
        return len(found)


@contextmanager
def open_remote(session: requests.Session, url: str, size: int, report: downloads.ProgressReport) -> Iterator[BinaryIO]:
    """A file on the web as one that can be read anywhere, for as long as the block runs.

    Args:
        session: As `downloads.open_session` makes it.
        url: Where it is.
        size: Its bytes.
        report: Gets the progress, where its server gives it only whole.

    Raises:
        DownloadUnavailable: it is not to be had.
    """
    remote = RemoteFile(session, url, size)
    try:
        if remote.seek(-1, io.SEEK_END) and not remote.read(1):
            raise DownloadUnavailable("is shorter than its index says")
    except RangesUnsupported:
        with tempfile.TemporaryFile() as file:
            downloads.fetch_file(session, url, report, file, size)
            file.seek(0)
            yield file
        return
    remote.seek(0)
    yield io.BufferedReader(remote, READ_AHEAD_BYTES)


@contextmanager
def open_wheel(file: BinaryIO | Path) -> Iterator[tuple[Read, dict[str, str]]]:
    """A reader of files of a wheel that it lists, by where they are installed, and of that list: path -> SHA-256.

    Raises:
        DownloadUnavailable: it is no wheel; its readers raise it, too.
    """
    with ExitStack() as stack:
        with _translate_errors("wheel"):
            wheel = stack.enter_context(zipfile.ZipFile(file))
            (name,) = [one for one in wheel.namelist() if one.count("/") == 1 and one.endswith(".dist-info/RECORD")]
            with wheel.open(name) as record:
                listed = parse_record_rows(record.read(LARGEST).decode(), name)
        paths = {installed: (path, digest) for path, digest in listed if (installed := installed_path(path, ""))}

        def read(path: str) -> bytes | None:
            if path not in paths:
                return None
            with _translate_errors("wheel"), wheel.open(paths[path][0]) as found:
                return _read_bounded(found)

        yield read, {path: digest for path, (_, digest) in paths.items()}


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    """Translate errors of the library about an archive's bytes: the archive is invalid."""
    try:
        yield
    except RangesUnsupported:
        raise DownloadUnavailable("has a server that gives parts of it, and then the whole") from None
    except KeyError:
        raise DownloadUnavailable(f"is not a readable {what}: it lacks a file that it lists") from None
    except (*UNREADABLE, EnvironmentRejected) as error:
        raise DownloadUnavailable(f"is not a readable {what}: {printable(str(error))}") from None


@contextmanager
def open_source_archive(path: Path, subtree: str) -> Iterator[Read]:
    """A reader of plain files of a source archive, by their paths below a folder inside its top folder.

    Raises:
        DownloadUnavailable: it is no such archive; its readers raise it, too.
    """
    with ExitStack() as stack:
        with _translate_errors("source archive"):
            archive = stack.enter_context(tarfile.open(path, "r:gz"))
            members = {one.name: one for one in archive}
        top = next(iter(members), "").partition("/")[0]

        def read(name: str) -> bytes | None:
            one = members.get("/".join(part for part in (top, subtree, name) if part))
            if one is None:
                return None
            found = archive.extractfile(one) if one.isreg() else None
            if found is None:
                raise PatchRefused("it is a link, or not a regular file")
            with _translate_errors("source archive"):
                return _read_bounded(found)

        yield read


def _read_bounded(file: IO[bytes]) -> bytes:
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise PatchRefused(f"it has more than {LARGEST:,} bytes")
    return content
