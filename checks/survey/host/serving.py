"""The files that instances were started from, their logs, and where their keys are."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from checks.survey.host import common, systemd_properties

LEAST = 8  # characters of a key that is looked for: anything has less than that in it
LARGE = 1 << 20  # bytes of a process's arguments or environment that are looked through
MANY = 100


def look(asked: dict[str, object]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `units`, services; `keys`: instance's service -> its key's file; `records`, the folder of what root has
            noted of starts; `starts`, the one of first starts; `folder` of unit files, and the `word` ours begin with.
    """
    units: list[str] = asked["units"]  # type: ignore[assignment] # by the caller
    keys: dict[str, str] = asked["keys"]  # type: ignore[assignment]
    records, starts = str(asked["records"]), str(asked["starts"])
    leaks = _leaks({path: _key(path) for path in keys.values()}, f"{asked['folder']}", f"{asked['word']}")
    return {
        "started": {unit: _started(unit, records, starts, keys.get(unit), leaks) for unit in units},
        "records": sorted(path.name for path in Path(records).glob("*"))[:MANY],
        "exposure": systemd_properties.read_exposure(units),
    }


def _lines(path: str) -> list[str]:
    return common.lines(common.read(path) or "")


def _started(unit: str, records: str, starts: str, key: str | None, leaks: dict[str, list[str]]) -> dict[str, object]:
    lines = _lines(f"{records}/{unit}")
    paths = [line.partition(" ")[2] for line in lines[1:]]
    return {
        "lines": lines[:MANY],
        "now": [_now(path) for path in paths][:MANY],
        "said": _lines(f"{records}/{unit}.said")[:MANY],
        "first": _lines(f"{starts}/{unit}")[:MANY],
        "key": _describe_key_file(unit, key, leaks.get(key, [])) if key else None,
    }


def _now(path: str) -> str:
    try:
        found = Path(path).stat()
    except OSError:
        return f"- {path}"
    return f"{found.st_dev}:{found.st_ino} {path}"


def _key(path: str) -> bytes:
    return (common.read(path, 1 << 16) or "").strip().encode()


def _describe_key_file(unit: str, path: str, leaks: list[str]) -> dict[str, object]:
    given = common.read(f"/run/credentials/{unit}/api-key", 1 << 16)
    try:
        found = Path(path).lstat()
    except OSError:
        return {"mode": "", "owner": 0, "given": False, "leaks": leaks[:MANY]}
    mode = f"{stat.S_IMODE(found.st_mode):o}" if stat.S_ISREG(found.st_mode) else ""
    return {
        "mode": mode,
        "owner": found.st_uid,
        "given": given is not None and given == common.read(path, 1 << 16),
        "leaks": leaks[:MANY],
    }


def _leaks(keys: dict[str, bytes], folder: str, word: str) -> dict[str, list[str]]:
    """File of a key -> where else it can be read."""
    found: dict[str, list[str]] = {path: [] for path in keys}
    for path in _readable(folder, word):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                text = os.read(descriptor, LARGE)
            finally:
                os.close(descriptor)
            for key, value in keys.items():
                if len(value) >= LEAST and value in text:
                    found[key].append(path)
    return found


def _readable(folder: str, word: str) -> Iterator[str]:
    own = str(os.getpid())
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and process.name != own:
            yield from (f"{process}/cmdline", f"{process}/environ")
    for path in sorted(Path(folder).glob(f"{word}*")):
        if path.is_file():
            yield str(path)
        elif path.is_dir():
            yield from (str(one) for one in path.iterdir() if one.is_file())
