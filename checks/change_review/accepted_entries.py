"""Accepted entries of a host: a file beside the inventory, reviewed like the inventory itself.

`accepted/HOST.json` has an entry a line, sorted, so that a review in git shows each. Values are keyed by the host: they
can be compared, and say nothing of a content. The host knows serial and digest of the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from checks.survey.fingerprint import HostFingerprint
from checks.survey.fingerprint_classes import CLASS_NAMES
from rigwright.local_files import read_content, write_atomically
from rigwright.problems import Invalid, Problem, describe_unknown, format_value, suggestion

FOLDER = "accepted"
SCHEMA = 1
MOST = 4 << 20
"""Bytes of a file, eight times what a host with unusually many entries has."""
KEYS = ("schema", "host", "serial", "author", "date", "digest", "entries", "packages")


@dataclass(frozen=True)
class HostAcceptance:
    """One host's."""

    host: str
    serial: int
    """One more at each acceptance, from 1."""
    author: str
    date: str
    """In UTC, such as 2026-11-28T06:12:00Z."""
    entries: Mapping[str, Mapping[str, str]]
    """Class -> key of an entry -> its value, as `FingerprintEntry` has them."""
    packages: Mapping[str, tuple[str, ...]]
    """Name -> classes that it adds entries to."""
    digest: str = ""
    """SHA-256 of all the others."""

    def compute_digest(self) -> str:
        """SHA-256 of everything but the digest."""
        packages = {name: sorted(classes) for name, classes in self.packages.items()}
        parts = [SCHEMA, self.host, self.serial, self.author, self.date, self.entries, packages]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def render(self) -> str:
        """The text of the file."""
        packages = {name: " ".join(sorted(classes)) for name, classes in self.packages.items()}
        values = (SCHEMA, self.host, self.serial, self.author, self.date, self.digest)
        head = dict(zip(KEYS, values, strict=False))
        body = {"entries": {kind: dict(sorted(found.items())) for kind, found in sorted(self.entries.items()) if found}}
        made = head | body | {"packages": dict(sorted(packages.items()))}
        return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def accept_entries(found: HostFingerprint, host: str, previous: int, author: str, date: str) -> HostAcceptance:
    """All entries of a host that may be accepted, under the serial after both that of the file and the host's.

    Args:
        found: The host's answer.
        host: Its name.
        previous: Serial of the file; 0 without one.
        author: Name of the reviewer.
        date: In UTC.
    """
    entries: dict[str, dict[str, str]] = {}
    for one in found.entries:
        if not one.problem and one.kind in CLASS_NAMES:
            entries.setdefault(one.kind, {})[one.key] = one.value
    packages = {one.name: tuple(sorted({*one.classes} & CLASS_NAMES)) for one in found.packages if one.archive}
    made = HostAcceptance(host, max(previous, found.accepted_serial) + 1, author, date, entries, packages)
    return replace(made, digest=made.compute_digest())


def accepted_path(inventory: str, host: str) -> Path:
    """Place of the file for a host of an inventory."""
    return Path(inventory).absolute().parent / FOLDER / f"{host}.json"


def load_accepted(file: Path, host: str) -> HostAcceptance | None:
    """The entries in a file; None without one.

    Raises:
        Invalid: `save_accepted` has not written the file for this host, or it was edited.
    """
    if not file.exists() and not file.is_symlink():
        return None
    try:
        text = read_content(file, MOST).decode()
        data = json.loads(text, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise Invalid([Problem(str(file), "", str(error) or "is refused: too deeply nested")]) from None
    return _parse(data, str(file), host)


def restore_accepted(file: Path, accepted: HostAcceptance | None) -> None:
    """Give a file the entries that it had; None for no file.

    Raises:
        OSError: it cannot be written.
    """
    if accepted:
        save_accepted(file, accepted)
    else:
        file.unlink(missing_ok=True)


def save_accepted(file: Path, accepted: HostAcceptance) -> None:
    """Write a file, completely or not at all.

    Raises:
        OSError: it cannot be written; the file before is as it was.
        ValueError: the host has more entries than a file may have.
    """
    text = accepted.render()
    if len(text.encode()) > MOST:
        raise ValueError(f"has more than {MOST >> 20} MiB of entries")
    write_atomically(file, text, makes_folder=True)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{format_value(twice)} is refused: must be there once")
    return made


def _parse(data: Any, file: str, host: str) -> HostAcceptance:
    if not isinstance(data, dict):
        raise Invalid([Problem(file, "", "is refused: must be a table of keys")])
    problems = [Problem(file, key, f"unknown key{suggestion(key, KEYS)}") for key in data if key not in KEYS]
    problems += [Problem(file, key, "missing") for key in KEYS if key not in data]
    if problems:
        raise Invalid(problems)
    if data["schema"] != SCHEMA:
        text = f"{format_value(data['schema'])} is refused: must be {SCHEMA}; another release has written this file"
        raise Invalid([Problem(file, "schema", text)])

    def refuse(key: str, allowed: str) -> None:
        problems.append(Problem(file, key, f"{format_value(data[key], key)} is refused: must be {allowed}"))

    if data["host"] != host:
        refuse("host", f'"{host}", the name of the host of this file')
    if type(data["serial"]) is not int or data["serial"] < 1:
        refuse("serial", "a whole number from 1")
    for key in ("author", "date", "digest"):
        if not isinstance(data[key], str) or not data[key].isprintable():
            refuse(key, "text on one line")
    problems += _find_entry_problems(data, file)
    if problems:
        raise Invalid(problems)
    packages = {name: tuple(classes.split()) for name, classes in data["packages"].items()}
    made = HostAcceptance(
        **{name: data[name] for name in KEYS if name not in ("schema", "packages")}, packages=packages
    )
    if made.compute_digest() != made.digest:
        text = "is not that of this file: it was edited or merged; give it back as `check --accept` has written it"
        raise Invalid([Problem(file, "digest", text)])
    return made


def _find_entry_problems(data: dict[str, Any], file: str) -> list[Problem]:
    known = CLASS_NAMES
    entries, packages = data["entries"], data["packages"]
    problems = []
    if not isinstance(packages, dict) or not all(isinstance(one, str) for one in packages.values()):
        problems.append(Problem(file, "packages", "is refused: must be a table of names, each with its classes"))
        packages = {}
    if not isinstance(entries, dict):
        problems.append(Problem(file, "entries", "is refused: must be a table of classes"))
        entries = {}
    for kind, listed in entries.items():
        if kind not in known:
            problems.append(Problem(file, f"entries.{kind}", describe_unknown("class of entries", kind, known)))
        elif not isinstance(listed, dict) or not all(isinstance(one, str) for one in listed.values()):
            problems.append(Problem(file, f"entries.{kind}", "is refused: must be a table of entries, each with text"))
    problems += [
        Problem(file, f"packages.{name}", describe_unknown("class of entries", kind, known))
        for name, classes in packages.items()
        for kind in classes.split()
        if kind not in known
    ]
    return problems
