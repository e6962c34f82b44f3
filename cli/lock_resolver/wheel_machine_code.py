"""Machine code of wheels: fetched once, read, and written down in their rows."""

from __future__ import annotations

import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import requests
from packaging.utils import parse_wheel_filename
from pydantic import TypeAdapter, ValidationError

from cli.lock_resolver import downloads
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.package_index import PackageIndex
from rigwright.problems import format_value
from rigwright.supply.lock import Artefact
from rigwright.supply.machine_code import UnreadableLibrary, find_targets
from rigwright.types import MachineCode
from roles.progress import ProgressTask, progress

LIBRARY = re.compile(r".*\.so(?:\.[0-9]+)*")
LARGEST = 8 << 30  # bytes, of one library; the largest of vLLM's environment has 1 GB


@dataclass
class WheelInspector:
    """What judges wheels."""

    session: requests.Session
    index: PackageIndex
    from_dir: Path | None = None
    """A folder with wheels that need not be fetched."""
    known: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """SHA-256 of a wheel -> what was found in it."""

    def add_known_rows(self, rows: Iterable[Artefact]) -> None:
        """Take over what locked rows say."""
        self.known |= {row.sha256: row.machine_code for row in rows if row.machine_code is not None}

    def inspect_rows(self, group: str, rows: list[Artefact]) -> list[Artefact]:
        """Rows with what the machine code of each wheel is for; of wheels for no platform, without.

        Raises:
            DownloadUnavailable: a wheel is not to be had, is another one, or cannot be read.
        """
        wanted = [row for row in rows if _has_libraries(row)]
        unknown = [row for row in wanted if row.sha256 not in self.known]
        total, done = sum(row.size for row in unknown), 0
        if unknown:
            with progress.task("lock", f"reading machine code of {len(unknown)} wheels of {group}") as task:
                for row in unknown:
                    self.known[row.sha256] = self._read_targets(row, task, done, total)
                    done += row.size
        found = {row.sha256: self.known[row.sha256] for row in wanted}
        return [row.model_copy(update={"machine_code": found.get(row.sha256)}) for row in rows]

    def _read_targets(self, row: Artefact, task: ProgressTask, done: int, total: int) -> tuple[str, ...]:
        with tempfile.TemporaryDirectory() as folder:
            path = downloads.find_local_file(self.from_dir, row) or self._fetch_wheel(
                row, Path(folder), lambda at, _: task.report_done(done + at, total, "bytes")
            )
            try:
                return machine_code(path)
            except UnreadableLibrary as error:
                raise DownloadUnavailable(f"{row.file} cannot be judged: {error}") from None

    def _fetch_wheel(self, row: Artefact, folder: Path, report: downloads.ProgressReport) -> Path:
        package = next(one for one in self.index.version_wheels(row.name, row.version) if one.filename == row.file)
        path = folder / row.file
        try:
            with path.open("wb") as into:
                got = downloads.fetch_file(self.session, package.url, report, into)
        except DownloadUnavailable as error:
            raise DownloadUnavailable(f"{row.file}: its server {error}", error.gone) from None
        if got.sha256 != row.sha256:
            raise DownloadUnavailable(f"{row.file}: its bytes do not match the index's hash")
        return path


def _has_libraries(row: Artefact) -> bool:
    """Whether a wheel has shared libraries: one that is for any platform has none (PEP 425)."""
    return any(tag.platform != "any" for tag in parse_wheel_filename(row.file)[3])


def machine_code(wheel: Path) -> tuple[str, ...]:
    """The files of a wheel with machine code for cards and what that is for, as rows have it.

    Raises:
        UnreadableLibrary: it is no wheel, or a library in it is broken.
    """
    found = []
    try:
        with zipfile.ZipFile(wheel) as archive:
            for info in sorted(archive.infolist(), key=lambda info: info.filename):
                if LIBRARY.fullmatch(info.filename) and (made := _library_targets(archive, info)):
                    found.append(TypeAdapter(MachineCode).validate_python(f"{info.filename} {' '.join(made)}"))
    except ValidationError:
        raise UnreadableLibrary(f"{format_value(info.filename)} is the name of a library with machine code") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise UnreadableLibrary(f"it is not a wheel: {error}") from None
    return tuple(found)


def _library_targets(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[str, ...]:
    if info.file_size > LARGEST:
        raise UnreadableLibrary(f"{format_value(info.filename)} has {info.file_size} bytes")
    with archive.open(info) as packed, tempfile.TemporaryFile() as library:
        while part := packed.read(downloads.CHUNK_BYTES):
            library.write(part)
        try:
            return find_targets(library)
        except UnreadableLibrary as error:
            raise UnreadableLibrary(f"{format_value(info.filename)}: {error}") from None
