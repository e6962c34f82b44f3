"""Entries of the fingerprint that are rights of processes: open secrets and devices, locks, namespaces,
and keys in the kernel's memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from checks.survey.host import common
from checks.survey.host.host_entry import LONGEST, HostEntry, text_entry

PROC, NAMESPACES = "/proc", "/run/netns"  # a test has folders for them
MOST_PROCESSES = 20_000
MOST_DESCRIPTORS, MOST_OF_ONE = 200_000, 50_000
"""Descriptors that a run reads: of all processes, root's first, and of one."""
MOST_KEYS = 2000
CONTAINERS = re.compile(
    r"/(?:(?:system|machine)[.]slice/)?(?:docker-|libpod-|cri-containerd-|crio-|lxc[./]|machine[.-]|kubepods)[^/]*"
)
"""Groups of containers, from the top: below it, a user names groups as he likes."""
UNIT = re.compile(r"[^/]+[.](?:service|scope|socket|mount|swap)")
OURS = re.compile(r"rigwright[-_][^/]*[.](?:service|scope|socket)|rw-(?:check|job)-[^/]*[.]service")
LOCK_SHELLS = re.compile(r"/usr/bin/(?:dash|bash|timeout|head)")
"""Programs by which a deploy holds its lock, at the other end of an SSH connection."""
DEVICES = re.compile(r"/dev/(?:nvidia\d+|mem|kmem|port)")
DRIVER_PROGRAMS = re.compile(r"/usr/bin/(?:nvidia-persistenced|nvidia-smi|nv-hostengine|nv-fabricmanager)")
"""Packaged programs that have cards open."""
MEMORY = re.compile(r"/proc/(\d+)/mem")
KEY_TYPES = ("user", "logon", "big_key", "encrypted", "trusted")
"""Keys with a payload that a program has put into the kernel (keyrings(7))."""
SYSTEMD_KEY = "invocation_id: 16"
"""systemd's entry in the keyring of each service, with its length in bytes."""


WRITABLE = 0o200
"""Bit of a descriptor that is open for writing, in the mode of its link (proc(5))."""


class ProcessRights(NamedTuple):
    """A process of the host."""

    pid: int
    uid: int
    program: str
    group: str
    """Its control group."""
    descriptors: tuple[tuple[str, bool], ...]
    """Files that it has open, and whether it may write them."""
    is_complete: bool = True
    """Whether all of its descriptors were read."""

    @property
    def unit(self) -> str:
        """The unit that it belongs to."""
        return unit_in(self.group)

    @property
    def label(self) -> str:
        """Program and unit."""
        return f"{self.program} of {self.unit}"

    @property
    def is_ours(self) -> bool:
        """Whether a unit of ours runs it."""
        return bool(OURS.fullmatch(self.unit))


def program_of(pid: int | str) -> str:
    """The program of a process."""
    with suppress(OSError):
        return os.readlink(f"{PROC}/{pid}/exe")
    return "the kernel"


def group_of(pid: int | str) -> str:
    """The control group of a process."""
    return (common.read(f"{PROC}/{pid}/cgroup") or "").strip().rpartition("::")[2]


def unit_in(group: str) -> str:
    """The unit of the host's manager that has a control group: the first one of its path. Others are named by users."""
    if container := CONTAINERS.match(group):
        return container[0].rpartition("/")[2]
    return next((part for part in group.split("/") if UNIT.fullmatch(part)), group or "no unit")


def unit_of(pid: int | str) -> str:
    """The unit that a process belongs to, by its control group."""
    return unit_in(group_of(pid))


def _descriptors(pid: str) -> Iterator[tuple[str, bool]]:
    with suppress(OSError), os.scandir(f"{PROC}/{pid}/fd") as entries:
        for entry in entries:
            with suppress(OSError):
                path = os.readlink(entry.path)
                if path.startswith("/"):
                    yield path, bool(os.lstat(entry.path).st_mode & WRITABLE)


@lru_cache(maxsize=1)
def list_processes(proc: str) -> tuple[ProcessRights, ...]:
    """Processes of the host, without those of this run: all of its SSH session.

    Args:
        proc: The kernel's folder of processes.
    """
    left = MOST_DESCRIPTORS
    found = []
    session = os.getsid(0)
    for uid, number in sorted(_users(proc))[:MOST_PROCESSES]:
        pid = str(number)
        with suppress(OSError):
            program = program_of(pid)
            if program == "the kernel" or (proc == "/proc" and os.getsid(number) == session):
                continue
            opened = tuple(islice(_descriptors(pid), min(left, MOST_OF_ONE)))
            is_complete = len(opened) < min(left, MOST_OF_ONE)
            left -= len(opened)
            found.append(ProcessRights(number, uid, program, group_of(pid), opened, is_complete))
    return tuple(found)


