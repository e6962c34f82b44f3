"""Patches against what is locked, and against what is newer: the bytes that they are for are looked at."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pypi_simple import DistributionPackage

from cli.lock_resolver import downloads, range_requests, wheels
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.package_index import newest_source, parse_version
from cli.lock_resolver.resolver import LockResolver
from rigwright.engines import kind_of
from rigwright.engines.engine_interface import InstallingKind
from rigwright.engines.llama_cpp.catalog_keys import LlamaEngine
from rigwright.model.instance import PATCHED_TOOLKIT
from rigwright.model.rig import Rig
from rigwright.patches import new_files
from rigwright.patches.apply import PatchRefused, Read, outcome
from rigwright.patches.new_files import find_shadowing_paths
from rigwright.patches.patch import Patch, collect_digests, select_patches
from rigwright.problems import Problem
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact, Lock
from rigwright.supply.root_programs import CUDA
from roles.progress import progress


@dataclass(frozen=True)
class PatchedInput:
    """The patched part of a rig, and its sources."""

    what: str
    """The name of an engine or an environment, or the CUDA toolkit."""
    patches: tuple[Patch, ...]
    versions: Mapping[str, str]
    """The parts of it that can be patched -> the version that is locked."""
    rows: tuple[Artefact, ...]
    subtree: str = ""

    def locked_row(self, patch: Patch) -> Artefact | None:
        """The locked file that a patch changes files of; None where that is not known: of an image."""
        name = canonicalize_name(patch.keys.target_distribution)
        wheel = next((one for one in self.rows if one.kind == "wheel" and canonicalize_name(one.name) == name), None)
        return wheel or next((one for one in self.rows if one.kind == "source"), None)


def collect_patched(rigs: Iterable[Rig], rows: Mapping[str, Sequence[Artefact]]) -> list[PatchedInput]:
    """Everything that is patched, each once.

    Args:
        rigs: As they are while their lock is being made.
        rows: Input -> what it is locked as.
    """
    found: dict[str, PatchedInput] = {}
    shipped = set(Lock.load([ROOT / "locks"]).groups.get(CUDA, ()))
    for rig in rigs:
        of_wheels = [(env.name, env.patches, env.keys.packages) for env in rig.envs]
        for name, patches, group in (*of_wheels, (PATCHED_TOOLKIT, rig.toolkit.patches, CUDA)):
            packages = tuple(rows.get(group, ()))
            versions: dict[str, str] = {canonicalize_name(one.name): one.version for one in packages}
            # `rigwright test nvcc` proves that Rigwright's patches fit its toolkit: no index is asked
            if patches and not (set(packages) == shipped and all(map(_is_shipped, patches))):
                found[name] = PatchedInput(name, patches, versions, packages)
        for one in rig.instances:
            if isinstance(kind := kind_of(one), InstallingKind) and one.patches:
                made = tuple(row for name in kind.inputs(one.engine) for row in rows.get(name, ()))
                of = kind.patchable(one.engine, made) if made else {}
                subtree = one.engine.subtree if isinstance(one.engine, LlamaEngine) else ""
                found[one.engine_name] = PatchedInput(one.engine_name, one.patches, of, made, subtree)
    return list(found.values())


def _is_shipped(patch: Patch) -> bool:
    """Whether a patch is Rigwright's, not a folder next to an inventory."""
    return Path(patch.file).is_relative_to(ROOT / "patches")


