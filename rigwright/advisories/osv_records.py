"""Exports of OSV records: a zip, a folder, a file with a record a line, or one record. None of it is trusted."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from rigwright.advisories.versions import Event, Scheme, VersionRange
from rigwright.local_files import read_content, refuse_special_file
from rigwright.problems import printable

# Bytes of one record. The largest of PyPI and Debian have some 100 kB; of Ubuntu's kernel a few MB.
LARGEST_RECORD = 8 << 20
# Bytes of all records: PyPI, Debian and Ubuntu together have less than 1 GiB unpacked.
LARGEST_EXPORT = 2 << 30
# Records of one export.
MOST_RECORDS = 1_000_000
# Records that name an ecosystem in its export. PyPI's own advisories alone were 2,662 in October 2024; Debian's and
# Ubuntu's have one a CVE. Hand-picked records, and those of another ecosystem that name this one too, are fewer.
EXPORT_FROM = 1000
# Of one record: packages, ranges, ends of ranges and names.
MOST_PARTS = 20_000
# Characters of texts that are displayed.
LONGEST_TEXT = 300
# Unreadable records that are named; the others are counted.
FEW = 5
# Unreadable records of an export that is still used.
MOST_UNREADABLE = 10_000
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{2,99}")
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T[0-9:.]{5,20}(?:Z|[+-][0-9:]{4,6})?|([0-9]{4}-[0-9]{2}-[0-9]{2})")
_ENDS = ("introduced", "fixed", "last_affected", "limit")
_REPOSITORY = re.compile(r"(?:https?://)?(?:www\.)?([a-z0-9.-]+/[A-Za-z0-9_./-]+?)(?:\.git)?/?")


@dataclass(frozen=True)
class AffectedPackage:
    """One package that a record names, with its affected versions."""

    ecosystem: str
    """As OSV spells it, such as `PyPI` or `Debian:12`; `GIT` for a repository."""
    name: str
    """As an index normalises it; of a repository its address without scheme."""
    ranges: tuple[VersionRange, ...] = ()
    listed: tuple[str, ...] = ()
    urgency: str = ""
    """The distribution's own word, such as `unimportant`."""


@dataclass(frozen=True)
class OsvRecord:
    """One advisory."""

    id: str
    aliases: tuple[str, ...]
    summary: str
    source: str
    affected: tuple[AffectedPackage, ...]


@dataclass
class AdvisoryExport:
    """The contents of one file of advisories: the records about the packages in question, and facts about the rest."""

    origin: str
    """Its path."""
    as_of: date | None = None
    """The newest date in it; None where it has none."""
    records: list[OsvRecord] = field(default_factory=list)
    ecosystems: Counter[str] = field(default_factory=Counter)
    """Records that name each, whatever their package."""
    total: int = 0
    """Records that were read."""
    unreadable: list[str] = field(default_factory=list)
    """Name of each unreadable record, and why."""

    @property
    def covered_ecosystems(self) -> frozenset[str]:
        """Ecosystems whose export this is: of fewer than EXPORT_FROM records nothing says that there are no others."""
        return frozenset(name for name, count in self.ecosystems.items() if count >= EXPORT_FROM)


class UnreadableExport(Exception):
    """A file of advisories cannot be read at all; the text says why."""


def scheme_of(ecosystem: str) -> Scheme:
    """The order of an ecosystem's versions."""
    base = ecosystem.partition(":")[0]
    known: dict[str, Scheme] = {"PyPI": "pep440", "Debian": "dpkg", "Ubuntu": "dpkg", "GIT": "build"}
    return known.get(base, "opaque")


def normalize_name(ecosystem: str, name: str) -> str:
    """A package's name as its ecosystem compares it."""
    return str(canonicalize_name(name)) if ecosystem == "PyPI" else name


def repository_name(address: str) -> str:
    """A repository's address without scheme and suffix, in lower case; empty for another text."""
    found = _REPOSITORY.fullmatch(address.strip()) if len(address) <= LONGEST_TEXT else None
    return found[1].lower() if found else ""


