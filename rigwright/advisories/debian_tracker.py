"""Debian's security tracker as one JSON file: source package -> CVE -> state in each release. None of it is trusted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

from rigwright.advisories.osv_records import (
    AdvisoryExport,
    AffectedPackage,
    OsvRecord,
    UnreadableExport,
    note_unreadable,
)
from rigwright.advisories.versions import Event, VersionRange
from rigwright.host.supported_systems import CODENAMES
from rigwright.local_files import read_content
from rigwright.problems import printable

# Bytes of the file; that of 2025 has some 70 MB.
LARGEST = 512 << 20
# Release -> its name, as the tracker has it (the archive's suites).
RELEASES = {
    name.replace("debian-", "Debian:"): codename for name, codename in CODENAMES.items() if name.startswith("debian-")
}
ADDRESS = "https://security-tracker.debian.org/tracker"


def is_tracker(data: Any) -> bool:
    """Whether a JSON value has the tracker's form: its first package has CVEs with releases."""
    first = next(iter(data.values()), None) if isinstance(data, dict) else None
    one = next(iter(first.values()), None) if isinstance(first, dict) else None
    return isinstance(one, dict) and isinstance(one.get("releases"), dict)


def read_tracker(path: Path, packages: Iterable[tuple[str, str]]) -> AdvisoryExport | None:
    """Read the tracker's file; None where the file has another form.

    Args:
        path: The file. The tracker writes no date into it, so its time of modification counts.
        packages: (key of RELEASES, source package) of each package in question.

    Raises:
        UnreadableExport: it cannot be read, is larger than LARGEST, or has too many unreadable entries.
    """
    if path.is_dir() or path.suffix != ".json":
        return None
    try:
        raw = read_content(path, LARGEST)
        data = json.loads(raw)
        made: date = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).date()
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        return None
    except (OSError, ValueError) as error:
        raise UnreadableExport(f"cannot be read: {printable(str(error))[:200]}") from None
    if not is_tracker(data):
        return None
    export = AdvisoryExport(str(path), as_of=made)
    wanted: dict[str, list[str]] = {}
    for ecosystem, source in sorted(set(packages)):
        if ecosystem in RELEASES:
            wanted.setdefault(source, []).append(ecosystem)
    for name, found in data.items():
        if not isinstance(found, dict):
            note_unreadable(export, f"{printable(str(name))[:80]} is no table of CVEs")
            continue
        for cve, one in found.items():
            export.total += 1
            if not isinstance(one, dict) or not isinstance(one.get("releases"), dict):
                note_unreadable(export, f"{printable(str(cve))[:80]} of {printable(name)[:80]} has no releases")
                continue
            export.ecosystems.update(ecosystem for ecosystem, suite in RELEASES.items() if suite in one["releases"])
            for ecosystem in wanted.get(name, ()):
                _take(export, ecosystem, name, cve, one)
    return export


def _take(export: AdvisoryExport, ecosystem: str, source: str, cve: str, one: dict[str, Any]) -> None:
    state = one["releases"].get(RELEASES[ecosystem])
    # the release has no such package, or none that was ever affected
    if state is None or (ranges := _ranges(state)) is None:
        return
    urgency = state.get("urgency") if isinstance(state, dict) else ""
    summary = one.get("description")
    text = printable(summary[:300]) if isinstance(summary, str) else ""
    package = AffectedPackage(ecosystem, source, ranges, urgency=printable(str(urgency or ""))[:40])
    name = printable(cve)[:80]
    export.records.append(OsvRecord(name, (), text, f"{ADDRESS}/{name}", (package,)))


def _ranges(state: Any) -> tuple[VersionRange, ...] | None:
    """The affected versions of one release; None where the tracker says that none is."""
    status = state.get("status") if isinstance(state, dict) else None
    if status == "open":
        return ()
    fixed = state.get("fixed_version") if isinstance(state, dict) else None
    if status == "resolved" and isinstance(fixed, str):
        # 0: no version of this release was ever affected
        return None if fixed == "0" else (VersionRange((Event("introduced", "0"), Event("fixed", fixed))),)
    return (VersionRange((), readable=False),)