class PatchValidator:
    """A validator of those bytes."""

    def __init__(self, resolver: LockResolver) -> None:
        self.resolver = resolver

    def find_problems(self, patched: Iterable[PatchedInput]) -> list[Problem]:
        """Every patch that is not for what is locked, or does not become what it says."""
        found = []
        for one in patched:
            names = {patch.name: patch for patch in one.patches}
            _, unfit = select_patches(names, names, one.versions, one.what)
            if unfit:
                found += [Problem(one.patches[0].file, one.what, line) for line in unfit]
                continue
            for patch in one.patches:
                found += [Problem(patch.file, one.what, line) for line in self._patch_problems(one, patch)]
        return found

    def _patch_problems(self, one: PatchedInput, patch: Patch) -> list[str]:
        row = one.locked_row(patch)
        if row is None:
            return []
        try:
            with self._open_locked(one, row) as (read, listed):
                outcome(patch.plan, read)
                brought = new_files.find_new_file_refusals(patch, read, listed if row.kind == "wheel" else None)
                return [*_shadowed_paths(patch, {*listed, *collect_digests(one.patches)}), *brought]
        except PatchRefused as error:
            return [f"{line} (in {row.file})" for line in str(error).splitlines()]
        except DownloadUnavailable as error:
            return [f"patch {patch} cannot be judged: {row.file} {error}"]
        return []

    @contextmanager
    def _open_locked(self, one: PatchedInput, row: Artefact) -> Iterator[tuple[Read, Mapping[str, str]]]:
        given = downloads.find_local_file(self.resolver.from_dir, row)
        if row.kind == "wheel":
            if given:
                with range_requests.open_wheel(given) as found:
                    yield found
                return
            package = next((p for p in self._index_wheels(row) if p.filename == row.file), None)
            if package is None:
                raise DownloadUnavailable("is no longer on the index")
            with self._open_wheel(package, row.size) as found:
                yield found
            return
        with tempfile.TemporaryDirectory() as folder:
            path = given or self._fetch_source(row, Path(folder) / "source")
            with range_requests.open_source_archive(path, one.subtree) as read:
                yield read, {}

    def _index_wheels(self, row: Artefact) -> list[DistributionPackage]:
        return self.resolver.index.version_wheels(row.name, row.version)

    @contextmanager
    def _open_wheel(self, package: DistributionPackage, size: int) -> Iterator[tuple[Read, dict[str, str]]]:
        with progress.task("lock", f"reading {package.filename}") as task:

            def report(done: int, total: int) -> None:
                task.report_done(done, total, "bytes")

            with (
                range_requests.open_remote(self.resolver.session, package.url, size, report) as file,
                range_requests.open_wheel(file) as found,
            ):
                yield found

    def _fetch_source(self, row: Artefact, path: Path) -> Path:
        # by what each is called: the index's own addresses can hold a password
        urls = {url: url for url in self.resolver.addresses(row)}
        missing = []
        for source in row.sources:
            if source.startswith("index:"):
                try:
                    found = self.resolver.index.source_distribution(source.removeprefix("index:"), row.version)
                except DownloadUnavailable as error:
                    missing.append(str(error))
                else:
                    urls["the index"] = found.url
        return downloads.fetch_locked_file(self.resolver.session, row, urls, path, "patched", missing)

    def collect_newer(self, patched: Iterable[PatchedInput]) -> tuple[list[str], list[str]]:
        """The effects of newer versions on patches, a line each, and parts that could not be looked at."""
        moved, unseen = [], []
        for one in patched:
            for patch in one.patches:
                row = one.locked_row(patch)
                try:
                    line = self._describe_newer(patch, row) if row else ""
                except (PatchRefused, DownloadUnavailable) as error:
                    unseen.append(f"patch {patch}: {error}")
                else:
                    moved += [f"patch {patch} of {one.what}: {line}"] if line else []
        return moved, unseen

    def _describe_newer(self, patch: Patch, row: Artefact) -> str:
        if row.kind == "source":
            projects = [source.removeprefix("index:") for source in row.sources if source.startswith("index:")]
            newest = newest_source(self.resolver.index.project_page(projects[0]).packages) if projects else ""
            if not newest or Version(newest) <= Version(row.version):
                return ""
            return (
                _describe_inclusion(patch, newest)
                or f"{newest} is on the index; whether it needs it shows once it is locked"
            )
        package = self._newest_wheel(row)
        if package is None:
            return ""
        version = str(package.version)
        with self._open_wheel(package, self.resolver.index.file_content(package).size) as (read, listed):
            return (
                _describe_need(patch, version, read, listed)
                or _describe_inclusion(patch, version)
                or _describe_changed_target(patch, version, listed)
            )

    def _newest_wheel(self, row: Artefact) -> DistributionPackage | None:
        """The wheel of the newest version after the locked one, for the same Python."""
        there = [one for one in self.resolver.index.project_page(row.name).packages if one.package_type == "wheel"]
        later = {version for one in there if (version := parse_version(one)) and not one.is_yanked}
        for version in sorted((one for one in later if one > Version(row.version)), reverse=True):
            if not version.is_prerelease and row.python:
                of_it = [one for one in there if parse_version(one) == version]
                if best := wheels.best_wheel(of_it, row.python, None):
                    return best
        return None


def _shadowed_paths(patch: Patch, there: Iterable[str]) -> list[str]:
    """The files of a patch that never run, as Python imports another one in their place."""
    return [
        f"patch {patch}: {path} is never imported: {other} takes precedence"
        for path in patch.patched_digests
        for other in find_shadowing_paths(path, there)
    ]


def _describe_need(patch: Patch, version: str, read: Read, listed: Mapping[str, str]) -> str:
    """Why a version has no need of a patch, or still has one; empty where its bytes do not say."""
    targets = patch.keys.targets
    if all(listed.get(one.path) == one.after for one in targets):
        return f"{patch.keys.target_distribution} {version} contains it byte for byte: it can be dropped"
    if patch.keys.marker and (content := read(targets[0].path)) and patch.keys.marker.encode() in content:
        return f"{patch.keys.target_distribution} {version} has its marker in {targets[0].path}: it can be dropped"
    if all(listed.get(one.path) == one.before for one in targets):
        return (
            f"{patch.keys.target_distribution} {version} has the same files as before: it is still needed, and applies "
            "unchanged"
        )
    return ""


def _describe_inclusion(patch: Patch, version: str) -> str:
    """Its own head's statement about a version."""
    first = patch.keys.included_in
    with suppress(InvalidVersion):  # of what no index numbers
        if first and Version(version) >= Version(first):
            return (
                f"its header says that {patch.keys.target_distribution} {first} and newer contain it, such as {version}"
            )
    return ""


def _describe_changed_target(patch: Patch, version: str, listed: Mapping[str, str]) -> str:
    other = next(one.path for one in patch.keys.targets if listed.get(one.path) != one.before)
    found = "another" if other in listed else "no"
    return f"{patch.keys.target_distribution} {version} has {found} {other}: it must be reviewed"
