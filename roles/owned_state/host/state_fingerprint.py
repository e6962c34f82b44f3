"""Digests of what a deploy owns on this host: units in force, unit files, processes, paths, and settings around them.

A deploy compares them with those that root wrote down after the last run whose checks all passed. Nothing here decides
what is right: a digest that differs makes the deploy run its checks. Nothing is changed but that record, on `seal`.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

# The present state of a unit, not its target (systemd's own names of properties).
VOLATILE = re.compile(
    r".*Timestamp(Monotonic)?|.*(Current|Peak|Available|Packets|Bytes|Operations|NSec|Elapse)|Exec(Main|Start|Stop|Reload"
    r"|Condition).*|.*(Condition|Assert)Result|(Sub)?State|ActiveState|NRestarts|NAccepted|NConnections|NRefused|Job"
    r"|InvocationID|Next.*|LastTrigger.*|(Control|Main)?PID|Tasks|.*USecNext|Effective.*|StatusText|StatusErrno"
    r"|CanClean|UnitFilePreset|MemoryZSwap.*|RequiresMountsFor|RefUID|WatchdogTimestamp.*|CPUUsage.*|Result|Before|After"
)
# Of what runs and ends, its group and user too; of a timer, when it elapses next.
ONCE = re.compile(rf"{VOLATILE.pattern}|ControlGroup(Id)?|[UG]ID|Can.*")
NEXT = re.compile("next_elapse=[^}]*")
# systemd.unit(5), "System Unit Search Path"
UNIT_FOLDERS = (
    *("/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient", "/etc/systemd/system"),
    *("/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"),
)
KINDS = ("service", "socket", "slice", "target", "timer", "path")
STATUS = re.compile(
    r"^(?:State:\s+[tT].*|(?:TracerPid|Uid|Gid|Groups|Umask|Cap\w+|NoNewPrivs|Seccomp|\w+_allowed_list):.*)$",
    re.MULTILINE,
)
EXECUTABLE = re.compile(r"^\S+ ..x. \S+ (\S+ \d+) *(.*)$", re.MULTILINE)
SPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
LIMITS = (
    *("memory.max", "memory.high", "memory.low", "memory.min", "memory.swap.max", "pids.max", "cpu.max", "cpu.weight"),
    *("io.weight", "io.max", "cpuset.cpus", "cpuset.mems", "cgroup.freeze"),
)
# proc(5), sysctl(8): the settings that decide where memory of a process that dies goes
KERNEL = ("kernel/random/boot_id", "kernel/core_pattern", "kernel/core_uses_pid", "fs/suid_dumpable")
IOPRIO_GET = {"x86_64": 252, "aarch64": 31}
MOST = 20_000  # entries of folders: of more, those beyond count by their number
LISTS = ("system.posix_acl_access", "system.posix_acl_default")


def main(words: list[str]) -> int:
    """Print a line for each part: its name and its digest, here and in the record; on `seal`, write the record.

    Args:
        words: JSON: `word`, with which names of units begin; `record`, a path; `exact` and `loose`, paths of folders
            whose entries count with their time of change, or without; `without`, paths below those that do not count;
            `files`, patterns of paths. Then `look`; or `seal`, for which digests follow that must still hold, and what
            is declared.
    """
    asked = json.loads(words[0])
    found = {name: _digest(lines) for name, lines in _parts(asked)}
    record = Path(asked["record"])
    if words[1] == "seal":
        if json.loads(words[2]) == found:
            _write_record(record, {**found, "declared": words[3]})
        return 0
    known: dict[str, str] = {}
    with suppress(OSError, ValueError):
        if record.lstat().st_uid == 0:
            known = json.loads(record.read_text())
    for name in (*found, "declared"):
        sys.stdout.write("\0".join(("4", "part", name, found.get(name, ""), str(known.get(name, "")), "")))
    return 0


def _write_record(record: Path, found: dict[str, str]) -> None:
    new = Path(f"{record}.rigwright-new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(json.dumps(found))
    new.rename(record)


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


def _parts(asked: dict[str, object]) -> Iterator[tuple[str, Iterable[str]]]:
    word: str = asked["word"]  # type: ignore[assignment]
    units = _units(word)
    yield "units", units.values()
    yield "unit_files", _unit_files(word)
    groups = sorted({found[1] for text in units.values() if (found := re.search(r"^ControlGroup=(/.+)$", text, re.M))})
    yield "processes", _processes(groups)
    exact: list[str] = asked["exact"]  # type: ignore[assignment]
    loose: list[str] = asked["loose"]  # type: ignore[assignment]
    patterns: list[str] = asked["files"]  # type: ignore[assignment]
    without: list[str] = asked["without"]  # type: ignore[assignment]
    yield "files", (line for folder in exact for line in _tree(folder, without, exact=True))
    yield "folders", (line for folder in loose for line in _tree(folder, without, exact=False))
    yield "host", (*_matching(patterns), *(f"{name} {_text(f'/proc/sys/{name}')}" for name in KERNEL))


def _units(word: str) -> dict[str, str]:
    """Unit -> its properties, as systemd has them in force; and the manager's environment."""
    # systemd forgets a service that has ended, and a pattern matches only the units that it remembers
    lying = {one.name for folder in UNIT_FOLDERS for one in _entries(folder) if one.name.startswith(word)}
    names = sorted(name for name in lying if name.rpartition(".")[2] in KINDS and "@" not in name)
    show = ["systemctl", "show", "--", *names, f"{word}*"]
    shown = subprocess.run(show, capture_output=True, text=True, check=False).stdout
    found = {}
    for block in shown.split("\n\n"):
        volatile = ONCE if "\nType=oneshot\n" in f"\n{block}\n" else VOLATILE
        lines = sorted(
            NEXT.sub("", line) for line in block.splitlines() if not volatile.fullmatch(line.partition("=")[0])
        )
        name = next((line[3:] for line in lines if line.startswith("Id=")), "")
        state = re.search(r"^ActiveState=(.*)$", block, re.M)
        # a service starts and ends; its processes are another part
        if state and (not name.endswith(".service") or state[1] == "failed"):
            lines.append(state[0])
        found[name] = "\n".join(lines)
    manager = ["systemctl", "show", "--property=Environment"]
    found[""] = subprocess.run(manager, capture_output=True, text=True, check=False).stdout
    return found


