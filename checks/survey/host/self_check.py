"""The last result of the check that the host makes of itself, and digests of its program and declaration."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from checks.survey.host import common

MANY = 200  # findings that are reported
LONGEST = 200  # characters of one
FULL_READ_BYTES = 16 << 20  # of the record of nightly reads, which names each changed file


def look(asked: dict[str, Any]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `result`, the file of the last result; `full_read`, that of nightly reads; `declaration`, that of what a
            deploy has declared; `files` that are hashed; `folder` of its program, in which nothing else lies.
    """
    text = common.read(asked["result"])
    result, unreadable = (None, "") if text is None else _parse_result(text)
    uptime = float((common.read("/proc/uptime") or "0").split(" ")[0])
    try:
        deployed = os.stat(asked["declaration"]).st_mtime
    except OSError:
        deployed = 0.0
    return {
        "now": time.time(),
        "booted": time.time() - uptime,
        "deployed": deployed,
        "result": result,
        "full_read": _parse_full_read(common.read(asked["full_read"], FULL_READ_BYTES) or ""),
        "unreadable": unreadable,
        "files": {path: _sha256(path) for path in asked["files"]},
        "others": [*islice(_list_others(asked["folder"], {*asked["files"]}), MANY)],
    }


def _list_others(folder: str, known: set[str]) -> Iterator[str]:
    """Other files below a folder; Python runs compiled ones in place of a module."""
    for place, _, names in os.walk(folder):
        yield from (path for name in sorted(names) if (path := f"{place}/{name}") not in known)


def _parse_result(text: str) -> tuple[dict[str, object] | None, str]:
    """The result, and why there is none that can be read."""
    try:
        found = json.loads(text)
        failing = [
            {"check": str(one["check"])[:LONGEST], "text": str(one["text"])[:LONGEST], "since": float(one["since"])}
            for one in found["failing"][:MANY]
        ]
        judged = None if found["judged"] is None else float(found["judged"])
        return {"judged": judged, "outcome": str(found["outcome"])[:LONGEST], "failing": failing}, ""
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return None, type(error).__name__


def _parse_full_read(text: str) -> float:
    """When the last nightly read was complete; 0 where no record tells."""
    with suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return float(json.loads(text)["complete"])
    return 0.0


def _sha256(path: str) -> str:
    content = common.data(path)
    return "" if content is None else hashlib.sha256(content).hexdigest()
