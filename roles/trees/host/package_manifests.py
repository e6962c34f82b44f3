"""The expected state of a tree without a record: as its own list says, or as the deploy does."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from .tree_entry import Entry
from .tree_records import TreesOnHost, sealed_digest

# Of an engine beside what its own list has: written around the installation.
BESIDE = frozenset(("build.json", "build.log", "files.sha256", "activate", "tree"))

ESCAPED = {"n": "\n", "r": "\r"}


def find_unproven(tree: Path, kind: str, entries: dict[str, Entry], host: TreesOnHost) -> list[str]:
    """Parts of a tree without a record that differ from its own list, or the deploy."""
    files = {name: one[8] for name, one in entries.items() if one[0] == "f"}
    if kind == "texts":
        wanted = host.texts[str(tree)]
        return [name for name in {**wanted, **files} if wanted.get(name) != files.get(name)]
    if kind == "generation":
        return [] if sealed_digest(tree) == compute_seal(entries) else ["what it was sealed with"]
    if kind == "tools":
        listed = dict(list_installed_files(tree))
        return [name for name in listed if files.get(name) != listed[name]]
    root = (
        next((f"{one}/" for one in entries if re.fullmatch("site/nvidia/cu[0-9]+", one)), "") if kind == "cuda" else ""
    )
    rows = parse_checksums((tree / "files.sha256").read_bytes())
    listed = {root + name.removeprefix("./"): digest for name, digest in rows}
    more = [name for name in files if name not in listed and name not in BESIDE] if kind == "engine" else []
    return [name for name in listed if files.get(name) != listed[name]] + more


def parse_checksums(listing: bytes) -> Iterator[tuple[str, str]]:
    """Path and SHA-256 of each line as sha256sum writes it: a backslash before one says that its name has some."""
    for line in filter(None, listing.split(b"\n")):
        digest, _, name = os.fsdecode(line).partition(" ")
        if digest.startswith("\\"):
            name = re.sub(r"\\(.)", lambda found: ESCAPED.get(found[1], found[1]), name)
        yield name[1:], digest.lstrip("\\")


def list_installed_files(tree: Path) -> Iterator[tuple[str, str]]:
    """Path and SHA-256 of what the packages of an environment say that they have; not of what was made there."""
    for record in tree.glob("lib/python3*/site-packages/*.dist-info/RECORD"):
        site = record.parent.parent.relative_to(tree)
        with record.open(newline="", errors="surrogateescape") as file:
            for name, said, *_ in csv.reader(file):
                if said.startswith("sha256="):
                    value = base64.urlsafe_b64decode(said.removeprefix("sha256=") + "=").hex()
                    yield os.path.normpath(site / name), value


def compute_seal(entries: dict[str, Entry]) -> str:
    """The digest that a generation was sealed with, of what is there now."""
    files = {name: one for name, one in sorted(entries.items()) if one[0] == "f" and name not in ("meta", "proven")}
    lines = [f"{one[8]}  {name}" for name, one in files.items()]
    lines += [f"mode {one[3]:o} {name}" for name, one in files.items()]
    lines += [f"link {name} {one[8]}" for name, one in sorted(entries.items()) if one[0] == "l"]
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")).hexdigest()