def parse_record(data: Any) -> OsvRecord:
    """One record. Fields of an unknown form are left out one by one; of a range, that makes its answer unknown.

    Raises:
        ValueError: it is no record: no object, without a valid id, or without a list of what it affects.
    """
    if not isinstance(data, dict):
        raise ValueError("is no JSON object")
    identifier = data.get("id")
    if not isinstance(identifier, str) or not _ID.fullmatch(identifier):
        raise ValueError("has no valid id")
    affected = data.get("affected", [])
    if not isinstance(affected, list) or len(affected) > MOST_PARTS:
        raise ValueError("has no list of affected packages of a likely length")
    aliases = tuple(
        one
        for key in ("aliases", "upstream")
        for one in _list(data.get(key))
        if isinstance(one, str) and _ID.fullmatch(one)
    )
    links = (one.get("url") for one in _list(data.get("references")) if isinstance(one, dict))
    source = next((_text(one) for one in links if isinstance(one, str) and one.startswith("https://")), "")
    packages = tuple(package for one in affected for package in _packages(one))
    return OsvRecord(identifier, aliases, _text(data.get("summary")), source, packages)


def _packages(one: Any) -> Iterator[AffectedPackage]:
    if not isinstance(one, dict):
        return
    listed = tuple(text for text in _list(one.get("versions")) if isinstance(text, str))
    found = _list(one.get("ranges"))
    specific = one.get("ecosystem_specific")
    urgency = _text(specific.get("urgency")) if isinstance(specific, dict) else ""
    package = one.get("package")
    if isinstance(package, dict) and isinstance(package.get("ecosystem"), str) and isinstance(package.get("name"), str):
        ecosystem = _text(package["ecosystem"])
        ranges = tuple(_range(each) for each in found if not _is_git(each))
        # commits alone: without the repository's history no version can be placed among them
        if found and not ranges and not listed:
            ranges = (VersionRange((), readable=False),)
        # a list or ranges of an odd form must not look like "every version" or "no version"
        if any(not _is_list(one.get(key, [])) for key in ("ranges", "versions")):
            ranges = (*ranges, VersionRange((), readable=False))
        yield AffectedPackage(ecosystem, normalize_name(ecosystem, package["name"]), ranges, listed, urgency)
    for each in found:
        if _is_git(each) and (name := repository_name(str(each.get("repo", "")))):
            yield AffectedPackage("GIT", name, (_range(each),), listed, urgency)


def _is_list(value: Any) -> bool:
    """Whether a value is a list of a likely length: of a longer one the rest is not read."""
    return isinstance(value, list) and len(value) <= MOST_PARTS


def _is_git(one: Any) -> bool:
    return isinstance(one, dict) and one.get("type") == "GIT"


def _range(one: Any) -> VersionRange:
    events = one.get("events") if isinstance(one, dict) else None
    if (
        not isinstance(events, list)
        or len(events) > MOST_PARTS
        or one.get("type") not in ("ECOSYSTEM", "SEMVER", "GIT")
    ):
        return VersionRange((), readable=False)
    found = []
    for event in events:
        ends = [(kind, event[kind]) for kind in _ENDS if kind in event] if isinstance(event, dict) else []
        if len(ends) != 1 or not isinstance(ends[0][1], str):
            return VersionRange((), readable=False)
        found.append(Event(*ends[0]))
    return VersionRange(tuple(found))


def _list(value: Any) -> list[Any]:
    return value[:MOST_PARTS] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return printable(value[:LONGEST_TEXT]) if isinstance(value, str) else ""


def parse_day(value: Any) -> date | None:
    """The day of an RFC 3339 time or of a date; None for any other value."""
    found = _DAY.fullmatch(value) if isinstance(value, str) and len(value) < 64 else None
    try:
        return date.fromisoformat(found[1] or found[2]) if found else None
    except ValueError:
        return None


def read_export(path: Path, packages: Iterable[tuple[str, str]]) -> AdvisoryExport:
    """Read a file or folder of OSV records, keeping those about some packages.

    Args:
        path: A zip of JSON files, a folder of them, a file with a record a line (`.jsonl`), or one record.
        packages: (ecosystem, normalised name) of each package in question; Ubuntu's ecosystems match by release,
            whatever their suffix (`Ubuntu:24.04:LTS`).

    Raises:
        UnreadableExport: it does not exist, is of no such form, or is larger than the bounds above.
    """
    export = AdvisoryExport(str(path))
    keys = {(ecosystem, name) for ecosystem, name in packages}
    room = LARGEST_EXPORT
    try:
        for name, raw in _pieces(path, export):
            export.total += 1
            room -= len(raw)
            if export.total > MOST_RECORDS or room < 0:
                raise UnreadableExport(
                    f"has more than {MOST_RECORDS} records or {LARGEST_EXPORT >> 30} GiB: export single ecosystems"
                )
            _take(export, name, raw, keys)
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableExport(f"cannot be read: {printable(str(error))[:LONGEST_TEXT]}") from None
    if not export.total:
        raise UnreadableExport("has no records: a zip or folder of JSON files, a file of JSON lines, or one record")
    return export


