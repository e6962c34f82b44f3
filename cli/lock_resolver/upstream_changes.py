"""Changes upstream since the lock was written: packages, images and models."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from packaging.version import InvalidVersion, Version
from pypi_simple import DistributionPackage, ProjectStatus

from cli.lock_resolver import downloads, image_registry
from cli.lock_resolver.checkpoint_sources import ModelResolver, input_revision, select_files
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.lock_diff import describe_changes, format_amount
from cli.lock_resolver.lock_files import LockFolders, LockInput
from cli.lock_resolver.model_hub import HubFile, HubListing
from cli.lock_resolver.package_index import newest_source
from cli.lock_resolver.resolver import LockResolver
from rigwright.model.deb_package_groups import leading_numbers, leading_package, locked_version
from rigwright.model.lock_coverage import describe_mismatch
from rigwright.nvidia.cuda_toolkit import dotted_numbers
from rigwright.problems import format_value, printable
from rigwright.supply.input_schema import channel_of
from rigwright.supply.lock import Artefact


def describe_model_changes(models: ModelResolver, wanted: LockInput, rows: list[Artefact]) -> list[str]:
    """The differences of a repository from the lock, a line each.

    Args:
        models: The client of the hub.
        wanted: The input.
        rows: Its rows.

    Raises:
        DownloadUnavailable: the hub does not answer, or has no such repository.
    """
    if rows[0].repository != wanted.input.repository:
        return []  # the lock does not answer the input, and that is reported already
    commit, revision = rows[0].version, input_revision(wanted)
    now = models.read_listing(wanted)
    lines = _describe_terms(wanted.name, rows[0], now)
    if now.commit == commit:
        return lines + _describe_file_changes(_as_hub_files(rows), select_files(wanted, now.files))
    said = f"{wanted.name}: {wanted.input.repository} {revision} is {now.commit[:7]} now, locked is {commit[:7]}"
    try:
        # git's names of small files are in no lock: only the locked commit says them
        before = select_files(wanted, models.read_listing(wanted, commit).files)
    except DownloadUnavailable as error:
        if not error.gone:
            raise
        said += ", which no longer exists"
        before = _as_hub_files(rows)
    after = select_files(wanted, now.files)
    changes = _describe_file_changes(before, after)
    if changes:
        return [said, *changes, *lines]
    blobs = {one.path: one.blob for one in before}
    # without the locked commit, nothing tells a small file from another one of its size
    unsure = any(one.sha256 is None and blobs[one.path] is None for one in after)
    return [f"{said}, with {'files of the same names and sizes' if unsure else 'the same files'}", *lines]


def _describe_terms(name: str, row: Artefact, now: HubListing) -> list[str]:
    lines = []
    if row.licence != now.licence:
        lines.append(f"{name}: the licence is {now.licence or 'none'} now, locked is {row.licence or 'none'}")
    if bool(row.gated) != now.gated:
        lines.append(f"{name}: is {'gated' if now.gated else 'open to all'} now, when it was locked it was not")
    return lines


def _as_hub_files(rows: Iterable[Artefact]) -> list[HubFile]:
    return [HubFile(path=row.path, size=row.size, sha256=row.sha256) for row in rows]


def _describe_file_changes(old: Iterable[HubFile], new: Iterable[HubFile]) -> list[str]:
    before, after = {one.path: one for one in old}, {one.path: one for one in new}
    lines = []
    for path in sorted(before.keys() | after.keys()):
        one, other = before.get(path), after.get(path)
        if one is None and other is not None:
            lines.append(f"  + {path}  {format_amount(other.size or 0)}")
        elif other is None:
            lines.append(f"  - {path}")
        elif one is not None and one.differs_from(other):
            sizes = dict.fromkeys(format_amount(size or 0) for size in (one.size, other.size))
            lines.append(f"  ~ {path}  {' -> '.join(sizes)}")
    return [printable(line) for line in lines]


@dataclass
class UpstreamFindings:
    """The findings, a line each."""

    moved: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """The inputs that could not be looked at."""
    nowhere: list[str] = field(default_factory=list)
    """The inputs without an address to look at."""
    unhashed: list[str] = field(default_factory=list)
    """The files of the locked size, where the server has no SHA-256 to compare."""


def find_changes(resolver: LockResolver, folders: LockFolders) -> UpstreamFindings:
    """Compare what is locked with the catalogue and with what the index and mirrors have now; nothing is fetched."""
    found = UpstreamFindings()
    names = {(one.name, one.input.is_grouped) for one in folders.wanted}
    environments = {row.group for row in folders.all_rows if row.kind in ("wheel", "conda")}
    for key, grouped in sorted({(row.group or row.name, bool(row.group)) for row in folders.all_rows} - names):
        what = f"environment {key}" if grouped and key in environments else key
        found.moved.append(f"{what} is locked, but no longer an input of the catalogue")
    for wanted in folders.wanted:
        rows = folders.rows_of(wanted)
        wrong = describe_mismatch(wanted.input, rows)
        if wrong:
            found.moved.append(f"{wanted.name} {wrong}")
        if not rows:
            continue
        try:
            if wanted.input.kind == "wheel":
                _compare_environment(resolver, wanted, rows, found)
            elif wanted.input.kind == "conda":
                _compare_conda(resolver, wanted, rows, found)
            elif wanted.input.kind == "deb":
                _compare_packages(resolver, wanted, rows, found)
            elif wanted.input.kind == "image":
                found.moved += image_registry.describe_image_changes(resolver.registries, wanted, rows)
            elif wanted.input.repository:
                found.moved += describe_model_changes(resolver.models, wanted, rows)
            else:
                for row in rows:
                    _compare_file(resolver, row, found)
        except DownloadUnavailable as error:
            (found.moved if error.gone else found.unseen).append(f"{wanted.name}: {error}")
    return found


def _compare_environment(
    resolver: LockResolver, wanted: LockInput, rows: list[Artefact], found: UpstreamFindings
) -> None:
    for name in sorted({row.name for row in rows}):
        _check_project_status(resolver, name, f"{wanted.name}: {name}", found)
    for row in rows:
        _compare_index_file(row, resolver.index.version_wheels(row.name, row.version), found)
    newest = resolver.resolve_environment(wanted.name, wanted.input.model_copy(update={"as_of": None}), [])
    _newer_resolution(rows, newest, found)


def _compare_conda(resolver: LockResolver, wanted: LockInput, rows: list[Artefact], found: UpstreamFindings) -> None:
    there = resolver.conda.present_packages(wanted.name, wanted.input, rows)
    for row in rows:
        if row.sha256 not in there:
            found.moved.append(f"{row}: {row.file} is gone from channel {channel_of(row)}, or is another one")
    newest = resolver.conda.solve_input(wanted.name, wanted.input.model_copy(update={"as_of": None}))
    _newer_resolution(rows, newest, found)


def _newer_resolution(rows: list[Artefact], newest: list[Artefact], found: UpstreamFindings) -> None:
    """Say what a resolution of today has, of environments as of a day, too."""
    # another file of a locked version is no reason to move
    known = {_release_key(row) for row in rows}
    now = {_release_key(row) for row in newest}
    fresh = [row for row in newest if _release_key(row) not in known]
    dropped = [row for row in rows if _release_key(row) not in now]
    # that nothing new was judged yet is no news, nor is the day
    own, todays = (
        [row.model_copy(update={"as_of": None, "machine_code": None}) for row in one] for one in (dropped, fresh)
    )
    found.moved += [f"{line} (a newer resolution)" for line in describe_changes(own, todays)]


def _release_key(row: Artefact) -> tuple[str | None, ...]:
    return (row.name, row.version, row.build, row.marker)


def _check_project_status(resolver: LockResolver, project: str, what: str, found: UpstreamFindings) -> None:
    """Say what an index says of a project as a whole (PEP 792)."""
    page = resolver.index.project_page(project)
    if page.status not in (None, ProjectStatus.ACTIVE):
        why = f": {format_value(page.status_reason)}" if page.status_reason else ""
        found.moved.append(f"{what} is {page.status.value} on the index{why}")


def _compare_packages(resolver: LockResolver, wanted: LockInput, rows: list[Artefact], found: UpstreamFindings) -> None:
    version, contents = locked_version(wanted.name, rows), resolver.archive_resolver(wanted).read_contents(wanted)
    said = f"{wanted.name} {version}: {contents.place}"
    if lead := leading_package(wanted.name):
        there_are = contents.package_versions(lead)
        newer = [one for one in there_are if leading_numbers(one) > leading_numbers(version)]
    else:
        there_are, branch = contents.driver_versions, version.partition(".")[0]
        newer = [
            one for one in there_are if one.startswith(f"{branch}.") and dotted_numbers(one) > dotted_numbers(version)
        ]
    if newer:
        found.moved.append(f"{said} has {newer[-1]}")
    if version not in there_are:
        found.moved.append(f"{said} no longer has it")
        return
    there = {(one.name, one.version, one.sha256) for one in contents.packages}
    gone = [row for row in rows if row.kind == "deb" and (row.name, row.version, row.sha256) not in there]
    if gone:
        found.moved.append(f"{said} no longer has {len(gone)} of its packages as locked, {gone[0]} first")
    if any(row.kind == "key" and row.sha256 != hashlib.sha256(contents.key.encode()).hexdigest() for row in rows):
        found.moved.append(f"{said} has another file of its key")


def _compare_file(resolver: LockResolver, row: Artefact, found: UpstreamFindings) -> None:
    seen, failed = False, []
    for source in row.sources:
        if source.startswith("index:"):
            seen = True
            project = source.removeprefix("index:")
            packages = resolver.index.project_page(project).packages
            _check_project_status(resolver, project, str(row), found)
            _compare_index_file(row, packages, found)
            _compare_version(row, newest_source(packages), found)
            continue
        for url in resolver.addresses(row.model_copy(update={"sources": (source,)})):
            try:
                at = downloads.read_file_facts(resolver.session, url)
            except DownloadUnavailable as error:
                failed.append((f"{row}: {url} {error}", error.gone))
                continue
            seen = True
            _compare_content(row, at.size, at.sha256, url, found)
            if at.sha256 is None and at.size in (None, row.size):
                size = "size" if at.size is not None else "address"
                found.unhashed.append(f"{row}: only its {size} was compared, for {url} has no SHA-256")
    if not seen and not failed:
        found.nowhere.append(f"{row} has no address here: {', '.join(row.sources)}")
    if not seen:  # one address that has it is enough
        found.moved += [text for text, gone in failed if gone]
        found.unseen += [text for text, gone in failed if not gone]


def _compare_version(row: Artefact, newest: str, found: UpstreamFindings) -> None:
    try:
        if newest and Version(newest) > Version(row.version):
            found.moved.append(f"{row}: the index has {newest}")
    except InvalidVersion:
        found.moved.append(f"{row}: is not a version of the index, whose newest is {newest}")


def _compare_index_file(row: Artefact, packages: list[DistributionPackage], found: UpstreamFindings) -> None:
    there = next((one for one in packages if one.filename == row.file), None)
    if there is None:
        found.moved.append(f"{row}: {row.file} is no longer on the index")
        return
    if there.is_yanked:
        why = f": {there.yanked_reason}" if there.yanked_reason else ""
        found.moved.append(f"{row}: {row.file} was yanked from the index{why}")
    _compare_content(row, there.size, there.digests.get("sha256"), "the index", found)


def _compare_content(row: Artefact, size: int | None, sha256: str | None, where: str, found: UpstreamFindings) -> None:
    if size not in (None, row.size):
        found.moved.append(f"{row}: {row.file} has {size} bytes at {where}, locked are {row.size}")
    if sha256 not in (None, row.sha256):
        found.moved.append(f"{row}: {row.file} has another hash at {where}: {sha256}, locked is {row.sha256}")
