"""Tries to get out of an instance's sandbox, from inside. Runs on the host as its user, from standard input.

Nothing but Python's own library, 3.10 or newer. Its only word is JSON with lists by name: `processes` (ids of others),
`sockets` (paths), `addresses` (host and port), `families` (of sockets that it may open), `secrets` and `locks` (paths
of files), `folders`, `devices` (paths); `network`, the host's network namespace as /proc names it; and `writes_code`,
whether it may. Prints one line of JSON: what came through, a list of texts by kind of attempt; all empty is what the
sandbox is for. What comes through changes nothing: signal 0, nobody stopped, no byte sent, an empty file that is
removed again.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
# It stops nobody, and ends with who has asked (ptrace(2))
PTRACE_SEIZE = 0x4206
PATIENCE = 1.0  # seconds; what is not there refuses at once, what drops packets never answers
FAMILIES = ("AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_ALG", "AF_BLUETOOTH")
RAW = {int(socket.AF_NETLINK), int(socket.AF_PACKET)}
LIBC = ctypes.CDLL(None, use_errno=True)


def came_through(attempt: Callable[..., object], *arguments: object) -> bool:
    """Whether an attempt was not refused."""
    try:
        attempt(*arguments)
    except (OSError, OverflowError, ValueError):
        return False
    return True


def read(path: str) -> None:
    """Open a file for reading.

    Raises:
        OSError: it was refused.
    """
    Path(path).open("rb").close()


def call(number: int) -> None:
    """Turn a libc call's result into an exception.

    Raises:
        OSError: it was refused.
    """
    if number < 0:
        raise OSError(ctypes.get_errno(), "refused")


def trace(pid: int) -> None:
    """Become a process's tracer, without stopping it.

    Raises:
        OSError: it was refused.
    """
    call(LIBC.ptrace(PTRACE_SEIZE, pid, None, None))


def processes(pids: Iterable[int]) -> list[str]:
    """Other processes that it can signal, trace or read."""
    found = [f"can signal process {pid}" for pid in pids if came_through(os.kill, pid, 0)]
    found += [f"can trace process {pid}" for pid in pids if came_through(trace, pid)]
    paths = [f"/proc/{pid}/{what}" for pid in pids for what in ("environ", "mem", "maps")]
    return found + [f"can read {path}" for path in paths if came_through(read, path)]


def opened(family: int) -> None:
    """Open a socket of a family.

    Raises:
        OSError: it was refused.
    """
    kind = socket.SOCK_RAW if family in RAW else socket.SOCK_STREAM
    socket.socket(family, kind).close()


def connected(family: int, address: tuple[str, int] | str) -> None:
    """Connect to somebody.

    Raises:
        OSError: it was refused, or nobody is there.
    """
    with socket.socket(family) as one:
        one.settimeout(PATIENCE)
        one.connect(address)


def listening(family: int, address: tuple[str, int]) -> None:
    """Listen on an address.

    Raises:
        OSError: it was refused.
    """
    with socket.socket(family) as one:
        one.bind(address)
        one.listen()


def interfaces() -> list[str]:
    """The network interfaces that it sees, beside the loopback one; none where it may not even ask."""
    try:
        return [name for _, name in socket.if_nameindex() if name != "lo"]
    except OSError:
        return []


def network(
    addresses: Iterable[tuple[str, int]], sockets: Iterable[str], allowed: Collection[str] = (), host: str = ""
) -> list[str]:
    """Ways to anybody: the host's network, families of sockets, addresses, and others' unix sockets.

    Args:
        addresses: Of others, and its own.
        sockets: Paths of others'.
        allowed: Families of sockets that it may open.
        host: The host's network namespace.
    """
    names = [name for name in FAMILIES if hasattr(socket, name) and name not in allowed]
    families = {name: int(getattr(socket, name)) for name in names}
    shared = str(Path("/proc/self/ns/net").readlink()) == host
    listens = shared or "AF_INET" not in allowed
    found = [f"can open sockets of {name}" for name, family in families.items() if came_through(opened, family)]
    found += ["is in the host's network"] if shared else [f"has the interface {name}" for name in interfaces()]
    for address in addresses:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        found += [f"can connect to {address[0]} port {address[1]}"] if came_through(connected, family, address) else []
        # in a network of its own nobody else hears it
        if listens and came_through(listening, family, address):
            found.append(f"can listen on {address[0]} port {address[1]}")
    return found + [f"can connect to {path}" for path in sockets if came_through(connected, socket.AF_UNIX, path)]


def written(folder: str) -> None:
    """Make a file in a folder, and remove it again.

    Raises:
        OSError: it was refused.
    """
    path = Path(folder) / f".rigwright-escape-{os.getpid()}"
    path.touch(exist_ok=False)
    path.unlink()


def files(secrets: Iterable[str], locks: Iterable[str], folders: Iterable[str]) -> list[str]:
    """Files that are others': read, locked, or written."""
    found = [f"can read {path}" for path in secrets if came_through(read, path)]
    found += [f"can lock {path}" for path in locks if came_through(lock, path)]
    return found + [f"can write to {folder}" for folder in folders if came_through(written, folder)]


def lock(path: str) -> None:
    """Lock a file or folder, for an instant.

    Raises:
        OSError: it cannot be opened, or somebody has it locked.
    """
    opened = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # it would only have to wait
    finally:
        os.close(opened)


def device(path: str) -> None:
    """Open a device.

    Raises:
        OSError: it was refused.
    """
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


def devices(paths: Iterable[str]) -> list[str]:
    """Devices that it can open."""
    return [f"can open {path}" for path in paths if came_through(device, path)]


def privileges(writes_code: bool) -> list[str]:
    """What would make it more than it is."""
    attempts: dict[str, Callable[[], object]] = {
        "become root": lambda: os.setuid(0),
        "join root's group": lambda: os.setgid(0),
        "make a user namespace": lambda: call(LIBC.unshare(CLONE_NEWUSER)),
        "make a network namespace": lambda: call(LIBC.unshare(CLONE_NEWNET)),
        "mount a file system": lambda: call(LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
        "make a file that runs as its owner": _setuid_file,
        "raise its priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
        "change the host's name": lambda: socket.sethostname(socket.gethostname()),
    }
    if not writes_code:
        attempts["write code and run it"] = lambda: mmap.mmap(
            -1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
    return [f"can {what}" for what, attempt in attempts.items() if came_through(attempt)]


def _setuid_file() -> None:
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
        "processes": processes(asked["processes"]),
        "network": network(
            [tuple(one) for one in asked["addresses"]], asked["sockets"], asked["families"], asked["network"]
        ),
        "files": files(asked["secrets"], asked["locks"], asked["folders"]),
        "devices": devices(asked["devices"]),
        # last: what comes through changes the process that tries
        "privileges": privileges(asked["writes_code"]),
    }
    sys.stdout.write(json.dumps(done) + "\n")


if __name__ == "__main__":
    main()
