"""Tries to get out of an instance's sandbox, from inside. Runs on the host as its user, from standard input.

Nothing but Python's own library, 3.10 or newer. Its only word is JSON with lists by name: `processes` (ids of others),
`sockets` (paths), `addresses` (host and port), `families` (of sockets that it may open), `secrets` and `locks` (paths
of files), `folders`, `devices` (paths); `network`, the host's network namespace as /proc names it; and `writes_code`,
whether it may. Prints one line of JSON: the successful attempts, a list of texts by kind of attempt; all are empty if
the sandbox works. A successful attempt changes nothing: signal 0, no process stopped, no byte sent, an empty file that
is removed again.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import socket
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
# It stops no process, and ends with its caller (ptrace(2))
PTRACE_SEIZE = 0x4206
PATIENCE = 1.0  # seconds; a missing listener refuses at once, a firewall that drops packets never answers
FAMILIES = 46  # AF_MAX (linux/socket.h, 6.18); the kernel answers EAFNOSUPPORT to unknown numbers
# A type of sockets that no family has, below SOCK_TYPE_MASK (linux/net.h): the kernel says EINVAL to it once a filter
# has let the call pass, and before it loads a module for the family
NO_TYPE = 11
# Of all architectures but Alpha (asm-generic/unistd.h)
IO_URING_SETUP, IO_URING_ENTER, IO_URING_REGISTER = 425, 426, 427
# linux/io_uring.h; OP_SOCKET came with 5.19
IORING_REGISTER_PROBE, IORING_OP_SOCKET, IORING_ENTER_GETEVENTS = 8, 45, 1
IORING_OFF_CQ_RING, IORING_OFF_SQES = 0x8000000, 0x10000000
IO_URING_OP_SUPPORTED = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def is_permitted(attempt: Callable[..., object], *arguments: object) -> bool:
    """Whether an attempt was not refused."""
    try:
        attempt(*arguments)
    except (OSError, OverflowError, ValueError):
        return False
    return True


def open_for_reading(path: str) -> None:
    """Open a file for reading.

    Raises:
        OSError: it was refused.
    """
    Path(path).open("rb").close()


def check_libc_call(number: int) -> None:
    """Turn a libc call's result into an exception.

    Raises:
        OSError: it was refused.
    """
    if number < 0:
        raise OSError(ctypes.get_errno(), "refused")


def seize_process(pid: int) -> None:
    """Become a process's tracer, without stopping it.

    Raises:
        OSError: it was refused.
    """
    check_libc_call(LIBC.ptrace(PTRACE_SEIZE, pid, None, None))


def reachable_processes(pids: Iterable[int]) -> list[str]:
    """Other processes that it can signal, trace or read."""
    found = [f"can signal process {pid}" for pid in pids if is_permitted(os.kill, pid, 0)]
    found += [f"can trace process {pid}" for pid in pids if is_permitted(seize_process, pid)]
    paths = [f"/proc/{pid}/{what}" for pid in pids for what in ("environ", "mem", "maps")]
    return found + [f"can read {path}" for path in paths if is_permitted(open_for_reading, path)]


def is_family_refused(family: int) -> bool:
    """Whether a filter refuses sockets of a family: the kernel itself does not get as far as opening one."""
    number = LIBC.socket(family, NO_TYPE, 0)
    if number >= 0:
        os.close(number)
        return False
    return bool(ctypes.get_errno() != errno.EINVAL)


def format_families(families: Sequence[int]) -> str:
    """Names of families of sockets, as the standard library has them; the first ten, and the numbers of the others."""
    names = {int(one): one.name for one in socket.AddressFamily}
    numbers = " ".join(map(str, families[10:]))
    more = f" and {len(families) - 10} more families ({numbers})" if len(families) > 10 else ""
    return ", ".join(names.get(one, f"family {one}") for one in families[:10]) + more


class IoUring:
    """An io_uring of one entry (io_uring_setup(2)), by system calls alone. Its requests pass no filter."""

    def __init__(self) -> None:
        """Set one up.

        Raises:
            OSError: it was refused, or the kernel has none.
        """
        # struct io_uring_params: 10 words, and two structs of 10 words each with offsets of the rings' parts
        self._params = (ctypes.c_uint32 * 30)()
        self.file = LIBC.syscall(IO_URING_SETUP, 1, self._params)
        check_libc_call(self.file)

    def close(self) -> None:
        """Give it back."""
        os.close(self.file)

    def has_sockets(self) -> bool:
        """Whether the kernel's io_uring opens sockets: its probe says so (io_uring_register(2))."""
        probe = (ctypes.c_uint8 * (16 + 8 * 256))()
        if LIBC.syscall(IO_URING_REGISTER, self.file, IORING_REGISTER_PROBE, probe, 256) < 0:
            return False
        at = 16 + 8 * IORING_OP_SOCKET  # struct io_uring_probe_op: op, resv, flags of two bytes, resv2
        return bool(probe[at + 2] & IO_URING_OP_SUPPORTED)

    def refuses_family(self, family: int) -> bool:
        """Whether it refuses sockets of a family, as `is_family_refused` says it of socket(2).

        Raises:
            OSError: it takes no requests.
        """
        entries, done = self._params[0], self._params[1]
        (_, tail, mask, _, _, _, array, *_), (done_head, done_tail, done_mask, _, _, cqes, *_) = (
            self._params[10:20],
            self._params[20:30],
        )
        with (
            mmap.mmap(self.file, array + 4 * entries) as requests,
            mmap.mmap(self.file, cqes + 16 * done, offset=IORING_OFF_CQ_RING) as answers,
            mmap.mmap(self.file, 64 * entries, offset=IORING_OFF_SQES) as bodies,
        ):
            (at,) = struct.unpack_from("I", requests, tail)
            slot = at & struct.unpack_from("I", requests, mask)[0]
            # opcode, flags, ioprio, fd (family), off (type), addr, len (protocol), rw_flags, user_data
            struct.pack_into("BBHiQQIIQ24x", bodies, 64 * slot, IORING_OP_SOCKET, 0, 0, family, NO_TYPE, 0, 0, 0, 1)
            struct.pack_into("I", requests, array + 4 * slot, slot)
            struct.pack_into("I", requests, tail, at + 1)
            check_libc_call(LIBC.syscall(IO_URING_ENTER, self.file, 1, 1, IORING_ENTER_GETEVENTS, None, 0))
            (last,) = struct.unpack_from("I", answers, done_tail)
            place = cqes + 16 * ((last - 1) & struct.unpack_from("I", answers, done_mask)[0])
            _, result, _ = struct.unpack_from("QiI", answers, place)
            struct.pack_into("I", answers, done_head, last)
        if result >= 0:
            os.close(result)
        return bool(result < 0 and -result != errno.EINVAL)


