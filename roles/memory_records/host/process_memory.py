"""The memory of a control group's processes: RAM by /proc, cards by the driver's library. Standard library only."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable, Mapping

KIB = 1024
MOST_PROCESSES = 4096  # of a control group that are looked at
MOST_CARDS = 64
MOST_BYTES = 1 << 48
LEAST_FALL = 64 << 20  # bytes of a card: less is noise of others
UNKNOWN = (1 << 64) - 1  # nvml.h, NVML_VALUE_NOT_AVAILABLE
TOO_SMALL = 7  # nvml.h, NVML_ERROR_INSUFFICIENT_SIZE
EVENT = re.compile(r"oom_kill ([0-9]{1,15})")
PARENT = re.compile(r"[0-9]{1,10} \(.{0,64}\) [A-Za-z] ([0-9]{1,10}) .{0,2000}", re.DOTALL)
USER = re.compile(r"Uid:\s+([0-9]{1,10})\s[0-9\s]{1,60}")
LINE = re.compile(r"(VmHWM|RssAnon|RssFile|RssShmem):\s+([0-9]{1,12}) kB")
STAT = re.compile(r"(anon|file|shmem|file_mapped) ([0-9]{1,15})")
UUID = re.compile(r"GPU-[0-9a-f-]{8,64}")
NAME = re.compile(r"[ -~]{1,96}")
VERSION = re.compile(r"[0-9.]{1,32}")


class _ProcessUse(ctypes.Structure):
    """nvml.h, nvmlProcessInfo_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _CardUse(ctypes.Structure):
    """nvml.h, nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class CardSample:
    """One card at a moment."""

    def __init__(self, uuid: str, name: str, total: int, used: int, free: int, index: int = 0, others: int = 0) -> None:
        self.uuid, self.name = uuid, name
        self.total, self.free = total, free
        """Bytes."""
        self.used = used
        """Bytes of the looked-at processes; 0 without any."""
        self.index = index
        """Its number, in the order of the PCI bus, as inventories have it."""
        self.others = others
        """Bytes of the other looked-at processes, of other instances."""

    @property
    def foreign(self) -> int:
        """Bytes that the driver reserves and that processes of no instance have."""
        return max(0, self.total - self.free - self.used - self.others)


class DriverLibrary:
    """NVIDIA's management library; without a driver there are no cards."""

    def __init__(self, library: str = "libnvidia-ml.so.1") -> None:
        """Load it, if it is there."""
        self._nvml: ctypes.CDLL | None = None
        try:
            nvml = ctypes.CDLL(library)
            if nvml.nvmlInit_v2() == 0:
                self._nvml = nvml
        except (OSError, AttributeError):
            pass

    def _text(self, call: str, pattern: re.Pattern[str], *arguments: object) -> str:
        text = ctypes.create_string_buffer(96)
        if self._nvml is None or getattr(self._nvml, call)(*arguments, text, ctypes.c_uint(96)) != 0:
            return ""
        found = text.value.decode("ascii", "replace")
        return found if pattern.fullmatch(found) else ""

    @property
    def driver(self) -> str:
        """The driver's version; empty without one."""
        return self._text("nvmlSystemGetDriverVersion", VERSION)

    def read_cards(self, processes: Iterable[int], others: Iterable[int] = ()) -> list[CardSample]:
        """Each card that answers, with the memory of these processes and of others on it."""
        nvml, count = self._nvml, ctypes.c_uint(0)
        if nvml is None or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return []
        known, beside, found = set(processes), set(others), []
        for index in range(min(count.value, MOST_CARDS)):
            card, memory = ctypes.c_void_p(), _CardUse()
            if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(card)) != 0:
                continue
            uuid = self._text("nvmlDeviceGetUUID", UUID, card)
            name = self._text("nvmlDeviceGetName", NAME, card)
            if not uuid or not name or nvml.nvmlDeviceGetMemoryInfo(card, ctypes.byref(memory)) != 0:
                continue
            used, taken = self._used(card, known), self._used(card, beside) if beside else 0
            found.append(CardSample(uuid, name, memory.total, used, memory.free, index, taken))
        return found

    def _used(self, card: ctypes.c_void_p, known: set[int]) -> int:
        nvml, room = self._nvml, 256
        while nvml is not None and room <= 1 << 14:
            count, uses = ctypes.c_uint(room), (_ProcessUse * room)()
            status = nvml.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(count), uses)
            if status == TOO_SMALL:
                room *= 4
                continue
            if status != 0:
                break
            sizes = [int(one.used) for one in uses[: count.value] if one.pid in known and one.used != UNKNOWN]
            return min(sum(sizes), MOST_BYTES)
        return 0


