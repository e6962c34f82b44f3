"""A folder that stands in for a host whose fingerprint is taken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from checks.survey.host import (
    dpkg,
    entry_collection,
    entry_digests,
    entry_files,
    entry_readers,
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path.resolve() / "root"
    (root / "state").mkdir(parents=True)
    (root / "etc").mkdir()
    modules = (entry_files, entry_readers, dpkg)
    # a test's files are from now, which the cache does not take for granted
    fresh = patch.object(entry_digests, "FRESH", -60.0)
    patches = [patch.object(module, "ROOT", str(root)) for module in modules]
    entry_files.silent_mounts.cache_clear()
    entry_files.account_names.cache_clear()
    with fresh, patch.object(dpkg, "packages", list), patch.object(dpkg, "owners", lambda paths: {}):
        for one in patches:
            one.start()
        yield root
        for one in patches:
            one.stop()
    entry_files.silent_mounts.cache_clear()
    entry_files.account_names.cache_clear()


def question(root: Path, *paths: str, deep: bool = False, **values: Any) -> dict[str, Any]:
    one = {"name": "cron", "paths": paths, "readers": (), "secret": False, "private_copies": False, **values}
    return {
        "classes": [one],
        "churn": [],
        "folder": str(root / "state"),
        "nonce": "of a run",
        "deep": deep,
        "credentials": "/etc/rigwright/credentials",
    }


def write(root: Path, name: str | bytes, content: bytes = b"x", mode: int = 0o644) -> Path:
    path = root / os.fsdecode(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def collect(asked: dict[str, Any]) -> entry_collection.EntryCollection:
    found = entry_collection.EntryCollection(asked)
    found.digests.save()
    return found


def states(asked: dict[str, Any]) -> dict[str, str]:
    return {entry.key: entry.state.split(" ", 2)[0] for entry in collect(asked).entries}