def io_uring_sockets(families: Iterable[int]) -> list[str]:
    """Families of sockets that it can open by io_uring, which no unit of ours may use at all."""
    found: list[int] = []
    try:
        ring = IoUring()
    except OSError:
        return []
    # with a thread of the kernel's (IORING_SETUP_SQPOLL) a ring needs no other system call than its setup
    with closing(ring), suppress(OSError):
        found = [one for one in families if not ring.refuses_family(one)] if ring.has_sockets() else []
    return ["can use io_uring", *([f"can open sockets of {format_families(found)} by io_uring"] if found else [])]


def connect_to(family: int, address: tuple[str, int] | str) -> None:
    """Connect to a socket.

    Raises:
        OSError: it was refused, or has no listener.
    """
    with socket.socket(family) as one:
        one.settimeout(PATIENCE)
        one.connect(address)


def listen_on(family: int, address: tuple[str, int]) -> None:
    """Listen on an address.

    Raises:
        OSError: it was refused.
    """
    with socket.socket(family) as one:
        one.bind(address)
        one.listen()


def network_interfaces() -> list[str]:
    """The network interfaces that it sees, beside the loopback one; none where it may not even ask."""
    try:
        return [name for _, name in socket.if_nameindex() if name != "lo"]
    except OSError:
        return []