def _take(export: AdvisoryExport, name: str, raw: bytes, keys: set[tuple[str, str]]) -> None:
    try:
        if len(raw) > LARGEST_RECORD:
            raise ValueError(f"has more than {LARGEST_RECORD >> 20} MiB")
        data = json.loads(raw)
        record = parse_record(data)
    except (ValueError, RecursionError) as error:
        why = str(error) if not isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)) else "is no JSON"
        note_unreadable(export, f"{printable(name)[:LONGEST_TEXT]} {printable(why)[:LONGEST_TEXT]}")
        return
    day = parse_day(data.get("modified")) or parse_day(data.get("published"))
    if day and (export.as_of is None or day > export.as_of):
        export.as_of = day
    export.ecosystems.update({release_of(one.ecosystem) for one in record.affected})
    if data.get("withdrawn"):
        return
    kept = tuple(one for one in record.affected if (release_of(one.ecosystem), one.name) in keys)
    if kept:
        export.records.append(OsvRecord(record.id, record.aliases, record.summary, record.source, kept))


def release_of(ecosystem: str) -> str:
    """An ecosystem without what follows its release: `Ubuntu:24.04:LTS` is `Ubuntu:24.04`."""
    base, _, rest = ecosystem.partition(":")
    if base == "Ubuntu":
        release = next((part for part in rest.split(":") if re.fullmatch(r"[0-9]{2}\.[0-9]{2}", part)), "")
        return f"{base}:{release}" if release else ecosystem
    return ecosystem


def _pieces(path: Path, export: AdvisoryExport) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each record; at most one byte more than a record may have."""
    if path.is_dir():
        for one in sorted(path.rglob("*.json")):
            if one.is_file():
                with open(one, "rb") as file:
                    yield one.name, file.read(LARGEST_RECORD + 1)
        return
    refuse_special_file(path)
    if zipfile.is_zipfile(path):
        yield from _read_zip(path, export)
    elif path.suffix in (".jsonl", ".ndjson"):
        with open(path, "rb") as lines:
            number = 0
            while line := lines.readline(LARGEST_RECORD + 1):
                number += 1
                if len(line) > LARGEST_RECORD and not line.endswith(b"\n"):
                    while rest := lines.readline(LARGEST_RECORD):  # the rest of that line
                        if rest.endswith(b"\n"):
                            break
                if line.strip():
                    yield f"line {number}", line
    else:
        yield path.name, read_content(path, LARGEST_RECORD)


def note_unreadable(export: AdvisoryExport, line: str) -> None:
    """Keep the name of an unreadable record, and why.

    Raises:
        UnreadableExport: there are more than MOST_UNREADABLE.
    """
    if len(export.unreadable) == MOST_UNREADABLE:
        raise UnreadableExport(f"has more than {MOST_UNREADABLE} unreadable records")
    export.unreadable.append(line)


def _read_zip(path: Path, export: AdvisoryExport) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.is_dir() or not member.filename.endswith(".json"):
                continue
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # those of other codecs may take any memory, whatever is read of them
                export.total += 1
                note_unreadable(export, f"{printable(member.filename)[:LONGEST_TEXT]} is neither stored nor deflated")
                continue
            try:
                with archive.open(member) as file:
                    # the archive's own figure of a member's size is no proof of it
                    raw = file.read(LARGEST_RECORD + 1)
            except (RuntimeError, zipfile.BadZipFile, NotImplementedError, EOFError, OSError, ValueError) as error:
                export.total += 1
                note_unreadable(export, f"{printable(member.filename)[:LONGEST_TEXT]} {printable(str(error))[:80]}")
                continue
            except Exception as error:  # a codec's own: zlib.error, lzma.LZMAError
                export.total += 1
                note_unreadable(export, f"{printable(member.filename)[:LONGEST_TEXT]} {type(error).__name__}")
                continue
            yield member.filename, raw
