"""Observes the box: units, cards, host memory, and requests under way in the gateway."""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from .state import MemoryDevice, UnitObserved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SMI = "/usr/bin/nvidia-smi"
MIB = 1 << 20
SYSTEMCTL_S, SMI_S, ADMIN_S = 20.0, 20.0, 5.0
SAMPLE_S, RECENT_S = 0.5, 2.0  # between two questions to nvidia-smi, and for which its answer counts
FILE_BYTES, ANSWER_BYTES = 1 << 20, 1 << 20  # of /proc/sys the kernel refuses a read of 4 MiB, whatever is there
SHOWN = ("Id", "ActiveState", "SubState", "Result", "Job", "ControlGroup", "ExecMainCode", "ExecMainStatus")
NO_FIGURE = r"(?:\[[A-Za-z /]{1,40}\]|N/A)"  # such as [N/A], [Not Supported] and [GPU is lost]
# lines about one card, between the rows of the others
SMI_MESSAGE = re.compile(r"(?:WARNING: |Unable to determine the device handle ).*")
SMI_STATUSES = (0, 14, 15)  # of an answer with rows: also a corrupted infoROM, and a lost card (nvml.h)
CARD_UUID = "GPU-[0-9a-fA-F-]{4,64}|[0-9A-Za-z-]{4,80}"
CARD_ROW = re.compile(rf"(\d{{1,3}}), ({CARD_UUID}|{NO_FIGURE})" + rf", (\d{{1,9}}|{NO_FIGURE})" * 2)
APP_ROW = re.compile(rf"(\d{{1,9}}|{NO_FIGURE}), ({CARD_UUID}|{NO_FIGURE}), (\d{{1,9}}|{NO_FIGURE})")
MEMINFO_ROW = re.compile(r"(MemTotal|MemAvailable): +(\d{1,15}) kB")
RESULTS = {
    "timeout": "it did not answer within the time that its start has",
    "oom-kill": "the kernel ended it for lack of memory",
    "protocol": "it did not start as its unit declares",
    "start-limit-hit": "it failed too often in a short time",
}
KILLED = ("2", "3")
"""`ExecMainCode` of a process that a signal has ended (waitid(2))."""