class RamSample:
    """RAM of processes at a moment, bytes. Pages that they share count once."""

    def __init__(self, peak: int = 0, anon: int = 0, file: int = 0, shmem: int = 0) -> None:
        self.peak = peak
        """All that they have, and what the process with the largest fall has had beyond that."""
        self.anon, self.file, self.shmem = anon, file, shmem

    @property
    def now(self) -> int:
        """All that they have."""
        return self.anon + self.file + self.shmem


def read_ram(processes: Iterable[int], group: Mapping[str, int] | None = None) -> RamSample:
    """RAM of processes; one that has ended counts nothing.

    `smaps_rollup` would tell shared pages apart, but its reader needs capabilities, and the kernel walks all pages.

    Args:
        processes: The processes.
        group: Figures of their control group, in which each page counts once.
    """
    rows, known = [], group or {}
    for process in processes:
        lines = _read_short(f"/proc/{process}/status").splitlines()
        rows.append({match[1]: int(match[2]) * KIB for line in lines if (match := LINE.fullmatch(line))})
    sizes = {key: [row.get(key, 0) for row in rows] or [0] for key in ("RssAnon", "RssFile", "RssShmem")}
    anon, file, shmem = (
        min(sum(each), max(*each, known.get(key, sum(each))))
        for each, key in zip(sizes.values(), ("anon", "file_mapped", "shmem"), strict=True)
    )
    fall = max((row.get("VmHWM", 0) - sum(row.get(key, 0) for key in sizes) for row in rows), default=0)
    return RamSample(anon + file + shmem + max(0, fall), anon, file, shmem)


def list_processes(group: str) -> list[int]:
    """The processes of a control group's folder and of those below it."""
    found: list[int] = []
    for folder, _, _ in os.walk(group):
        try:
            with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
                found += [int(line) for line in file.read(1 << 20).split() if line.isdecimal()]
        except OSError:
            continue
        if len(found) >= MOST_PROCESSES:
            break
    return found[:MOST_PROCESSES]


def engine_processes(processes: Iterable[int], main: int, control: int) -> list[int]:
    """Those of a unit's engine: without the program that asks it for its first answer, and what comes from that.

    Args:
        processes: All of the unit's.
        main: Its main one. If that has a user of its own, then all others of the engine have it, too.
        control: That of a command beside it, such as ExecStartPost=; 0 without one.
    """
    known, parents = list(processes), {}
    for process in known:
        if match := PARENT.fullmatch(_read_short(f"/proc/{process}/stat")):
            parents[process] = int(match[1])
    beside = {control}
    # a child may have a lower number than its parent
    while more := {process for process, parent in parents.items() if parent in beside and parent} - beside:
        beside |= more
    user = read_user(main)
    return [one for one in known if one not in beside and (not user or read_user(one) == user)]


def read_user(process: int) -> int:
    """The number of a process's user; 0, root's, for one that has ended."""
    lines = _read_short(f"/proc/{process}/status").splitlines()
    return next((int(match[1]) for line in lines if (match := USER.fullmatch(line))), 0)


