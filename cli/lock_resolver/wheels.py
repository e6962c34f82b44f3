"""Wheels: resolved environments, and the cards that their machine code is for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path

import requests
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from pydantic import TypeAdapter, ValidationError
from pypi_simple import DistributionPackage
from uv import find_uv_bin

from cli.lock_resolver import downloads
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.package_index import PackageIndex
from rigwright.host.supported_systems import SYSTEM_RELEASES
from rigwright.problems import format_count, format_value
from rigwright.supply.cuda_machine_code import UnreadableLibrary, find_targets
from rigwright.supply.lock import Artefact
from rigwright.validated_types import MachineCode
from roles.progress import progress
from roles.progress_task import ProgressTask

PYTHONS = tuple(sorted({one.python for one in SYSTEM_RELEASES.values()}))
# The oldest C library among their systems is Ubuntu 22.04's 2.35; manylinux begins with 2.5 (PEP 600).
GLIBC = range(35, 4, -1)
ALIASES = {17: "manylinux2014_x86_64", 12: "manylinux2010_x86_64", 5: "manylinux1_x86_64"}
HOST = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "sys_platform": "linux",
}


@dataclass(frozen=True)
class PinnedPackage:
    """One package of a closure."""

    name: str
    version: str
    marker: str | None
    hashes: frozenset[str]

    def __str__(self) -> str:
        return f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")


def resolve_closure(
    requirements: tuple[str, ...],
    preferred: list[PinnedPackage],
    index: str,
    python: str | None = None,
    as_of: str | None = None,
) -> list[PinnedPackage]:
    """The packages that requirements need; versions that are preferred stay where they can.

    Args:
        requirements: The Python packages that it is for.
        preferred: The earlier choice.
        index: Its address.
        python: The Python that it is for, on Linux x86_64 with the oldest C library of all hosts; without it, all
            platforms and Pythons at once.
        as_of: Only what was published before this day is looked at.

    Raises:
        DownloadUnavailable: they cannot be had together, or the index does not answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, made = Path(folder, "asked.in"), Path(folder, "made.txt")
        asked.write_text("\n".join(requirements) + "\n")
        made.write_text("".join(f"{pin}\n" for pin in preferred))
        command = [find_uv_bin(), "pip", "compile", f"--python-version={python or '3.10'}"]
        command += [f"--python-platform=x86_64-manylinux_2_{GLIBC[0]}"] if python else ["--universal"]
        command += [f"--exclude-newer={start_of_day(as_of).isoformat()}"] if as_of else []
        command += ["--generate-hashes", "--no-emit-index-url", "--no-header", "--no-annotate", "--quiet"]
        # nothing of a package is run here, and nothing but the index is asked
        command += ["--only-binary=:all:", "--no-config", "--no-python-downloads", "--system-certs"]
        command += [f"--python={sys.executable}", f"--output-file={made}", str(asked)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_uv_environment(index))
        if done.returncode:
            said = re.sub(r"[^ -~]+", " ", done.stderr).split()
            nothing = "No solution found" in done.stderr
            text = "has no versions that fit together" if nothing else "cannot be resolved"
            raise DownloadUnavailable(f"{text}; uv says: {' '.join(said)}", gone=nothing)
        return parse_requirements(made.read_text())


def _uv_environment(index: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("UV_") or name == "UV_CACHE_DIR"}
    # not as an option: an address can hold a password
    return kept | {"UV_DEFAULT_INDEX": index}


def parse_requirements(text: str) -> list[PinnedPackage]:
    """Read hashed requirements as pip takes them."""
    pins = []
    for logical in text.replace("\\\n", " ").splitlines():
        head, *hashes = re.split(r"\s+--hash=", logical)
        if not head.strip() or head.startswith("#"):
            continue
        requirement = Requirement(head.strip())
        (specifier,) = requirement.specifier
        marker = str(requirement.marker).replace('"', "'") if requirement.marker else None
        digests = frozenset(digest.strip().removeprefix("sha256:") for digest in hashes)
        pins.append(PinnedPackage(requirement.name, specifier.version, marker, digests))
    return pins


def marker_pythons(marker: str | None) -> list[tuple[int, int]]:
    """The hosts' Python versions that a marker holds for, in any of their patch releases."""
    if marker is None:
        return list(PYTHONS)
    return [version for version in PYTHONS if any(_marker_holds(marker, version, patch) for patch in (0, 99))]


def _marker_holds(marker: str, version: tuple[int, int], patch: int) -> bool:
    short = ".".join(map(str, version))
    full = f"{short}.{patch}"
    host = HOST | {"python_version": short, "python_full_version": full, "implementation_version": full}
    return Marker(marker).evaluate(host)


def start_of_day(day: str) -> datetime:
    """When a day began, UTC."""
    return datetime.fromisoformat(f"{day}T00:00:00+00:00")


@cache
def _supported_tags(version: tuple[int, int]) -> dict[Tag, int]:
    """The wheels that a host with this Python installs -> their places in the order in which pip and uv prefer them."""
    platforms = [name for minor in GLIBC for name in (f"manylinux_2_{minor}_x86_64", ALIASES.get(minor)) if name]
    interpreter = f"cp{version[0]}{version[1]}"
    own = cpython_tags(version, [interpreter], platforms)
    return {tag: place for place, tag in enumerate([*own, *compatible_tags(version, interpreter, platforms)])}


def is_installable(file: str, version: tuple[int, int]) -> bool:
    """Whether a wheel can be installed on a host with this Python."""
    try:
        return not parse_wheel_filename(file)[3].isdisjoint(_supported_tags(version))
    except InvalidWheelFilename:
        return False


def best_wheel(files: Iterable[DistributionPackage], python: str, as_of: str | None) -> DistributionPackage | None:
    """The one wheel of a version that pip and uv install: not a withdrawn one, of the best tag, of the highest build.

    Args:
        files: The version's wheels.
        python: The Python that it is for, such as 3.10.20.
        as_of: Only what was published before this day counts.
    """
    major, minor, _ = python.split(".")
    version = (int(major), int(minor))
    fitting = [
        one
        for one in files
        if is_installable(one.filename, version)
        and (not as_of or (one.upload_time and one.upload_time < start_of_day(as_of)))
    ]

    def rank(one: DistributionPackage) -> tuple[bool, int, tuple[int, str] | tuple[()]]:
        _, _, build, tags = parse_wheel_filename(one.filename)
        return (
            not one.is_yanked,
            -min(_supported_tags(version).get(tag, len(_supported_tags(version))) for tag in tags),
            build,
        )

    return max(fitting, key=rank, default=None)


LIBRARY = re.compile(r".*\.so(?:\.[0-9]+)*")
LARGEST = 8 << 30  # bytes, of one library; the largest of vLLM's environment has 1 GB


@dataclass
class WheelInspector:
    """The program that judges wheels."""

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
            with progress.task(
                "lock", f"reading machine code of {format_count(len(unknown), 'wheel')} of {group}"
            ) as task:
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
