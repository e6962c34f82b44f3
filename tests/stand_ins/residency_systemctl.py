#!/usr/bin/env python3
"""Stand-in for systemctl: units are files of a folder (STAND_IN_UNITS), NAME with `STATE UNTIL` in it.

`start` and `stop` take the seconds of STAND_IN_SECONDS; a unit with a file NAME.broken fails, and systemd tries again.
"""

import fcntl
import os
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["STAND_IN_UNITS"])
SECONDS = float(os.environ.get("STAND_IN_SECONDS", "0.3"))
SHOWN = {
    "inactive": ("inactive", "dead"),
    "active": ("active", "running"),
    "activating": ("activating", "start-post"),
    "deactivating": ("deactivating", "stop-sigterm"),
    "restarting": ("activating", "auto-restart"),
    "failed": ("failed", "failed"),
}


def read_state(unit: str) -> tuple[str, float]:
    """A unit's state now: an order takes its time."""
    try:
        state, until = (FOLDER / unit).read_text().split()
    except (FileNotFoundError, ValueError):
        return "inactive", 0.0
    if float(until) <= time.monotonic():
        if state == "activating":
            state = "restarting" if (FOLDER / f"{unit}.broken").exists() else "active"
        elif state == "deactivating":
            state = "inactive"
    return state, float(until)


def write_state(unit: str, state: str) -> None:
    """An order, and the moment at which it is done."""
    (FOLDER / f".{unit}").write_text(f"{state} {time.monotonic() + SECONDS}")
    (FOLDER / f".{unit}").rename(FOLDER / unit)


def main() -> None:
    """One call."""
    verb, *rest = sys.argv[1:]
    units = [word for word in rest if not word.startswith("-")]
    with open(FOLDER / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        blocks = []
        for unit in units:
            state, _ = read_state(unit)
            if verb == "start" and state in ("inactive", "failed"):
                write_state(unit, "activating")
            elif verb == "stop" and state not in ("inactive", "failed", "deactivating"):
                write_state(unit, "deactivating")
            elif verb == "show":
                active, sub = SHOWN[state]
                result = "exit-code" if state in ("restarting", "failed") else "success"
                rows = {"Id": unit, "ActiveState": active, "SubState": sub, "Result": result, "Job": "0"}
                rows |= {"ControlGroup": "", "ExecMainStatus": "1" if result != "success" else "0"}
                blocks.append("".join(f"{key}={value}\n" for key, value in rows.items()))
            if verb in ("start", "stop"):
                with open(FOLDER / ".log", "a") as log:
                    log.write(f"{verb} {unit}\n")
        print("\n".join(blocks), end="")


main()
