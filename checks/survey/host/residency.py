"""Instances on demand, by the ledger of their box's residency service and the counters of its gateway."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

from checks.survey.host import bounded_http, common

PHASES = ("asleep", "starting", "awake", "leaving", "stopping")
MANY, LENGTH = 1000, 300  # instances, and characters of a reason
LARGEST = 1 << 20  # bytes of a ledger
COUNTERS = {
    **{"method": "GET", "path": "/state", "headers": [], "told": [], "source": "", "tls": False, "body": ""},
    **{"connect": 0.5, "limit": 0.5, "most": LARGEST, "shown": LARGEST},
}


def read_residency(path: str, counters: str) -> dict[str, dict[str, object]]:
    """Instance -> its phase, the reason for which its last start or process failed, the seconds of its last load, and
    the clients that wait for it; empty without a ledger.

    Args:
        path: The ledger.
        counters: The gateway's socket.
    """
    found: dict[str, dict[str, object]] = {}
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        for name, row in json.loads(common.read(path, LARGEST) or "{}")["instances"].items():
            if row["phase"] in PHASES and len(found) < MANY:
                failed = str(row["reason"])[:LENGTH] if row.get("failures") and row.get("reason") else ""
                seconds = float(row.get("load_seconds") or 0)
                load_s = seconds if 0 < seconds < math.inf else 0.0
                found[str(name)[:64]] = {"phase": row["phase"], "failed": failed, "load_s": load_s, "waiting": 0}
    for name, number in read_waiting(counters).items() if found else ():
        if name in found:
            found[name]["waiting"] = number
    return found


def read_waiting(counters: str) -> dict[str, int]:
    """Instance -> clients that wait for it, as the gateway counts them; empty if it does not answer."""
    asked: dict[str, Any] = {**COUNTERS, "at": counters}
    found: dict[str, int] = {}
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        for name, row in json.loads(str(bounded_http.answer(asked, "")["body"]))["instances"].items():
            number = row.get("waiting")
            if isinstance(number, int) and not isinstance(number, bool) and 0 < number < 10**6:
                found[str(name)] = number
    return found