def read(path: str) -> str:
    """A file; empty for none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(FILE_BYTES)
    except OSError:
        return ""


def read_json(path: str) -> dict[str, Any]:
    """An object of a file; empty for none, and for one that is cut off."""
    try:
        found = json.loads(read(path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def parse_units(text: str) -> dict[str, dict[str, str]]:
    """The blocks of `systemctl show`: unit -> property -> value."""
    found: dict[str, dict[str, str]] = {}
    for block in text.split("\n\n"):
        row = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in row:
            found[row["Id"]] = row
    return found


def unit_state(row: Mapping[str, str]) -> UnitObserved:
    """The state of a unit by its properties."""
    active, sub, result = row.get("ActiveState", ""), row.get("SubState", ""), row.get("Result", "success")
    queued = row.get("Job", "0") not in ("", "0")
    reason = RESULTS.get(result) or _describe_end(row, result)
    if sub.startswith("auto-restart"):
        state = "restarting"
    elif active in ("active", "reloading"):
        state = "deactivating" if queued and active == "active" else "active"
    elif active == "inactive":
        state = "activating" if queued else "inactive"
    elif active == "failed":
        state = "activating" if queued else "failed"
    else:
        state = active if active in ("activating", "deactivating") else "inactive"
    return UnitObserved(state, result, reason)


def _describe_end(row: Mapping[str, str], result: str) -> str:
    """Why a unit failed, by the end of its engine."""
    status, is_killed = row.get("ExecMainStatus", ""), row.get("ExecMainCode") in KILLED
    # a start may fail before its engine does
    if status in ("", "0"):
        return f"its unit failed ({result})"
    if is_killed and result == "exit-code":
        # systemd ended the engine then
        return "a step of its start failed"
    return f"its engine was ended by signal {status}" if is_killed else f"its engine ended with status {status}"


def show_units(units: Mapping[str, str]) -> tuple[dict[str, UnitObserved], dict[str, str]]:
    """Instance -> its unit's state, and the folder of its control group.

    Args:
        units: Instance -> unit.
    """
    words = ["systemctl", "show", f"--property={','.join(SHOWN)}", *units.values()]
    done = subprocess.run(words, capture_output=True, timeout=SYSTEMCTL_S, check=True)
    rows = parse_units(done.stdout.decode(errors="replace"))
    states = {name: unit_state(rows[unit]) for name, unit in units.items() if unit in rows}
    groups = {name: rows[unit].get("ControlGroup", "") for name, unit in units.items() if unit in rows}
    return states, groups


def parse_rows(text: str, row: re.Pattern[str]) -> list[tuple[str, ...]] | None:
    """The rows of a table of nvidia-smi's, with nothing where it has no figure; None for any other text.

    A single row of another form makes all void: memory of an instance would count as that of others. nvidia-smi's own
    messages about a card do not.
    """
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if match := row.fullmatch(line):
            found.append(tuple("" if re.fullmatch(NO_FIGURE, value) else value for value in match.groups()))
        elif re.fullmatch(NO_FIGURE, line):
            found.append(("",) * row.groups)
        elif not SMI_MESSAGE.fullmatch(line):
            return None
    return found


def parse_cards(cards: str, apps: str, owners: Mapping[int, str]) -> tuple[dict[str, MemoryDevice], dict[str, str]]:
    """Cards by index as nvidia-smi lists them, and index -> UUID; nothing where its answer is no table.

    Args:
        cards: Rows of index, UUID, MiB in use and MiB free. A card without a figure is unknown.
        apps: Rows of process, UUID and MiB. Instances count by their need where a row may be of theirs, and names none.
        owners: Process -> the instance that it belongs to.
    """
    card_rows, app_rows = parse_rows(cards, CARD_ROW), parse_rows(apps, APP_ROW)
    if card_rows is None or app_rows is None:
        return {}, {}
    known = [row for row in card_rows if all(row)]
    ours: dict[str, dict[str, int]] = {row[1]: {} for row in known}
    unmeasured: dict[str, set[str]] = {row[1]: set() for row in known}
    for process, uuid, size in app_rows:
        names = {owners.get(int(process))} if process else {*owners.values()}
        for card in ours.keys() & ({uuid} if uuid else ours.keys()):
            for name in filter(None, names):
                is_measured = process and uuid and size
                ours[card][name] = ours[card].get(name, 0) + (int(size) * MIB if is_measured else 0)
                unmeasured[card] |= set() if is_measured else {name}
    found = {}
    for index, uuid, used, free in known:
        total = (int(used) + int(free)) * MIB
        found[index] = MemoryDevice(total, int(used) * MIB, ours[uuid], frozenset(unmeasured[uuid]))
    return found, {row[0]: row[1] for row in known}


def list_processes(groups: Mapping[str, str], root: str = "/sys/fs/cgroup") -> dict[int, str]:
    """Process -> instance, of all processes in control groups of instances and below those."""
    found: dict[int, str] = {}
    for name, group in groups.items():
        if not group.startswith("/"):
            continue
        for folder, _, files in os.walk(root + group):
            if "cgroup.procs" in files:
                found |= {int(line): name for line in read(f"{folder}/cgroup.procs").split() if line.isdigit()}
    return found


def own_memory(group: str, root: str = "/sys/fs/cgroup") -> int:
    """Bytes of a control group that the kernel cannot take back: without files that it can read again."""
    rows = dict(line.split(" ", 1) for line in read(f"{root}{group}/memory.stat").splitlines() if " " in line)
    return sum(int(rows[key]) for key in ("anon", "shmem", "kernel") if rows.get(key, "").isdigit())


def parse_memory(declared: str, total: int) -> int:
    """An amount of memory such as 48G, or a share of the total such as 80%, in bytes."""
    if declared.endswith("%"):
        return total * int(declared[:-1]) // 100
    return int(declared[:-1]) << {"M": 20, "G": 30, "T": 40}[declared[-1]]


def read_host(groups: Mapping[str, str], declared: str, meminfo: str = "/proc/meminfo") -> MemoryDevice | None:
    """The memory of the host, at most the declared budget; None if the kernel does not tell.

    Other processes count as far as they leave less than the budget.
    """
    rows = {row[1]: int(row[2]) << 10 for row in map(MEMINFO_ROW.match, read(meminfo).splitlines()) if row}
    if len(rows) < 2:
        return None
    ours = {name: own_memory(group) for name, group in groups.items() if group.startswith("/")}
    total, used = rows["MemTotal"], rows["MemTotal"] - rows["MemAvailable"]
    budget = parse_memory(declared, total)
    if budget < total:
        # memory outside the budget is the other processes' first
        foreign = max(0, used - sum(ours.values()) - (total - budget))
        total, used = budget, foreign + sum(ours.values())
    return MemoryDevice(total, used, ours)


@dataclass(frozen=True)
class CardMemorySample:
    """The cards as nvidia-smi told of them, with the times of its first question and its last answer."""

    devices: Mapping[str, MemoryDevice] = field(default_factory=dict)
    uuids: Mapping[str, str] = field(default_factory=dict)
    """Index -> UUID."""
    began: float = -math.inf
    ended: float = -math.inf


class CardSampler:
    """Asks nvidia-smi in a thread of its own, for it may hang: nothing waits for it."""

    def __init__(self) -> None:
        self.notify: Callable[[], None] = lambda: None
        """Called after each answer."""
        self.sample = CardMemorySample()
        self.thread: threading.Thread | None = None
        self.processes: list[subprocess.Popen[bytes]] = []
        self.error = ""
        """The fault of the latest question, which the journal has."""

    def look(self, groups: Mapping[str, str], since: float) -> Mapping[str, MemoryDevice]:
        """The cards as they are known, and ask anew if that is no longer recent; nothing without a recent answer.

        Args:
            groups: Instance -> its control group.
            since: A question before this does not count, for a unit has changed.
        """
        now, sample = monotonic(), self.sample
        is_due = sample.began < since or now - sample.began >= SAMPLE_S
        if is_due and not (self.thread and self.thread.is_alive()):
            self.thread = threading.Thread(target=self._take, args=(dict(groups),), daemon=True)
            self.thread.start()
        is_recent = sample.began >= since and now - sample.ended <= RECENT_S
        return sample.devices if is_recent else {}

    def _take(self, groups: Mapping[str, str]) -> None:
        began = monotonic()
        devices: dict[str, MemoryDevice] = {}
        uuids: dict[str, str] = {}
        try:
            devices, uuids = self.query(list_processes(groups))
            error = "" if devices else "nvidia-smi gives no whole answer"
        except Exception as found:
            # without an answer of this thread, no model starts on a card
            error = f"{type(found).__name__}: {found}"
        if error and error != self.error:
            with suppress(OSError):  # a journal that starts again
                print(f"<4>the cards are unknown: {error!a}", flush=True)
        self.error = error
        self.sample = CardMemorySample(devices, uuids or self.sample.uuids, began, monotonic())
        self.notify()

    def query(self, owners: Mapping[int, str]) -> tuple[dict[str, MemoryDevice], dict[str, str]]:
        """The cards; nothing where nvidia-smi does not answer, so that none is taken for free."""
        try:
            cards, apps = self._run(
                "--query-gpu=index,uuid,memory.used,memory.free", "--query-compute-apps=pid,gpu_uuid,used_memory"
            )
        except (OSError, subprocess.SubprocessError):
            return {}, {}
        return parse_cards(cards, apps, owners)

    def _run(self, *queries: str) -> list[str]:
        """Answers to questions that are asked at the same time: each takes as long as the driver's library to load."""
        if any(one.poll() is None for one in self.processes):
            raise TimeoutError("an earlier nvidia-smi cannot be ended")
        self.processes = []
        until = monotonic() + SMI_S
        try:
            for query in queries:
                words = [SMI, query, "--format=csv,noheader,nounits"]
                self.processes.append(
                    subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                )
            outputs = [read_answer(one, until) for one in self.processes]
        except Exception:
            # they may be in the kernel, and end when the driver lets them
            for one in self.processes:
                one.kill()
            raise
        return [output.decode(errors="replace") for output in outputs]