def _unit_files(word: str) -> Iterator[str]:
    """The files where systemd looks for units: of names of ours, for all units of a kind, and links that start ours."""
    for folder in UNIT_FOLDERS:
        for entry in _entries(folder):
            kind = entry.name.rpartition(".")[2]
            if entry.name.startswith(word) or entry.name in {f"{one}.d" for one in KINDS}:
                yield from _tree(entry.path, (), exact=True)
            elif entry.is_symlink():
                to = os.readlink(entry.path)
                if to == "/dev/null" or word in to:
                    yield f"{entry.path} {to}"
            elif kind in ("wants", "requires", "upholds"):
                yield from (one.path for one in _entries(entry.path) if one.name.startswith(word))


def _processes(groups: list[str]) -> Iterator[str]:
    read_priority = ctypes.CDLL(None, use_errno=True).syscall
    number = IOPRIO_GET.get(os.uname().machine)
    for group in groups:
        at = f"/sys/fs/cgroup{group}"
        for name in LIMITS:
            yield f"{group} {name} {_text(f'{at}/{name}')}"
        for folder, _, _ in os.walk(at):
            for pid in _text(f"{folder}/cgroup.procs").split():
                with suppress(OSError, IndexError):  # it ended meanwhile
                    yield f"{folder} {pid} {read_priority(number, 1, int(pid)) if number else 0} {_process(pid)}"


def _process(pid: str) -> str:
    at = f"/proc/{pid}"
    fields = [
        _text(f"{at}/stat").rpartition(")")[2].split()[19],
        *STATUS.findall(_text(f"{at}/status")),
        *(_text(f"{at}/{name}") for name in ("cmdline", "environ", "limits", "oom_score_adj", "mountinfo", "cgroup")),
        os.readlink(f"{at}/exe"),
        *(os.readlink(f"{at}/ns/{space}") for space in SPACES),
        *sorted({line.partition(":")[0] for line in _text(f"{at}/net/dev").splitlines()}),
        *sorted({f"{place} {path}" for place, path in EXECUTABLE.findall(_text(f"{at}/maps")) if path.startswith("/")}),
        *sorted({_thread(f"{at}/task/{thread}/stat") for thread in os.listdir(f"{at}/task")}),
    ]
    return hashlib.sha256("\0".join(fields).encode(errors="surrogateescape")).hexdigest()


def _thread(path: str) -> str:
    """Niceness, policy and priority (proc(5), fields 19, 41 and 40)."""
    fields = _text(path).rpartition(")")[2].split()
    return " ".join((fields[16], fields[38], fields[37])) if len(fields) > 38 else ""


def _tree(top: str, without: Sequence[str], *, exact: bool) -> Iterator[str]:
    """A path and all below it: kinds, owners, modes and access lists; where exact, sizes and times of change, too."""
    left = [top]
    count = 0
    while left:
        path = left.pop()
        count += 1
        if path in without or count > MOST:
            continue
        try:
            seen = os.lstat(path)
        except OSError:
            yield f"{path} absent"
            continue
        link = os.readlink(path) if stat.S_ISLNK(seen.st_mode) else ""
        lists = "" if link else ",".join(name for name in _attributes(path) if name in LISTS)
        when = f" {seen.st_ino} {seen.st_size} {seen.st_ctime_ns}" if exact and not stat.S_ISDIR(seen.st_mode) else ""
        yield f"{path} {seen.st_mode:o} {seen.st_uid} {seen.st_gid} {lists} {link}{when}"
        if stat.S_ISDIR(seen.st_mode):
            left += [entry.path for entry in _entries(path)]
    yield f"{top} {count if exact else ''}"


def _matching(patterns: Iterable[str]) -> Iterator[str]:
    """Files of packages and settings around ours, by patterns: with their times of change."""
    for pattern in patterns:
        for path in glob.glob(pattern):
            with suppress(OSError):
                seen = os.lstat(path)
                device = "" if stat.S_ISCHR(seen.st_mode) else f"{seen.st_ino} {seen.st_size} {seen.st_ctime_ns}"
                lists = ",".join(name for name in _attributes(path) if name in LISTS)
                yield f"{path} {seen.st_mode:o} {seen.st_uid} {seen.st_gid} {lists} {device}"


def _attributes(path: str) -> list[str]:
    with suppress(OSError):
        return os.listxattr(path, follow_symlinks=False)
    return []


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def _text(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_bytes().decode(errors="surrogateescape")
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
