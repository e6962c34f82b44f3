"""One input after another into the rows of a lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import requests
from pypi_simple import DistributionPackage

from cli.lock_resolver import downloads, wheels
from cli.lock_resolver.checkpoint_inspection import HeaderBuffer, parse_header
from cli.lock_resolver.checkpoint_sources import (
    ModelResolver,
    find_local_folder,
    folder_name,
    local_rows,
    read_first_bytes,
)
from cli.lock_resolver.conda import CondaResolver
from cli.lock_resolver.downloads import DownloadUnavailable, FileContent
from cli.lock_resolver.image_registry import ImageResolver
from cli.lock_resolver.lock_files import LockFolders, LockInput
from cli.lock_resolver.package_index import PackageIndex
from cli.lock_resolver.third_party_packages import (
    AddressLookup,
    ArchiveResolver,
    ContainerPackageResolver,
    DriverResolver,
)
from cli.lock_resolver.wheels import PinnedPackage, WheelInspector
from rigwright.model.lock_coverage import describe_mismatch
from rigwright.model.nvidia_tables import DRIVER
from rigwright.problems import Invalid, Problem
from rigwright.supply.lock import Artefact
from rigwright.supply.lock_inputs import Input
from rigwright.weights.safetensors import BrokenSafetensors
from roles.progress import progress

MAX_WORKERS = 8  # projects that the index is asked for at once


@dataclass(frozen=True)
class ResolvedInputs:
    """The result."""

    rows: dict[str, list[Artefact]]
    """Input -> its rows."""
    keys: dict[str, str]
    """Group of packages -> the armoured key of their archive, where that has one."""


@dataclass
class LockResolver:
    """The resolvers of inputs, and their settings."""

    session: requests.Session
    index: PackageIndex
    addresses: AddressLookup
    drivers: DriverResolver
    packaged: ContainerPackageResolver
    models: ModelResolver
    conda: CondaResolver
    judge: WheelInspector
    registries: ImageResolver
    from_dir: Path | None = None
    refresh: bool = False

    def resolve_inputs(self, folders: LockFolders) -> ResolvedInputs:
        """The rows of every input.

        Raises:
            Invalid: with every input that could not be resolved.
        """
        rows: dict[str, list[Artefact]] = {}
        keys: dict[str, str] = {}
        problems: list[Problem] = []
        self.judge.add_known_rows(folders.all_rows)
        for wanted in folders.wanted:
            try:
                if wanted.input.kind == "deb":
                    rows[wanted.name], keys[wanted.name] = self._resolve_packages(wanted, folders)
                else:
                    rows[wanted.name] = self.resolve_rows(wanted, folders)
            except DownloadUnavailable as error:
                problems.append(wanted.as_problem(str(error)))
        if problems:
            raise Invalid(problems)
        return ResolvedInputs(rows, keys)

    def archive_resolver(self, wanted: LockInput) -> ArchiveResolver:
        """A resolver of the packages of an input."""
        return self.drivers if wanted.name.startswith(DRIVER) else self.packaged

    def _resolve_packages(self, wanted: LockInput, folders: LockFolders) -> tuple[list[Artefact], str]:
        """The rows of packages, and their archive's key."""
        locked = folders.rows_of(wanted)
        whole = wanted.name in folders.keys or not any(row.kind == "key" for row in locked)
        if whole and not self.refresh and not describe_mismatch(wanted.input, locked):
            return locked, folders.keys.get(wanted.name, "")
        try:
            return self.archive_resolver(wanted).resolve_rows(wanted)
        except DownloadUnavailable as error:
            raise DownloadUnavailable(f"cannot be locked: {error}", gone=error.gone) from None

    def resolve_rows(self, wanted: LockInput, folders: LockFolders) -> list[Artefact]:
        """The rows of one input that is no packages.

        Args:
            wanted: The input.
            folders: Its rows so far, and what else is asked for.

        Raises:
            DownloadUnavailable: it is not to be had; the text says why and what to do.
        """
        locked = folders.rows_of(wanted)
        if wanted.input.kind == "wheel":
            found = self.resolve_environment(
                wanted.name, wanted.input, collect_pins(self._preferred_rows(wanted, locked))
            )
            return self.judge.inspect_rows(wanted.name, found) if wanted.input.python else found
        if wanted.input.kind == "conda":
            if locked and not self.refresh and not describe_mismatch(wanted.input, locked):
                return locked
            _refuse_future(wanted.input.as_of)
            return self.conda.solve_input(wanted.name, wanted.input, self._preferred_rows(wanted, locked))
        if wanted.input.kind == "image":
            return self._resolve_image(wanted, locked)
        if wanted.input.is_grouped:
            return self._resolve_model(wanted, folders)
        row = wanted.input.provisional(wanted.name)
        given = self.from_dir / row.file if self.from_dir and wanted.input.file_name else None
        if given and given.is_file():
            with progress.task("lock", f"hashing {given}") as task:
                content = downloads.hash_file(given, lambda done, total: task.report_done(done, total, "bytes"))
            return [_with_content(row, content, lambda count: read_first_bytes(given, count))]
        if locked and not self.refresh and not describe_mismatch(wanted.input, locked):
            return locked
        return [self._resolve_sources(wanted, row)]

    def _preferred_rows(self, wanted: LockInput, locked: list[Artefact]) -> list[Artefact]:
        """The locked packages that stay where they can: none where another day was requested."""
        return [] if self.refresh else [row for row in locked if row.as_of == wanted.input.as_of]

    def _resolve_image(self, wanted: LockInput, locked: list[Artefact]) -> list[Artefact]:
        """The rows of an image."""
        if locked and not self.refresh and not describe_mismatch(wanted.input, locked):
            return locked
        try:
            return self.registries.resolve_rows(wanted)
        except DownloadUnavailable as error:
            raise DownloadUnavailable(f"cannot be locked: {error}", gone=error.gone) from None

    def _resolve_model(self, wanted: LockInput, folders: LockFolders) -> list[Artefact]:
        """The rows of weights of many files."""
        locked = folders.rows_of(wanted)
        as_it_is = bool(locked) and not describe_mismatch(wanted.input, locked)
        if as_it_is and not self.refresh and (wanted.input.repository or not self.from_dir):
            return locked
        try:
            if wanted.input.repository:
                return self.models.resolve_rows(wanted)
            if self.from_dir is None:
                if as_it_is:  # nothing but the operator's own files could say it anew
                    return locked
                raise DownloadUnavailable("these are your own files: provide their folder with --from-dir")
            if folder := find_local_folder(wanted.input, self.from_dir):
                return local_rows(wanted, folder)
            others = [
                one for one in folders.wanted if one.input.is_many_files and not one.input.repository and one != wanted
            ]
            if as_it_is and (others or not self.refresh):
                return locked
            if any(
                describe_mismatch(one.input, folders.rows_of(one)) or find_local_folder(one.input, self.from_dir)
                for one in others
            ):
                raise DownloadUnavailable(
                    f"they are your own files, and {self.from_dir} may be another input's: give a folder with "
                    f"{folder_name(wanted.input)} in it, a link to it will do"
                )
            return local_rows(wanted, self.from_dir)
        except DownloadUnavailable as error:
            raise DownloadUnavailable(f"cannot be locked: {error}", gone=error.gone) from None

    def _resolve_sources(self, wanted: LockInput, row: Artefact) -> Artefact:
        """The row from its first source that works."""
        failed = []
        for source in row.sources:
            try:
                if source.startswith("index:"):
                    return self._resolve_from_index(wanted, row, source.removeprefix("index:"))
                urls = self.addresses(row.model_copy(update={"sources": (source,)}))
                if not urls:
                    failed.append(f"{source} has no address: the inventory has no such mirror")
            except DownloadUnavailable as error:
                failed.append(str(error))
                continue
            for url in urls:
                try:
                    kept = HeaderBuffer()
                    return _with_content(row, self._fetch_content(row, url, kept), kept.first_bytes)
                except DownloadUnavailable as error:
                    failed.append(f"{url} {error}")
        raise DownloadUnavailable(
            f"cannot be locked: {'; '.join(failed)}: correct its sources or give it with --from-dir"
        )

    def _fetch_content(self, row: Artefact, url: str, kept: HeaderBuffer) -> FileContent:
        with progress.task("lock", f"fetching {row.file}") as task:
            task.start_step(f"fetching {row.file} to hash it")
            return downloads.fetch_file(
                self.session, url, lambda done, total: task.report_done(done, total, "bytes"), kept
            )

    def _resolve_from_index(self, wanted: LockInput, row: Artefact, project: str) -> Artefact:
        package = self.index.source_distribution(project, row.version)
        if wanted.input.file_name not in (None, package.filename):
            raise DownloadUnavailable(f"the index calls the file {package.filename}, not {wanted.input.file_name}")
        return _with_content(row.model_copy(update={"file": package.filename}), self.index.file_content(package))

    def resolve_environment(self, group: str, wanted: Input, preferred: list[PinnedPackage]) -> list[Artefact]:
        """The wheels of an environment: one a package for one Python, else all that hosts of any distribution need.

        Raises:
            DownloadUnavailable: it has no solution, or a package has no wheel for one of them.
        """
        _refuse_future(wanted.as_of)
        with progress.task("lock", f"resolving {group}"), ThreadPoolExecutor(MAX_WORKERS) as pool:
            found = wheels.resolve_closure(wanted.requirements, preferred, self.index.url, wanted.python, wanted.as_of)
            return [row for rows in pool.map(lambda pin: self._wheel_rows(group, wanted, pin), found) for row in rows]

    def _wheel_rows(self, group: str, wanted: Input, pin: PinnedPackage) -> list[Artefact]:
        rows = []
        for package in self._fitting_wheels(wanted, pin):
            content = self.index.file_content(package)
            if content.sha256 not in pin.hashes:
                raise DownloadUnavailable(f"{package.filename} was changed on the index a moment ago: try again")
            rows.append(
                Artefact(
                    kind="wheel",
                    name=pin.name,
                    version=pin.version,
                    group=group,
                    marker=pin.marker,
                    python=wanted.python,
                    as_of=wanted.as_of,
                    file=package.filename,
                    sha256=content.sha256,
                    size=content.size,
                    sources=(f"index:{pin.name}",),
                )
            )
        return rows

    def _fitting_wheels(self, wanted: Input, pin: PinnedPackage) -> list[DistributionPackage]:
        """The wheels of a package that hosts need."""
        found = self.index.version_wheels(pin.name, pin.version)
        if wanted.python:
            best = wheels.best_wheel(found, wanted.python, wanted.as_of)
            without = [] if best else [wanted.python]
            fitting = [best] if best else []
        else:
            hosts = wheels.marker_pythons(pin.marker)
            lacking = [host for host in hosts if not any(wheels.is_installable(one.filename, host) for one in found)]
            without = [f"{major}.{minor}" for major, minor in lacking]
            fitting = [one for one in found if any(wheels.is_installable(one.filename, host) for host in hosts)]
        if without:
            names = ", ".join(without)
            raise DownloadUnavailable(
                f"{pin} has no wheel for Linux on x86_64 with Python {names}: ask for another version"
            )
        return fitting


def _refuse_future(as_of: str | None) -> None:
    if as_of and wheels.start_of_day(as_of) > datetime.now(timezone.utc):
        raise DownloadUnavailable(f"as_of {as_of} is refused: that day is in the future")


def _with_content(row: Artefact, content: FileContent, beginning: Callable[[int], bytes] | None = None) -> Artefact:
    """A row with what a file is.

    Args:
        row: Without it.
        content: The file.
        beginning: Its first bytes, by how many.

    Raises:
        DownloadUnavailable: it is no weights, though its name says so.
    """
    update: dict[str, object] = {"sha256": content.sha256, "size": content.size}
    if beginning and row.kind == "weight":
        try:
            update["header"] = parse_header(row.file, content.size, beginning)
        except BrokenSafetensors as error:
            raise DownloadUnavailable(f"{row.file} {error}") from None
    return row.model_copy(update=update)


def collect_pins(rows: list[Artefact]) -> list[PinnedPackage]:
    """The packages of an environment's rows."""
    found: dict[tuple[str, str, str | None], set[str]] = {}
    for row in rows:
        found.setdefault((row.name, row.version, row.marker), set()).add(row.sha256)
    return [PinnedPackage(*key, frozenset(hashes)) for key, hashes in found.items()]