def read_answer(process: subprocess.Popen[bytes], until: float) -> bytes:
    """All that nvidia-smi prints, once it has ended with rows: whole lines of a likely size.

    Raises:
        subprocess.SubprocessError: it has not, or not until then.
    """
    found, pipe = b"", process.stdout
    # select(2) takes no descriptor from 1024 on, and each client that waits has one
    poller = select.poll()
    if pipe:
        poller.register(pipe, select.POLLIN)
    while pipe and len(found) <= ANSWER_BYTES and poller.poll(max(0.0, until - monotonic()) * 1000):
        if piece := os.read(pipe.fileno(), ANSWER_BYTES):
            found += piece
            continue
        pipe.close()
        # a line that is cut off may have another figure
        is_whole = not found or found.endswith(b"\n")
        if process.wait(max(0.0, until - monotonic())) in SMI_STATUSES and is_whole:
            return found
        break
    raise subprocess.SubprocessError


class RecordReader:
    """Reads JSON objects of files, and again only those that have changed."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {}

    def read(self, path: str) -> dict[str, Any]:
        """The object; empty for none."""
        try:
            found = os.stat(path)
        except OSError:
            return {}
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if path not in self.kept or self.kept[path][0] != stamp:
            self.kept[path] = stamp, read_json(path)
        return self.kept[path][1]


class GatewayCounters:
    """The gateway's counters, by its admin socket."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.progress: dict[str, object] = {}

    def ask(self, method: str, path: str) -> bytes | None:
        """One request; None if the gateway does not answer."""
        link = http.client.HTTPConnection("localhost", timeout=ADMIN_S)
        link.sock = socket.socket(socket.AF_UNIX)
        try:
            link.sock.settimeout(ADMIN_S)
            link.sock.connect(self.path)
            link.request(method, path, headers={"Connection": "close"})
            answer = link.getresponse()
            return answer.read(ANSWER_BYTES) if answer.status == 200 else None
        except (OSError, ValueError, http.client.HTTPException):
            return None
        finally:
            link.close()

    def look(self, leaving: Iterable[str], names: Iterable[str]) -> tuple[dict[str, int | None], frozenset[str]]:
        """Instance -> requests under way, and those that had some since the last look.

        Args:
            leaving: Instances that leave: the question tells the gateway so again.
            names: All instances.
        """
        found: dict[str, int | None] = dict.fromkeys(names)
        used: set[str] = set()
        rows: Mapping[str, Any] = {}
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            rows = json.loads(self.ask("GET", "/state") or b"{}")["instances"]
        for name in found:
            row = rows.get(name)
            if not isinstance(row, dict) or not isinstance(row.get("under_way"), int):
                continue
            found[name] = row["under_way"]
            if row["under_way"] or self.progress.get(name, row.get("progress")) != row.get("progress"):
                used.add(name)
            self.progress[name] = row.get("progress")
        for name in leaving:
            with suppress(ValueError):
                left = int(self.ask("POST", f"/leave/{name}") or b"")
                found[name] = max(left, found.get(name) or 0)
        return found, frozenset(used)


def boot_id() -> str:
    """That of the running kernel."""
    return read("/proc/sys/kernel/random/boot_id").strip()


def monotonic() -> float:
    """The clock of the ledger; one for all processes of a boot."""
    return time.monotonic()
