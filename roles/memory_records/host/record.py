"""Record the memory of a start: `record UNIT NAME DECLARATION FOLDER INVOCATION`, run by root while the unit starts.

It looks at the unit's processes from their start until a minute after the unit is ready, and writes FOLDER/NAME.json
when it is ready and once more at the end; a start that ends sooner leaves its record, too. Processes are hostile: each
line of their log is matched, cut and counted. It is light, for it runs beside a model that loads: each module that it
imports takes time of the processor.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from .process_memory import (
    MOST_BYTES,
    CardSample,
    DriverLibrary,
    PeakUse,
    engine_processes,
    list_processes,
    read_group,
    read_machine,
)
from .start_log import FAILURE_LINES, RESULT, read_lines, read_result, sync_journal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CGROUPS = "/sys/fs/cgroup"
INTERVAL = 1.0  # seconds between looks
YOUNG, YOUNG_INTERVAL = 2.0, 0.1  # seconds: so long it looks more often
USED, USED_INTERVAL = 10.0, 5.0  # seconds from ready: later it looks less often, for first requests have had memory
MARK_INTERVAL, LATER_MARK_INTERVAL = 0.01, 0.05  # seconds between looks for ready's mark, for ready waits
QUESTIONS, ANSWERED_QUESTIONS = 5.0, 0.5  # seconds between questions to systemd; none while it is ready and there
SETTLING = 60.0  # seconds from ready to the last look
LONGEST = 2 * 3600.0  # seconds of a start that is waited for
PER_FINGERPRINT, FINGERPRINTS = 5, 20  # records that are kept
FAILURES = 10  # starts without an answer that are kept
MOST = 2 << 20  # bytes of a record's file
SETTINGS = (
    "ActiveState,SubState,Result,InvocationID,ControlGroup,MainPID,ControlPID,MemoryPeak,ExecMainStartTimestampMonotonic,"
    "ActiveEnterTimestampMonotonic"
)
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


def read_json(path: str) -> dict[str, Any]:
    """An object in a file of root's; empty where there is none."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(MOST))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def keep_history(rows: Sequence[Mapping[str, Any]], fingerprint: object) -> list[Mapping[str, Any]]:
    """The records that are kept with the newest one: the newest PER_FINGERPRINT of each of FINGERPRINTS fingerprints.

    Args:
        rows: All of them, the oldest first.
        fingerprint: That of the newest one.
    """
    kept: list[Mapping[str, Any]] = []
    counts: dict[str, int] = {str(fingerprint): 1}
    for row in reversed(rows):
        mark = str(row.get("fingerprint"))
        if mark not in counts and len(counts) >= FINGERPRINTS:
            continue
        counts[mark] = counts.get(mark, 0) + 1
        if counts[mark] <= PER_FINGERPRINT:
            kept.insert(0, row)
    return kept


