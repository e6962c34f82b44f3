"""Record the memory of a start: `record UNIT NAME DECLARATION FOLDER`, run by root while the unit starts.

It looks at the unit's processes from their start until a minute after the unit is ready, and writes FOLDER/NAME.json
when it is ready and once more at the end. Processes are hostile: each line of their log is matched, cut and counted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .process_memory import DriverLibrary, PeakUse, list_processes, read_group, read_machine

CGROUPS = "/sys/fs/cgroup"
INTERVAL = 1.0  # seconds between looks
SETTLING = 60.0  # seconds from ready to the last look
LONGEST = 2 * 3600.0  # seconds of a start that is waited for
LINES, LINE_LENGTH, LOG_BYTES = 30, 300, 4 << 20
PER_FINGERPRINT, FINGERPRINTS = 5, 20  # records that are kept
MOST = 2 << 20  # bytes of a record's file
SETTINGS = "ActiveState,InvocationID,ControlGroup,ExecMainStartTimestampMonotonic,ActiveEnterTimestampMonotonic"
INVOCATION = re.compile(r"[0-9a-f]{32}")
GROUP = re.compile(r"(?:/[A-Za-z0-9_.@:\\-]{1,200}){1,16}")
SLICE = re.compile(r"rigwright-.{1,200}\.slice")
DIGITS = re.compile(r"[0-9]{1,19}")


def show_unit(unit: str) -> dict[str, str]:
    """Properties of a unit; empty where systemd does not answer."""
    words = ["systemctl", "show", f"--property={SETTINGS}", "--", unit]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def read_lines(invocation: str, patterns: Sequence[str]) -> list[str]:
    """The lines of a start's log that have one of these texts; the first ones, each cut."""
    words = ["journalctl", "--quiet", "--no-pager", "--output=cat", f"_SYSTEMD_INVOCATION_ID={invocation}"]
    found: list[str] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as journal:
        text = journal.stdout.read(LOG_BYTES).decode("utf-8", "replace") if journal.stdout else ""
        journal.kill()
    for line in text.split("\n"):
        if len(found) < LINES and any(pattern in line for pattern in patterns):
            found.append("".join(char if " " <= char <= "~" else "?" for char in line[:LINE_LENGTH]))
    return found


def read_json(path: str) -> dict[str, Any]:
    """An object in a file of root's; empty where there is none."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(MOST))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def keep_history(before: Mapping[str, Any], record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records that are kept beside the newest one: the newest of each fingerprint, of so many fingerprints."""
    known = before.get("history")
    rows = [row for row in known if isinstance(row, dict)] if isinstance(known, list) else []
    last = {key: value for key, value in before.items() if key != "history"}
    if last and last.get("invocation") != record["invocation"]:
        rows.append(last)
    kept: list[dict[str, Any]] = []
    counts: dict[str, int] = {str(record["fingerprint"]): 1}
    for row in reversed(rows):
        mark = str(row.get("fingerprint"))
        if mark not in counts and len(counts) >= FINGERPRINTS:
            continue
        counts[mark] = counts.get(mark, 0) + 1
        if counts[mark] <= PER_FINGERPRINT:
            kept.insert(0, row)
    return kept


def write_record(path: str, record: Mapping[str, Any]) -> None:
    """Write it, whole or not at all."""
    record = {**record, "history": keep_history(read_json(path), record)}
    unfinished = Path(path).with_name(f".{Path(path).name}")
    with unfinished.open("w", encoding="ascii") as file:
        json.dump(record, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.chmod(0o644)
    unfinished.replace(path)


def read_others(group: str) -> dict[str, int]:
    """RAM of the other instances' control groups, without pages of files; empty where the group is in no slice."""
    words = group.split("/")
    if len(words) < 4:
        return {}
    found = 0
    try:
        names = [one.name for one in Path(f"{CGROUPS}/{words[1]}").iterdir()]
    except OSError:
        return {}
    for name in names:
        if SLICE.fullmatch(name) and name != words[2]:
            figures = read_group(f"{CGROUPS}/{words[1]}/{name}")
            found += figures.get("anon", 0) + figures.get("shmem", 0)
    return {"others": found}


def build_record(
    declaration: Mapping[str, Any], peaks: PeakUse, group: str, invocation: str, seconds: float, lines: Sequence[str]
) -> dict[str, Any]:
    """The record of all looks until now."""
    ram = peaks.last_ram
    return {
        "schema": 1,
        "fingerprint": declaration.get("fingerprint", ""),
        "seconds": round(seconds, 1),
        "cards": {
            uuid: {
                "peak": size,
                "settled": peaks.last_cards.get(uuid, 0),
                "name": peaks.names[uuid],
                "index": peaks.indexes[uuid],
            }
            for uuid, size in sorted(peaks.cards.items())
        },
        "by_difference": peaks.by_difference,
        "host": {"peak": peaks.ram, "settled": ram.now, "anon": ram.anon, "file": ram.file, "shmem": ram.shmem},
        "cgroup": read_group(f"{CGROUPS}{group}"),
        "machine": {**read_machine(), **read_others(group)},
        "driver": peaks.library.driver,
        "moment": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "invocation": invocation,
        "computed": declaration.get("computed"),
        "lines": list(lines),
    }


def watch_start(unit: str, declaration: Mapping[str, Any], path: str) -> int:
    """Look until a minute after the unit is ready; returns 0 with a record, and 1 where the start ends."""
    peaks, began = PeakUse(DriverLibrary()), time.monotonic()
    invocation, ready, lines = "", 0.0, []
    patterns = [one for one in declaration.get("patterns", ()) if isinstance(one, str)]
    while time.monotonic() - began < LONGEST:
        seen = show_unit(unit)
        state, group, current = seen.get("ActiveState", ""), seen.get("ControlGroup", ""), seen.get("InvocationID", "")
        invocation = invocation or (current if INVOCATION.fullmatch(current) else "")
        if current != invocation or state not in ("activating", "active", "reloading"):
            return 0 if ready else 1
        if GROUP.fullmatch(group) and "/.." not in group:
            peaks.look(list_processes(f"{CGROUPS}{group}"))
        if state == "active" and not ready:
            ready = time.monotonic()
            peaks.use_differences(_count_cards(declaration))
            lines = read_lines(invocation, patterns)
            write_record(path, build_record(declaration, peaks, group, invocation, _load_seconds(seen), lines))
        if ready and time.monotonic() - ready >= SETTLING:
            write_record(path, build_record(declaration, peaks, group, invocation, _load_seconds(seen), lines))
            return 0
        time.sleep(INTERVAL)
    return 1


def _count_cards(declaration: Mapping[str, Any]) -> int:
    """The declared cards of the instance."""
    computed = declaration.get("computed")
    cards = computed.get("cards") if isinstance(computed, dict) else None
    return len(cards) if isinstance(cards, list) else 0


def _load_seconds(seen: Mapping[str, str]) -> float:
    """Seconds from the start of the process to ready."""
    begin, end = seen.get("ExecMainStartTimestampMonotonic", ""), seen.get("ActiveEnterTimestampMonotonic", "")
    if not DIGITS.fullmatch(begin) or not DIGITS.fullmatch(end):
        return 0.0
    return max(0.0, (int(end) - int(begin)) / 1e6)


def main(words: Sequence[str]) -> int:
    """Record one start."""
    unit, name, declaration, folder = words
    return watch_start(unit, read_json(declaration), f"{folder}/{name}.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