def network_escapes(
    addresses: Iterable[tuple[str, int]], sockets: Iterable[str], allowed: Collection[str] = (), host: str = ""
) -> list[str]:
    """Ways to anybody: the host's network, families of sockets, addresses, and others' unix sockets.

    Args:
        addresses: Of others, and its own.
        sockets: Paths of others'.
        allowed: Families of sockets that it may open.
        host: The host's network namespace.
    """
    mine = {int(getattr(socket, name)) for name in allowed}
    families = [one for one in range(FAMILIES) if one not in mine]
    reached = [one for one in families if not is_family_refused(one)]
    shared = str(Path("/proc/self/ns/net").readlink()) == host
    listens = shared or "AF_INET" not in allowed
    found = [f"can open sockets of {format_families(reached)}"] if reached else []
    found += io_uring_sockets(families)
    found += ["is in the host's network"] if shared else [f"has the interface {name}" for name in network_interfaces()]
    for address in addresses:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        found += [f"can connect to {address[0]} port {address[1]}"] if is_permitted(connect_to, family, address) else []
        # in a network of its own it reaches no other process
        if listens and is_permitted(listen_on, family, address):
            found.append(f"can listen on {address[0]} port {address[1]}")
    return found + [f"can connect to {path}" for path in sockets if is_permitted(connect_to, socket.AF_UNIX, path)]


def write_and_remove(folder: str) -> None:
    """Make a file in a folder, and remove it again.

    Raises:
        OSError: it was refused.
    """
    path = Path(folder) / f".rigwright-escape-{os.getpid()}"
    path.touch(exist_ok=False)
    path.unlink()


def file_escapes(secrets: Iterable[str], locks: Iterable[str], folders: Iterable[str]) -> list[str]:
    """Files that are others': read, locked, or written."""
    found = [f"can read {path}" for path in secrets if is_permitted(open_for_reading, path)]
    found += [f"can lock {path}" for path in locks if is_permitted(lock_briefly, path)]
    return found + [f"can write to {folder}" for folder in folders if is_permitted(write_and_remove, folder)]


def lock_briefly(path: str) -> None:
    """Lock a file or folder, for an instant.

    Raises:
        OSError: it cannot be opened, or another process has it locked.
    """
    opened = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # it would only have to wait
    finally:
        os.close(opened)


def open_device(path: str) -> None:
    """Open a device.

    Raises:
        OSError: it was refused.
    """
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


def device_escapes(paths: Iterable[str]) -> list[str]:
    """Devices that it can open."""
    return [f"can open {path}" for path in paths if is_permitted(open_device, path)]


def privilege_escapes(writes_code: bool) -> list[str]:
    """The ways by which it would gain privileges."""
    attempts: dict[str, Callable[[], object]] = {
        "become root": lambda: os.setuid(0),
        "join root's group": lambda: os.setgid(0),
        "make a user namespace": lambda: check_libc_call(LIBC.unshare(CLONE_NEWUSER)),
        "make a network namespace": lambda: check_libc_call(LIBC.unshare(CLONE_NEWNET)),
        "mount a file system": lambda: check_libc_call(LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
        "make a file that runs as its owner": _find_setuid_file,
        "raise its priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
        "change the host's name": lambda: socket.sethostname(socket.gethostname()),
    }
    if not writes_code:
        attempts["write code and run it"] = lambda: mmap.mmap(
            -1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
    return [f"can {what}" for what, attempt in attempts.items() if is_permitted(attempt)]


def _find_setuid_file() -> None:
    path = Path("/tmp/.rigwright-escape")  # noqa: S108
    path.touch()
    try:
        path.chmod(0o4755)
    finally:
        path.unlink()


def main() -> None:
    """Try all that the only argument asks for."""
    asked = json.loads(sys.argv[1])
    done = {
        "processes": reachable_processes(asked["processes"]),
        "network": network_escapes(
            [tuple(one) for one in asked["addresses"]], asked["sockets"], asked["families"], asked["network"]
        ),
        "files": file_escapes(asked["secrets"], asked["locks"], asked["folders"]),
        "devices": device_escapes(asked["devices"]),
        # last: a successful attempt changes the process that tries
        "privileges": privilege_escapes(asked["writes_code"]),
    }
    sys.stdout.write(json.dumps(done) + "\n")


if __name__ == "__main__":
    main()