def _add_row(rows: Any, record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The objects in a list of an earlier file and a record, in the order of their starts, each start once."""
    known = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    others = [row for row in known if row.get("invocation") != record["invocation"]]
    return sorted([*others, record], key=lambda row: str(row.get("moment", "")))


def write_record(path: str, record: Mapping[str, Any]) -> None:
    """Add it, whole or not at all; a start without an answer goes to the failures, for it is no measurement.

    Recorders of several starts of one instance write at any time: one at a time, and the latest start is on top.
    """
    # others may open the folder, and could lock that for ever
    lock = os.open(_hidden(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = read_json(path)
        if "outcome" in record:
            rows = _add_row(before.get("failures"), record)
            _write_whole(path, {**before, "failures": rows[-FAILURES:]}, record["invocation"])
            return
        last = {key: value for key, value in before.items() if key not in ("history", "failures")}
        history = before.get("history")
        *rows, newest = _add_row([*(history if isinstance(history, list) else []), *([last] if last else [])], record)
        failures = {"failures": before["failures"]} if isinstance(before.get("failures"), list) else {}
        kept = keep_history(rows, newest.get("fingerprint"))
        _write_whole(path, {**newest, "history": kept, **failures}, record["invocation"])
    finally:
        os.close(lock)


def _hidden(path: str, kind: str) -> str:
    """The path of another file beside one of records."""
    folder, name = os.path.split(path)
    return f"{folder}/.{name.removesuffix('.json')}.{kind}"


def _write_whole(path: str, value: Mapping[str, Any], invocation: str) -> None:
    folder, name = os.path.split(path)
    # of recorders that were killed
    for one in os.listdir(folder):
        if one.startswith(f".{name}."):
            os.unlink(f"{folder}/{one}")
    unfinished = f"{folder}/.{name}.{invocation}"
    with open(unfinished, "w", encoding="ascii") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.chmod(unfinished, 0o644)
    os.replace(unfinished, path)


def list_others(group: str) -> list[str]:
    """The control groups of the other instances; none where the group is in no slice."""
    words = group.split("/")
    if len(words) < 4:
        return []
    try:
        names = os.listdir(f"{CGROUPS}/{words[1]}")
    except OSError:
        return []
    return [f"{CGROUPS}/{words[1]}/{name}" for name in names if SLICE.fullmatch(name) and name != words[2]]


def read_others(group: str) -> dict[str, int]:
    """RAM of the other instances' control groups, without pages of files; empty where the group is in no slice."""
    if len(group.split("/")) < 4:
        return {}
    figures = [read_group(one) for one in list_others(group)]
    return {"others": sum(one.get("anon", 0) + one.get("shmem", 0) for one in figures)}


def describe_cards(every: Sequence[CardSample]) -> dict[str, dict[str, Any]]:
    """All cards of the box: total bytes, and those of the driver and of processes that are no instance's."""
    return {one.uuid: {"index": one.index, "total": one.total, "foreign": one.foreign} for one in every}


class StartWatch:
    """All looks at one start."""

    def __init__(self, declaration: Mapping[str, Any], invocation: str) -> None:
        self.declaration, self.invocation = declaration, invocation
        self.moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        """Of the start, whenever its record is written."""
        self.peaks = PeakUse(DriverLibrary())
        self.group = ""
        """Its control group."""
        self.figures: dict[str, int] = {}
        """Of the control group while it was there."""
        self.box_cards: dict[str, dict[str, Any]] = {}
        self.seconds = 0.0
        """From the start of the process to ready."""

    def look(self, seen: Mapping[str, str], *, is_fresh: bool = False) -> bool:
        """Look at its processes; returns whether its first one is there. Those of a later start have the same group.

        Args:
            seen: systemd's answer.
            is_fresh: Whether systemd has just given it. Since an earlier one, a command beside it may have ended
                and the next one begun, whose processes would count as the engine's: then it looks at none.
        """
        if seen.get("InvocationID", "") != self.invocation:
            return False
        group, main, control = (seen.get(name, "") for name in ("ControlGroup", "MainPID", "ControlPID"))
        if not GROUP.fullmatch(group) or "/.." in group or not DIGITS.fullmatch(main):
            return False
        self.group = group
        processes = list_processes(f"{CGROUPS}{group}")
        if int(main) not in processes:
            return False
        # `ready`, which asks for the first answer, is in the same group
        beside = int(control) if DIGITS.fullmatch(control) else 0
        if not is_fresh and seen.get("ActiveState") == "activating" and beside not in processes:
            return False
        figures = read_group(f"{CGROUPS}{group}")
        self.peaks.look(engine_processes(processes, int(main), beside), figures)
        self.figures = figures or self.figures
        return True

    def look_at_box(self) -> None:
        """Look at the cards of the box, once: with all instances' processes."""
        own = list_processes(f"{CGROUPS}{self.group}")
        others = [process for one in list_others(self.group) for process in list_processes(one)]
        every = self.peaks.library.read_cards(own, others)
        # where the driver names no process, nothing tells them apart
        self.box_cards = {} if self.peaks.by_difference else describe_cards(every)

    def take_ready(self, seconds: float, *, is_there: bool) -> None:
        """Take what is known once it has answered.

        Args:
            seconds: Until then.
            is_there: Whether its processes still are.
        """
        self.seconds = seconds
        self.peaks.use_differences(_count_cards(self.declaration))
        if is_there:
            self.look_at_box()

    def build(self, lines: Sequence[str]) -> dict[str, Any]:
        """The record of all looks until now."""
        peaks, ram = self.peaks, self.peaks.last_ram
        return {
            "schema": 1,
            "fingerprint": self.declaration.get("fingerprint", ""),
            "seconds": round(self.seconds, 1),
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
            "box_cards": self.box_cards,
            "host": {"peak": peaks.ram, "settled": ram.now, "anon": ram.anon, "file": ram.file, "shmem": ram.shmem},
            "cgroup": self.figures,
            "machine": {**read_machine(), **read_others(self.group)},
            "driver": peaks.library.driver,
            "moment": self.moment,
            "invocation": self.invocation,
            "computed": self.declaration.get("computed"),
            "lines": list(lines),
        }

    def build_failure(self, seen: Mapping[str, str]) -> dict[str, Any]:
        """The record of a start that has ended without an answer: why, by systemd, and the engine's own words."""
        sync_journal()
        same = seen.get("InvocationID") == self.invocation
        result = seen.get("Result", "") if same else ""
        if result in ("", "success"):
            result = read_result(self.invocation) or result
        failure_patterns = _texts(self.declaration, "failure_patterns")
        self.peaks.use_differences(_count_cards(self.declaration))
        # of one that has ended before the first look; systemd 256 and newer keep it
        peak = seen.get("MemoryPeak", "") if same else ""
        if DIGITS.fullmatch(peak) and int(peak) < MOST_BYTES:
            self.figures.setdefault("peak", int(peak))
        return {
            **self.build(read_lines(self.invocation, _texts(self.declaration, "patterns"))),
            "outcome": "stopped" if result == "success" else "failed",
            "result": result if RESULT.fullmatch(result) else "",
            "failure_lines": read_lines(self.invocation, failure_patterns, FAILURE_LINES, from_end=True),
        }


def watch_start(unit: str, declaration: Mapping[str, Any], path: str, invocation: str = "") -> int:
    """Look until a minute after the unit is ready; returns 0 with its record, and 1 where it ends without an answer."""
    seen = show_unit(unit)
    current = seen.get("InvocationID", "")
    watch = StartWatch(declaration, invocation or (current if INVOCATION.fullmatch(current) else ""))
    mark = _hidden(path, "answered")
    began = asked = looked = time.monotonic()
    loaded, ready, lines = 0.0, 0.0, []
    while (moment := time.monotonic()) - began < LONGEST:
        young = moment - began < YOUNG
        # in this order: a start that is seen to have answered has all of its memory
        answered = not loaded and _is_marked(mark, watch.invocation)
        there = True
        if young or answered or moment - looked >= INTERVAL:
            there, looked = watch.look(seen), moment
        if answered:
            with suppress(FileNotFoundError):
                os.unlink(mark)
            # it is about to be ready
            asked = moment
        # systemd's answer takes more time of the processor than all looks until then
        pause = ANSWERED_QUESTIONS if answered or loaded else QUESTIONS
        if not there or (not ready and moment - asked >= pause):
            seen, asked = show_unit(unit) or seen, moment
            there = there or watch.look(seen, is_fresh=True)
        entered = _load_seconds(seen, watch.invocation)
        if answered or (entered and not ready):
            loaded = loaded or moment
            watch.take_ready(entered or moment - began, is_there=there)
        if entered and not ready:
            ready, lines = moment, read_lines(watch.invocation, _texts(declaration, "patterns"))
            write_record(path, watch.build(lines))
        if _is_over(seen, watch.invocation):
            # of one that has a later start already, only its answer is known
            is_known = ready or (loaded and seen.get("InvocationID") != watch.invocation)
            write_record(path, watch.build(lines) if is_known else watch.build_failure(seen))
            return 0 if is_known else 1
        if ready and moment - ready >= SETTLING:
            watch.look_at_box()
            # the journal may have had them only after ready
            lines = read_lines(watch.invocation, _texts(declaration, "patterns")) or lines
            write_record(path, watch.build(lines))
            return 0
        if ready:
            time.sleep(YOUNG_INTERVAL if young else INTERVAL if moment - ready < USED else USED_INTERVAL)
        else:
            _await_mark(mark, watch.invocation, YOUNG_INTERVAL, MARK_INTERVAL if young else LATER_MARK_INTERVAL)
    return 1


def _await_mark(mark: str, invocation: str, seconds: float, interval: float = MARK_INTERVAL) -> None:
    until = time.monotonic() + seconds
    while not _is_marked(mark, invocation) and time.monotonic() < until:
        time.sleep(interval)


def _is_marked(mark: str, invocation: str) -> bool:
    """Whether this start has answered its first request: `ready` writes it, and waits until the file is gone."""
    try:
        with open(mark, "rb") as file:
            return file.read(64).decode("ascii", "replace").strip() == invocation
    except OSError:
        return False


def _load_seconds(seen: Mapping[str, str], invocation: str) -> float:
    """Seconds from the start of the process to ready; 0 of a start that was not ready. It may have ended since."""
    begin, end = seen.get("ExecMainStartTimestampMonotonic", ""), seen.get("ActiveEnterTimestampMonotonic", "")
    if seen.get("InvocationID") != invocation or not DIGITS.fullmatch(begin) or not DIGITS.fullmatch(end):
        return 0.0
    return max(0, int(end) - int(begin)) / 1e6 if int(begin) else 0.0


def _is_over(seen: Mapping[str, str], invocation: str) -> bool:
    """Whether this start has ended: another one has begun, is awaited, or there is none."""
    if seen.get("InvocationID") != invocation or seen.get("SubState", "").startswith("auto-restart"):
        return True
    return seen.get("ActiveState") not in ("activating", "active", "reloading", "deactivating")


def _texts(declaration: Mapping[str, Any], key: str) -> list[str]:
    return [one for one in declaration.get(key, ()) if isinstance(one, str)]


def _count_cards(declaration: Mapping[str, Any]) -> int:
    """The declared cards of the instance."""
    computed = declaration.get("computed")
    cards = computed.get("cards") if isinstance(computed, dict) else None
    return len(cards) if isinstance(cards, list) else 0


def main(words: Sequence[str]) -> int:
    """Record one start."""
    unit, name, declaration, folder, invocation = words
    return watch_start(unit, read_json(declaration), f"{folder}/{name}.json", invocation)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
