"""Entries of the fingerprint for packages and folders of the ledger: they go with the rig.

Other lines of the ledger name files, users and trees, of which a check knows all that may be there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from checks.survey.host import common, dpkg
from checks.survey.host.entry_archives import parse_fields
from checks.survey.host.host_entry import LONGEST, HostEntry, text_entry

LONGEST_LEDGER = 4 << 20  # bytes
MOST_LINES = 50_000
RELATIONS = ("Depends", "Pre-Depends")
OURS = "rigwright"


def ledger_lines(kind: str, asked: dict[str, Any]) -> Iterator[HostEntry]:
    """A row per package and folder of the ledger that is there; the rig explains those that it needs.

    Args:
        kind: The class.
        asked: `ledger`, with its `path`; `packages`, which the rig has installed; `patterns` of names of further ones;
            `folders`, in which or above which all that is there may be made.
    """
    spec = asked["ledger"]
    lines = dict.fromkeys(common.lines(common.read(f"{dpkg.ROOT}{spec['path']}", LONGEST_LEDGER) or "")[:MOST_LINES])
    packages = [line.partition(" ")[2] for line in lines if line.startswith("package ")]
    installed = read_installed() if packages else {}
    needed = needed_packages(installed, [*spec["packages"], *matching_names(installed, spec["patterns"])])
    for name in packages:
        if name.partition(":")[0] in installed:
            entry = text_entry(kind, f"ledger package {name}"[:LONGEST], "removed with the rig")
            entry.origin = OURS if name.partition(":")[0] in needed else ""
            yield entry
    for line in lines:
        path = line.partition(" ")[2]
        if line.startswith("dir ") and os.path.isdir(f"{dpkg.ROOT}{path}"):
            entry = text_entry(kind, f"ledger folder {path}"[:LONGEST], "removed with the rig, once it is empty")
            entry.origin = OURS if is_made(path, spec["folders"]) else ""
            yield entry


def is_made(path: str, folders: Iterable[str]) -> bool:
    """Whether a deploy makes a folder: one of these, one in them, or one above them."""
    if path != os.path.normpath(path) or not path.startswith("/"):
        return False
    return any(f"{one}/".startswith(f"{path}/") or path.startswith(f"{one}/") for one in folders)


def matching_names(installed: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Names of packages that fit an expression."""
    expression = re.compile("|".join(f"(?:{one})" for one in patterns) or r"(?!)")
    return [name for name in installed if expression.fullmatch(name)]


def read_installed() -> dict[str, dict[str, str]]:
    """Package -> its fields, of those that are installed; virtual ones have the fields of one that provides them."""
    found: dict[str, dict[str, str]] = {}
    provided: dict[str, dict[str, str]] = {}
    text = common.read(f"{dpkg.ROOT}{dpkg.ADMIN}/status", most=256 << 20) or ""
    for paragraph in text.split("\n\n"):
        fields = parse_fields(paragraph)
        if fields.get("Status", "").endswith(" installed"):
            found[fields.get("Package", "")] = fields
            for name in _names(fields.get("Provides", "")):
                provided.setdefault(name, {"Depends": fields.get("Package", "")})
    return provided | found


def needed_packages(installed: dict[str, dict[str, str]], names: Iterable[str]) -> set[str]:
    """Installed packages of these names, and all that they depend on."""
    found: set[str] = set()
    waiting = [name for name in names if name in installed]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            depends = ", ".join(installed[name].get(relation, "") for relation in RELATIONS)
            waiting += [one for one in _names(depends) if one in installed]
    return found


def _names(relations: str) -> list[str]:
    """Names in relations between packages (deb-control(5)), alternatives as well."""
    return re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)", relations)
