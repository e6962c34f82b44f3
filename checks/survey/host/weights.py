"""Weight files, their records, and their contents wherever a record does not vouch for them."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from checks.survey.host import common, systemd_properties

STAMPS = Path("/var/lib/systemd/timers")
SILENT = 30  # seconds after which a disk that gives nothing does not answer
PIECE, MANY = 1 << 20, 64 << 20  # bytes
# systemd's words of a timer and its service
PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "UnitFileState", "Result", "ConditionResult", "ConditionTimestamp"),
    *("ActiveEnterTimestamp", "NextElapseUSecRealtime", "ExecMainStatus"),
)


def look(asked: dict[str, Any]) -> dict[str, object]:
    """All of it; bytes are read where `deep` says so, where they are few, and where a file was touched since.

    Args:
        asked: `root` of all models; `records`, the folder; `files`, each with `path`, `record`, `sha256` and `size`;
            `deep`; `few`, bytes up to which a file is always read; `units`, the timer and its service.
    """
    before = signal.signal(signal.SIGALRM, _silent)
    try:
        return _look(asked)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _look(asked: dict[str, Any]) -> dict[str, object]:
    _answering()
    # moments that systemd prints for people are of the host's zone
    os.environ["TZ"] = "UTC"
    records, now = Path(asked["records"]), time.time()
    files = {one["path"]: _file(Path(one["path"]), one, records) for one in asked["files"]}
    declared = {str(Path(path).parent) for path in files}
    found = {
        "now": now,
        "folders": _folders(Path(asked["root"]), [Path(path) for path in files]),
        "extra": [path for folder in sorted(declared) for path in _list_folder(Path(folder)) if path not in files],
        "units": systemd_properties.read_properties(asked["units"], PROPERTIES, "--timestamp=unix"),
        "stamp": _mtime(STAMPS / f"stamp-{asked['units'][0]}"),
    }
    wanted = []
    for one in asked["files"]:
        there = files[one["path"]]
        # a file of another size has other bytes
        whole = there["kind"] == "file" and there["size"] == one["size"]
        if whole and (asked["deep"] or one["size"] <= asked["few"] or there["state"] != there["recorded"]):
            wanted.append(one["path"])
    # the largest first: one that begins last delays the end
    wanted.sort(key=lambda path: -files[path]["size"])
    for path, read in zip(wanted, _all_read(wanted, sum(files[path]["size"] for path in wanted)), strict=True):
        files[path]["read"] = read
    return {**found, "files": files}


def _silent(number: int, frame: object) -> None:
    raise TimeoutError(f"a disk gives nothing for {SILENT} s")


def _answering() -> None:
    signal.alarm(SILENT)


def _mtime(path: Path) -> float | None:
    with suppress(OSError):
        return path.lstat().st_mtime
    return None


def _file(path: Path, asked: dict[str, Any], records: Path) -> dict[str, Any]:
    name = asked["record"]
    line = (common.read(records / name) or "").removesuffix("\n")
    recorded, _, where = line.partition(" /")
    there: dict[str, Any] = {
        "kind": "none",
        "mode": 0,
        "uid": 0,
        "size": 0,
        "state": "",
        "changed": 0.0,
        "recorded": recorded,
        "record_of": f"/{where}" if where else "",
        "hashed": _mtime(records / "deep" / name),
        "wrong": (common.read(records / "wrong" / name) or "").strip()[:200],
        "read": "",
    }
    with suppress(OSError):
        found = path.lstat()
        times = [f"{ns // 10**9}.{ns % 10**9:09}" for ns in (found.st_mtime_ns, found.st_ctime_ns)]
        there |= {
            "kind": common.file_kind(found.st_mode),
            "mode": found.st_mode,
            "uid": found.st_uid,
            "size": found.st_size,
            "state": f"{found.st_size} {times[0]} {times[1]} {found.st_ino}",
            "changed": found.st_ctime,
        }
    return there


def _all_read(paths: list[str], size: int) -> Iterator[str]:
    """The SHA-256 of each, as `_read` has it; as many at once as there are processors, where it is many bytes."""
    if size < MANY:
        return map(_read, paths)
    # not as a context, which would wait for a disk that does not answer
    return ThreadPoolExecutor(os.cpu_count()).map(_read, paths)


def _read(path: str) -> str:
    """SHA-256 of a file; why it has none where it cannot be read."""
    found = hashlib.sha256()
    piece = memoryview(bytearray(PIECE))
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        return error.strerror or "unreadable"
    with os.fdopen(opened, "rb", buffering=0) as file:
        try:
            while count := file.readinto(piece):
                found.update(piece[:count])
                _answering()
        except OSError as error:
            return error.strerror or "unreadable"
    return found.hexdigest()


def _folders(root: Path, files: list[Path]) -> list[dict[str, object]]:
    """All that lead to files from the models' root on; that itself, and what is above it, are looked at elsewhere."""
    paths = {folder for path in files for folder in path.parents if root in folder.parents}
    found = []
    for path in sorted(paths):
        entry: dict[str, object] = {"path": str(path), "kind": "none", "mode": 0, "uid": 0, "inherits": False}
        with suppress(OSError):
            there = path.lstat()
            entry |= {"kind": common.file_kind(there.st_mode), "mode": there.st_mode, "uid": there.st_uid}
            # another user could then write to files that root makes in it later
            entry["inherits"] = "system.posix_acl_default" in os.listxattr(path, follow_symlinks=False)
        found.append(entry)
    return found


def _list_folder(folder: Path) -> Iterator[str]:
    with suppress(OSError):
        yield from sorted(str(one) for one in folder.iterdir())