def read_group(group: str) -> dict[str, int]:
    """Figures of a control group's folder: peak (where the kernel has it), current, anon, file, shmem, bytes, and
    oom_kill, the processes that the kernel has ended for lack of memory; empty where the group is gone.
    """
    found: dict[str, int] = {}
    for name in ("peak", "current"):
        text = _read_short(f"{group}/memory.{name}").strip()
        if text.isdecimal() and len(text) <= 15:
            found[name] = int(text)
    for line in _read_short(f"{group}/memory.stat").splitlines():
        if match := STAT.fullmatch(line):
            found[match[1]] = int(match[2])
    for line in _read_short(f"{group}/memory.events").splitlines():
        if (match := EVENT.fullmatch(line)) and int(match[1]):
            found["oom_kill"] = int(match[1])
    return found


def _read_short(path: str) -> str:
    """A file of the kernel; empty for none. Without Python's own files, which take three times as long."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(file, 1 << 15).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(file)


MACHINE = re.compile(r"(MemTotal|MemAvailable|SwapFree):\s+([0-9]{1,12}) kB")


def read_machine() -> dict[str, int]:
    """RAM of the machine, bytes: MemTotal, MemAvailable, SwapFree, and the size of /dev/shm."""
    lines = _read_short("/proc/meminfo").splitlines()
    found = {match[1]: int(match[2]) * KIB for line in lines if (match := MACHINE.fullmatch(line))}
    try:
        there = os.statvfs("/dev/shm")  # noqa: S108 (its size alone)
    except OSError:
        return found
    return {**found, "shm": there.f_frsize * there.f_blocks}


class PeakUse:
    """The most that processes have taken over all looks."""

    def __init__(self, library: DriverLibrary) -> None:
        self.library = library
        self.cards: dict[str, int] = {}
        """UUID -> bytes."""
        self.names: dict[str, str] = {}
        """UUID -> the card's name."""
        self.indexes: dict[str, int] = {}
        """UUID -> the card's number."""
        self.ram = 0
        self.last_cards: dict[str, int] = {}
        self.last_ram = RamSample()
        self.begun_free: dict[str, int] = {}
        """UUID -> free bytes at the first look."""
        self.taken: dict[str, int] = {}
        """UUID -> the most by which free bytes have fallen since."""
        self.by_difference = False
        """Whether `cards` has falls of free bytes, because the driver does not name these processes."""

    def look(self, processes: Iterable[int], group: Mapping[str, int] | None = None) -> None:
        """Look once more; with figures of their control group."""
        known = list(processes)
        every = self.library.read_cards(known)
        for one in every:
            fallen = self.begun_free.setdefault(one.uuid, one.free) - one.free
            self.taken[one.uuid] = max(self.taken.get(one.uuid, 0), fallen)
        used = [one for one in every if one.used]
        if self.by_difference and not used:
            self.last_cards = {one.uuid: max(0, self.begun_free[one.uuid] - one.free) for one in every}
            self.cards = {uuid: max(size, self.taken[uuid]) for uuid, size in self.cards.items()}
            self.last_ram = read_ram(known, group)
            self.ram = max(self.ram, self.last_ram.peak)
            return
        self.last_cards = {one.uuid: one.used for one in used}
        self.last_ram = read_ram(known, group)
        self.ram = max(self.ram, self.last_ram.peak)
        for one in used:
            self.names[one.uuid], self.indexes[one.uuid] = one.name, one.index
            self.cards[one.uuid] = max(self.cards.get(one.uuid, 0), one.used)

    def use_differences(self, count: int) -> None:
        """Take falls of free bytes for so many cards where the driver names none of these processes: in a container it
        may list them by other numbers.
        """
        if self.cards:
            return
        most = sorted(self.taken, key=lambda uuid: self.taken[uuid], reverse=True)[:count]
        self.cards = {uuid: self.taken[uuid] for uuid in most if self.taken[uuid] >= LEAST_FALL}
        for one in self.library.read_cards(()) if self.cards else ():
            self.names[one.uuid], self.indexes[one.uuid] = one.name, one.index
        self.by_difference = bool(self.cards)
