"""Processes of Rigwright's units as the kernel sees them, and other processes that touch them."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from checks.survey.host import common, mapped_code, mount_table, systemd_properties

GROUPS = "/sys/fs/cgroup"
# Bytes of what a process has mapped: six times what the 65,530 rows of a kernel take, with usual paths
MAPS = 64 << 20
SHARED = "/dev/shm"  # noqa: S108 # what lies there is looked at
# The limits of the processes of a group, each next to the kernel's own.
KNOBS = (
    *(
        "memory.max",
        "memory.high",
        "memory.low",
        "memory.min",
        "memory.swap.max",
        "memory.swap.high",
        "memory.oom.group",
    ),
    *("memory.zswap.max", "pids.max", "cpu.max", "cpu.weight", "cpu.idle", "cpu.uclamp.max", "cpu.max.burst", "io.max"),
    *("io.weight", "io.bfq.weight", "io.latency", "io.prio.class", "cpuset.cpus", "cpuset.mems"),
    *("cpuset.cpus.partition", "cgroup.freeze", "cgroup.type", "cgroup.max.descendants", "cgroup.max.depth"),
)
SPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
STATUS = re.compile(
    r"^(State|Umask|TracerPid|Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp|Cpus_allowed_list"
    r"|Mems_allowed_list|PPid):[ \t]*(.*?)[ \t]*$",
    re.MULTILINE,
)
INTERFACE = re.compile(r"^ *([^\s:]+):", re.MULTILINE)
LIMIT = re.compile(r"^Max ([a-z ]+?) {2,}(\S+) +(\S+)", re.MULTILINE)
IOPRIO_GET = {"x86_64": 252, "aarch64": 31, "ppc64le": 274, "riscv64": 31, "s390x": 283}
# Control groups of units of ours, and of jobs: below a user's own manager any name can be had.
OURS = re.compile(r"^0::/(rigwright(-[^/]*)?[.]slice/|system[.]slice/rw-job-)", re.MULTILINE)
LIBC = ctypes.CDLL(None, use_errno=True)
LONGEST = 8192  # characters of a word or variable
MANY = 100  # of others' processes
TRIED = 60  # seconds: no attempt of a check takes as long


def look(asked: dict[str, object]) -> dict[str, object]:
    """All of them.

    Args:
        asked: `units`: service -> paths that it is to see as the host does, its program first; `folders`, with
            programs that no package has brought; `views`, which are to show the same as the host's; `engines`,
            the folder of those that only Rigwright is to run; `users`, Rigwright's; `except`, what begins the names of
            units that are Rigwright's to try things in.
    """
    units: dict[str, list[str]] = asked["units"]  # type: ignore[assignment] # by the caller
    groups = _groups(sorted(units))
    files = mapped_code.Code(tuple(asked["folders"]))  # type: ignore[arg-type]
    views: tuple[str, ...] = tuple(asked["views"])  # type: ignore[arg-type]
    found = {unit: _unit(*groups[unit], units[unit], files, views) for unit in units}
    own = {process["pid"] for unit in found.values() for process in unit["processes"]}  # type: ignore[attr-defined]
    spaces = {
        process["spaces"][kind]
        for unit in found.values()
        for process in unit["processes"]  # type: ignore[attr-defined]
        for kind in ("mnt", "net", "user")
    }
    ids = {line.split(":")[2] for line in _passwd() if line.split(":")[0] in asked["users"]}  # type: ignore[operator]
    ids |= {uid for unit in found.values() for one in unit["processes"] for uid in one["status"]["Uid"].split()}  # type: ignore[attr-defined]
    strange = spaces - {*_spaces(1).values()}
    places = {path for _, path in groups.values()}
    others = Others(str(asked["engines"]), ids - {"0"}, str(asked["except"]), strange, places, os.getppid())
    return {
        "units": found,
        "groups": {path: _knobs(path) for path in sorted({one for _, path in groups.values() for one in _above(path)})},
        "first": _process(1, files, told=False),
        "code": files.find_problems(),
        "others": others.find_intruders(own)[:MANY],
        "shared": [*_shared(ids - {"0"})][:MANY],
    }


def _shared(ids: Collection[str]) -> Iterator[str]:
    """The files of users in the host's shared memory: instances have one of their own, which ends with them."""
    with suppress(OSError), os.scandir(SHARED) as entries:
        for one in sorted(entries, key=lambda entry: entry.name):
            with suppress(OSError):
                if str(one.stat(follow_symlinks=False).st_uid) in ids:
                    yield one.path[:LONGEST]