def _users(proc: str) -> Iterator[tuple[int, int]]:
    """User and number of each process."""
    for name in os.listdir(proc):
        with suppress(OSError):
            if name.isdecimal():
                yield os.stat(f"{proc}/{name}").st_uid, int(name)


def _rows(kind: str, rows: Iterable[tuple[str, str]]) -> Iterator[HostEntry]:
    for key, state in sorted({*rows}):
        yield text_entry(kind, key[:LONGEST], state)


def open_secrets(kind: str, asked: dict[str, Any]) -> Iterator[HostEntry]:
    """A row per program that has a secret of ours open, the memory of a process of ours, or a file of ours to write."""
    processes = list_processes(PROC)
    ours = {str(one.pid) for one in processes if one.is_ours}
    folder = f"{asked['credentials']}/"
    roots = tuple(f"{root}/" for root in asked["ours"]["folders"])
    yield from _rows(
        kind,
        (
            (f"not all descriptors of {one.label} were read", f"user {one.uid}")
            for one in processes
            if not one.is_complete
        ),
    )
    yield from _rows(
        kind,
        (
            (f"{place} open in {one.label}", f"user {one.uid}")
            for one in processes
            if not one.is_ours and one.pid != 1
            for path, is_written in one.descriptors
            if (
                place := path
                if path.startswith(folder) or (is_written and path.startswith(roots))
                else _memory_of(path, ours)
            )
        ),
    )


def _memory_of(path: str, pids: set[str]) -> str:
    """Words for the memory of one of these processes; empty for any other file."""
    matched = MEMORY.fullmatch(path)
    return f"memory of {program_of(matched[1])}" if matched and matched[1] in pids else ""


def open_devices(kind: str, _asked: dict[str, Any]) -> Iterator[HostEntry]:
    """A row per program outside containers that has a card, or the machine's memory, open."""
    yield from _rows(
        kind,
        (
            (f"{path} open in {one.label}", f"user {one.uid}")
            for one in list_processes(PROC)
            if not one.is_ours and not CONTAINERS.match(one.group) and not DRIVER_PROGRAMS.fullmatch(one.program)
            for path, _ in one.descriptors
            if DEVICES.fullmatch(path)
        ),
    )


def held_locks(kind: str, asked: dict[str, Any]) -> Iterator[HostEntry]:
    """A row per program that has the lock of deploys open, and is neither a deploy nor one of our units."""
    folder = f"{asked['locks']}/"
    yield from _rows(
        kind,
        (
            (f"{path} open in {one.label}", f"user {one.uid}")
            for one in list_processes(PROC)
            if not one.is_ours and not LOCK_SHELLS.fullmatch(one.program)
            for path, _ in one.descriptors
            if path.startswith(folder)
        ),
    )


def namespace_processes(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """A row per program of root's, outside containers, in a network namespace that has a name (ip-netns(8))."""
    named: dict[int, str] = {}
    with suppress(OSError):
        for name in sorted(os.listdir(NAMESPACES))[:MOST_KEYS]:
            with suppress(OSError):
                named.setdefault(os.stat(f"{NAMESPACES}/{name}").st_ino, name)
    found = set()
    for one in list_processes(PROC) if named else ():
        with suppress(OSError):
            space = os.stat(f"{PROC}/{one.pid}/ns/net").st_ino
            if not one.uid and space in named and not CONTAINERS.match(one.group):
                found.add((f"{one.label} in network namespace {named[space]}", "runs as root"))
    yield from _rows(kind, found)


def kernel_keys(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """A row per key with a payload in keyrings that root sees (keyrings(7))."""
    for line in common.lines(common.read(f"{PROC}/keys") or "")[:MOST_KEYS]:
        words = line.split(None, 8)
        if len(words) < 9 or words[7] not in KEY_TYPES or {"R", "D"} & {*words[1]}:
            continue
        # the kernel ends a description with a colon and the length of what it holds
        name = words[8].rpartition(":")[0] or words[8]
        if words[8] != SYSTEMD_KEY:
            yield text_entry(kind, f"kernel key {words[7]} {name}"[:LONGEST], f"user {words[5]} permissions {words[4]}")


Reader = Callable[[str, dict[str, Any]], Iterable[HostEntry]]
READERS: dict[str, Reader] = {
    "open_secrets": open_secrets,
    "open_devices": open_devices,
    "held_locks": held_locks,
    "namespace_processes": namespace_processes,
    "kernel_keys": kernel_keys,
}
