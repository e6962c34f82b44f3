"""The lists of packages: conda's as they are in the prefix, wheels' in themselves and where they are installed."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .tree import LARGEST, SHOWN, EnvironmentRejected, FolderTree, escape_word, read_tree_text, walk_folder

DIST_INFO = re.compile(r"(lib/python3\.[0-9]+/site-packages/)([^/]+)-([^/-]+)\.dist-info/RECORD")
META = re.compile(r"conda-meta/[^/]+\.json")
RECORD = re.compile(r"[^/]+\.dist-info/RECORD")
SHA256 = re.compile(r"[0-9a-f]{64}")
LINK = "link"
"""The stand-in for the SHA-256 of a link."""


def normalize_distribution_name(name: str) -> str:
    """A distribution's name as an index spells it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def list_wheel_files(path: Path, site: str) -> Iterator[tuple[str, str]]:
    """Path and SHA-256 of every file of a wheel that installing it does not write anew.

    Args:
        path: The wheel, whose bytes are the locked ones.
        site: Where its modules go, from the environment's top.

    Raises:
        EnvironmentRejected: it is invalid, or its list cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            (name,) = filter(RECORD.fullmatch, wheel.namelist())
            with wheel.open(name) as file:
                content = file.read(LARGEST + 1)
        found = parse_record_rows(content[:LARGEST].decode(), path.name)
    except (OSError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error):
        raise EnvironmentRejected(f"{path.name} has no list of its files that can be read") from None
    for listed, digest in found:
        # the list itself has none
        if (installed := installed_path(listed, site)) and (digest or listed.partition("/")[0].endswith(".data")):
            yield installed, digest


def installed_path(listed: str, site: str) -> str:
    """Where a file of a wheel lies once it is installed; empty of what is written anew.

    Args:
        listed: Its path in the wheel.
        site: Where its modules go, from the environment's top.
    """
    top, _, rest = listed.partition(".data/")
    if not rest or "/" in top:
        return os.path.normpath(site + listed)
    scheme, _, inner = rest.partition("/")
    if scheme == "data":
        return os.path.normpath(inner)
    return os.path.normpath(site + inner) if scheme in ("purelib", "platlib") else ""


def list_distribution_files(top: Path, tree: FolderTree, wanted: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Path and SHA-256 of every file that the distributions that are there list; "" where one lists none.

    Raises:
        EnvironmentRejected: other distributions are there than those wanted, or one's list cannot be read.
    """
    found: dict[str, str] = {}
    for relative in sorted(tree.files):
        if of := DIST_INFO.fullmatch(relative):
            found[normalize_distribution_name(of[2])] = of[3]
            for path, digest in parse_record_rows(read_tree_text(top, relative), relative):
                yield os.path.normpath(of[1] + path), digest
    if found != wanted:
        other = sorted(f"{name} {version}" for name, version in set(found.items()) ^ set(wanted.items()))
        raise EnvironmentRejected(f"not the locked distributions: {', '.join(map(escape_word, other))}")


def parse_record_rows(content: str, name: str) -> list[tuple[str, str]]:
    """The rows of a RECORD (packaging.python.org, "Recording installed projects"): path, and SHA-256 or "".

    Raises:
        EnvironmentRejected: it cannot be read.
    """
    found = []
    try:
        read = list(csv.reader(io.StringIO(content)))
    except csv.Error:
        raise EnvironmentRejected(f"{name} cannot be read") from None
    for row in read:
        if len(row) != 3:
            raise EnvironmentRejected(f"{name} has an invalid row: {escape_word(row)}")
        algorithm, _, encoded = row[1].partition("=")
        if row[1] and algorithm != "sha256":
            raise EnvironmentRejected(
                f"{name} has a {escape_word(algorithm)} of {escape_word(row[0])}: only sha256 is read"
            )
        found.append((row[0], _decode_digest(encoded, name) if row[1] else ""))
    return found


def _decode_digest(encoded: str, name: str) -> str:
    try:
        digest = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()
    except ValueError:
        digest = ""
    if not SHA256.fullmatch(digest):
        raise EnvironmentRejected(f"{name} has an invalid hash")
    return digest


def list_conda_files(top: Path, plan: Mapping[str, Any]) -> dict[str, str]:
    """Path -> SHA-256 of every file that conda packages list, as it is in this prefix; LINK of links.

    Raises:
        EnvironmentRejected: other packages are there than those of the plan, or one's list cannot be read.
    """
    tree = walk_folder(top)
    if tree.wrong:
        raise EnvironmentRejected("\n".join(tree.wrong[:SHOWN]))
    found: dict[str, str] = {}
    listed: dict[str, str] = {}
    for relative in sorted(filter(META.fullmatch, tree.files)):
        try:
            meta = json.loads(read_tree_text(top, relative))
            said = f"{meta['name']}-{meta['version']}-{meta['build']}"
            found[str(meta["fn"])] = str(meta["sha256"])
            rows = [(str(row["_path"]), _digest_in_prefix(row)) for row in meta["paths_data"]["paths"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise EnvironmentRejected(f"{relative} cannot be read") from None
        if str(meta["fn"]) not in (f"{said}.conda", f"{said}.tar.bz2"):
            raise EnvironmentRejected(
                f"not the locked conda packages: {escape_word(meta['fn'])} says that it is {escape_word(said)}"
            )
        listed |= {os.path.normpath(path): digest for path, digest in rows if digest}
    if found != (asked := {Path(one["path"]).name: one["sha256"] for one in plan["conda"]}):
        other = ", ".join(map(escape_word, sorted(found.keys() ^ asked.keys())))
        raise EnvironmentRejected(f"not the locked conda packages: {other or 'their hashes'}")
    return listed


def _digest_in_prefix(row: Mapping[str, Any]) -> str:
    if row["path_type"] != "hardlink":
        return LINK if row["path_type"] == "softlink" else ""
    digest = str(row.get("sha256_in_prefix") or row["sha256"])
    if not SHA256.fullmatch(digest):
        raise ValueError("an invalid hash")
    return digest
