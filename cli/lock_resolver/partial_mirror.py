"""A part of an archive, as it was: some of its packages, and all that its distribution has signed to verify them by."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from pydantic import TypeAdapter, ValidationError

from cli.lock_resolver.downloads import DownloadUnavailable, FileContent
from cli.lock_resolver.isolated_apt import TARGET, IsolatedApt, run_program
from rigwright.supply.apt_archives import APART, PACKAGES, SIGNED, ArchiveSuite, Release, parse_release
from rigwright.types import RelativePath

PART = ".part"
"""Ends the names of files that every bundle has, until all else is there: an earlier bundle stays whole."""
# apt keeps lists as they came, for their hashes are what is signed
VERBATIM = {
    "Acquire::Languages": "none",
    "Acquire::IndexTargets::deb::Packages::KeepCompressed": "true",
    "Acquire::IndexTargets::deb::Packages::KeepCompressedAs": "xz gz bz2 lzma zst lz4 .",
}
HELPER = "/usr/lib/apt/apt-helper"


@dataclass(frozen=True)
class PartialMirror:
    """What was put into the folder of a system's archives."""

    files: dict[str, FileContent]
    """By path below it."""
    suites: tuple[ArchiveSuite, ...]
    staged: tuple[str, ...]
    """The paths that have PART behind them yet."""


@dataclass(frozen=True)
class _PackageList:
    """One list of packages that an apt has read."""

    base: str
    """Its archive's address, with a slash behind it."""
    suite: str
    name: str
    """Its path below the suite's folder, without how it is compressed."""
    file: Path
    """Where apt has it."""

    def sibling_path(self, name: str) -> Path:
        """Another file of the suite's, where apt has it: slashes are underscores there."""
        end = self.file.name.rindex(self.name.replace("/", "_"))
        return self.file.with_name(f"{self.file.name[:end]}{name}")


def build_mirror(apt: IsolatedApt, system: str, addresses: list[list[str]], folder: Path) -> PartialMirror:
    """Lay out what an apt has fetched as its archives have it.

    Args:
        apt: It has read its sources with `VERBATIM`, and verified them.
        system: Whose packages they are.
        addresses: Of each package that it has fetched the quoted address, the file's name at apt, and more.
        folder: Where they go: a folder an archive.

    Raises:
        DownloadUnavailable: an archive does not say in what it signs what there is.
    """
    lists = _collect_lists(apt)
    bases = list(dict.fromkeys(one.base for one in lists))
    files: dict[str, FileContent] = {}
    staged: list[str] = []

    def put(path: str, content: bytes, end: str = "") -> None:
        _remove_metadata(path)
        place = folder / f"{path}{end}"
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_name(f"{place.name}.new")
        new.write_bytes(content)
        new.replace(place)
        files[path] = FileContent(hashlib.sha256(content).hexdigest(), len(content))
        staged.extend([path] if end else [])

    suites = []
    by_suite: dict[tuple[str, str], list[_PackageList]] = defaultdict(list)
    for one in lists:
        by_suite[one.base, one.suite].append(one)
    for (base, suite), its in by_suite.items():
        number = bases.index(base)
        place = f"{number}/dists/{suite}"
        signed = [name for way in (SIGNED, APART) for name in way if its[0].sibling_path(name).exists()]
        for name in signed:
            put(f"{place}/{name}", its[0].sibling_path(name).read_bytes(), PART)
        says = _parse_release(base, its[0].sibling_path(signed[0]))
        for one in its:
            name, content = _signed_list(one, says)
            put(f"{place}/{name}", content, PART)
        components = tuple(dict.fromkeys(one.name.partition("/")[0] for one in its))
        suites.append(
            ArchiveSuite(
                system=system,
                archive=number,
                suite=suite,
                components=components,
                signed=says.signed,
                valid_until=says.valid_until,
            )
        )
    for quoted, name, *_ in addresses:
        address = quoted.strip("'")
        base = next(base for base in bases if address.startswith(base))
        path = unquote(address.removeprefix(base))
        put(f"{bases.index(base)}/{path}", (apt.work / "archives" / name).read_bytes())
    return PartialMirror(files, tuple(suites), tuple(staged))


def _collect_lists(apt: IsolatedApt) -> list[_PackageList]:
    wanted = "$(REPO_URI) $(RELEASE) $(METAKEY) $(FILENAME)"
    listed = apt.run_apt_get("indextargets", "--format", wanted, "Created-By: Packages")
    rows = [line.split(" ", 3) for line in listed.splitlines() if TARGET.fullmatch(line)]
    found = [_PackageList(base, suite.rstrip("/"), name, Path(file)) for base, suite, name, file in rows]
    return [one for one in found if one.file.exists()]  # apt keeps no empty ones


def _parse_release(base: str, file: Path) -> Release:
    try:
        return parse_release(file.read_text("utf-8"))
    except ValueError as error:
        raise DownloadUnavailable(f"{base}: its {file.name.rpartition('_')[2]} {error}") from None


def _signed_list(one: _PackageList, says: Release) -> tuple[str, bytes]:
    """A list in a form that is signed: as it came, or without its compression."""
    for content in (one.file.read_bytes, lambda: run_program([HELPER, "cat-file", str(one.file)]).encode()):
        found = content()
        if path := says.path(one.name, hashlib.sha256(found).hexdigest(), len(found)):
            return path, found
    raise DownloadUnavailable(f"{one.base} {one.suite}: {one.name} is in no form there that is signed")


def _remove_metadata(path: str) -> None:
    try:
        TypeAdapter(RelativePath).validate_python(path)
    except ValidationError:
        raise DownloadUnavailable(f"{PACKAGES}: {path} cannot be a file's name in a bundle") from None