def _groups(units: list[str]) -> dict[str, tuple[int, str]]:
    """Unit -> its main process, and its control group."""
    told = systemd_properties.properties(units, "Id", "MainPID", "ControlGroup")
    found = {unit: (one.get("MainPID", 0), one.get("ControlGroup", "")) for unit, one in told.items()}
    return {unit: found.get(unit, (0, "")) for unit in units}


def _above(path: str) -> list[str]:
    """A control group and all that it is in, but the root."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:end]) for end in range(1, len(parts) + 1)] if path.strip("/") else []


def _knobs(path: str) -> dict[str, str]:
    found = {}
    for knob in KNOBS:
        if (text := common.read(f"{GROUPS}{path}/{knob}")) is not None:
            found[knob] = " ".join(text.split())
    return found


def _pids(path: str) -> list[int]:
    """Processes of a control group and of those in it."""
    found = set()
    for folder, _, files in os.walk(f"{GROUPS}{path}"):
        if "cgroup.procs" in files:
            found |= {int(pid) for pid in (common.read(f"{folder}/cgroup.procs") or "").split()}
    return sorted(found)


def _unit(
    main: int, path: str, places: list[str], files: mapped_code.Code, views: tuple[str, ...]
) -> dict[str, object]:
    pids = _pids(path) if path.strip("/") else []
    processes = [one for pid in dict.fromkeys([*filter(None, [main]), *pids]) if (one := _process(pid, files))]
    return {
        "main": main,
        "group": path,
        "program": os.path.realpath(places[0]) if places else "",
        "processes": processes,
        "elsewhere": [place for place in [*places, *(_covered(main, views) if main else ())] if _other(main, place)],
        "interfaces": INTERFACE.findall(common.read(f"/proc/{main}/net/dev") or "")[:MANY] if main else [],
    }


def _covered(pid: int, views: tuple[str, ...]) -> list[str]:
    """The mounts in a process's own view, and not in the host's, within folders; without those that it may not see."""
    own, host = ({row.point: row.root for row in mount_table.list_mounts(one)} for one in (pid, 1))
    return [at for at, what in own.items() if at not in host and at.startswith(views) and "/inaccessible/" not in what]


def _other(pid: int, place: str) -> bool:
    """Whether a process sees something else at a path than the host does, where the host has it."""
    try:
        there = os.stat(place)
    except OSError:
        return False
    try:
        seen = os.stat(f"/proc/{pid}/root{os.path.realpath(place)}")
    except FileNotFoundError:
        return os.path.exists(f"/proc/{pid}")
    except OSError:
        return False
    return (seen.st_dev, seen.st_ino) != (there.st_dev, there.st_ino)


def _spaces(pid: int) -> dict[str, str]:
    found = {}
    for kind in SPACES:
        with suppress(OSError):
            found[kind] = os.readlink(f"/proc/{pid}/ns/{kind}")
    return found


def _process(pid: int, files: mapped_code.Code, *, told: bool = True) -> dict[str, object] | None:
    """The state of a process; None for one that has ended."""
    status = dict(STATUS.findall(common.read(f"/proc/{pid}/status") or ""))
    if not status or status.get("State", "Z").startswith(("Z", "X")):
        return None
    # a file of its own, whose number belongs to the limit of cores
    status["CoredumpFilter"] = (common.read(f"/proc/{pid}/coredump_filter") or "").strip()
    try:
        exe = os.readlink(f"/proc/{pid}/exe")
        group = next(
            line[3:] for line in common.lines(common.read(f"/proc/{pid}/cgroup") or "") if line.startswith("0::")
        )
    except (OSError, StopIteration):
        return None
    return {
        "pid": pid,
        "exe": exe,
        "words": _zeros(f"/proc/{pid}/cmdline") if told else [],
        "variables": _zeros(f"/proc/{pid}/environ") if told else [],
        "status": status,
        "limits": {name: [soft, hard] for name, soft, hard in LIMIT.findall(common.read(f"/proc/{pid}/limits") or "")},
        "group": group,
        "spaces": _spaces(pid),
        "oom": int((common.read(f"/proc/{pid}/oom_score_adj") or "0").strip() or 0),
        "threads": sorted(set(_threads(pid))),
        "ioprio": _ioprio(pid),
        "code": sorted(files.of(pid)) if told else [],
    }


def _zeros(path: str) -> list[str]:
    """Words that end in zero bytes."""
    return [word[:LONGEST] for word in common.begin(path).split("\0")[:-1]]


def _threads(pid: int) -> Iterator[str]:
    """`NICE POLICY PRIORITY` of each thread (proc(5): fields 19, 41 and 40)."""
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            fields = (common.read(f"/proc/{pid}/task/{thread}/stat") or "").rpartition(")")[2].split()
            if len(fields) > 38:
                yield f"{fields[16]} {fields[38]} {fields[37]}"


def _age(pid: int) -> float:
    """Seconds since a process began."""
    fields = (common.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    ticks = int(fields[19]) if len(fields) > 19 else 0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _ioprio(pid: int) -> int:
    """As ioprio_get(2) has it; 0 where it is not known how to ask."""
    number = IOPRIO_GET.get(platform.machine())
    return max(0, LIBC.syscall(number, 1, pid)) if number else 0


class Others:
    """Processes of no unit of ours that run as our users, in our namespaces, or from our engines."""

    def __init__(
        self, engines: str, ids: set[str], own: str, spaces: set[str], groups: Collection[str] = (), looking: int = 0
    ) -> None:
        self.engines, self.ids, self.own, self.spaces, self.looking = engines, ids, own, spaces, looking
        self.groups = tuple(f"0::{group}/" for group in groups if group.strip("/"))

    def find_intruders(self, ours: set[int]) -> list[dict[str, object]]:
        """`pid`, `what` it does that it must not, and its `words`."""
        return [
            {"pid": pid, "what": what, "words": common.masked(" ".join(_zeros(f"/proc/{pid}/cmdline")[:4])).split(" ")}
            for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())
            if pid not in ours
            for what in self._does(pid)
        ]

    def _does(self, pid: int) -> Iterator[str]:
        group = common.read(f"/proc/{pid}/cgroup") or ""
        # a unit of ours may have started it meanwhile
        if (
            not group
            or (f"0::/system.slice/{self.own}" in group and _age(pid) < TRIED)
            or any(f"{one}/".startswith(self.groups) for one in common.lines(group))
        ):
            return
        status = dict(STATUS.findall(common.read(f"/proc/{pid}/status") or ""))
        if self.ids & {*status.get("Uid", "").split()} and not self._looks(pid):
            yield "runs as a user of ours"
        if self.spaces & set(_spaces(pid).values()):
            yield "is inside the sandbox of an instance"
        if not OURS.search(group):
            maps = common.entire(f"/proc/{pid}/maps", MAPS)
            if maps is None:
                yield "has mapped more than can be looked at"
            elif self._runs(pid, maps):
                yield f"runs from {self.engines}"

    def _looks(self, pid: int) -> bool:
        """Whether it looks here, too, or has ended: some of the survey's own run as user `nobody`, as a unit may.

        Not where one of those before it has ended: a process that forks on and on would never be reported.
        """
        first = pid
        while pid > 1 and pid != self.looking:
            fields = (common.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
            if len(fields) < 2:
                return pid == first
            pid = int(fields[1])
        return pid > 1

    def _runs(self, pid: int, maps: str) -> bool:
        """A process that runs code from there has mapped it, or is a script of it; a process that only reads a file
        there has started nothing."""
        if f" {self.engines}" in maps:
            lines = (mapped_code.MAPPING.match(line) for line in common.lines(maps))
            if any(one and "x" in one[2] and one[4].startswith(self.engines) for one in lines):
                return True
        for word in _zeros(f"/proc/{pid}/cmdline")[:3]:
            if "/" in word and "\0" not in word:
                place = Path(word)
                for path in (Path(os.path.realpath(place.parent)) / place.name, Path(os.path.realpath(word))):
                    if str(path).startswith(self.engines) and path.is_file() and os.access(path, os.X_OK):
                        return True
        return False


def _passwd() -> list[str]:
    return common.lines(common.read("/etc/passwd") or "")
