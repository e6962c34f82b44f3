"""Which system calls processes of units, jobs and containers may make: one definition for all of them.

`@system-service` and the other groups are systemd's (systemd.exec(5), `systemd-analyze syscall-filter`).
"""

from __future__ import annotations

from collections.abc import Sequence

IO_URING = ("io_uring_enter", "io_uring_register", "io_uring_setup")
"""io_uring makes system calls that no filter sees. `IORING_OP_SOCKET` (linux/io_uring.h, since 5.19) opens sockets of
every family, whatever `RestrictAddressFamilies=` says. No program of a unit depends on it: libuv (src/unix/linux.c, of
uvloop) goes on with epoll and threads when `io_uring_setup` fails; nginx uses io_uring on no release (its `aio` is
io_submit(2) or threads); llama.cpp, systemd-socket-proxyd and the exporters, which are Go and Python, do not call it.
"""
FORBIDDEN = (*IO_URING, *("add_key", "keyctl", "request_key"), "userfaultfd")
"""System calls of `@system-service` that no unit, job or container gets, nor by what its kind of engine adds.

keyrings(7) are shared by all processes of a user id, and outlive them. userfaultfd(2) stops the kernel within a copy,
which exploits of the kernel rely on; only debuggers and checkpoints use it.

Three calls that reach the kernel stay. memfd_create(2): libffi writes closures there where memory must not be writable
and executable, and a file in a unit's own /tmp does the same. pidfd_open(2): Python's asyncio waits for children by it,
and pidfd_send_signal(2) needs the permissions of kill(2); pidfd_getfd(2), which takes another process's files, is in no
group that a unit gets.
"""
OF_SERVICES = ("@system-service", "~@privileged @resources")
OF_JOBS = ("@system-service",)
"""Compilers and installers change limits, priorities and owners of their own files, which `@resources` and
`@privileged` forbid.
"""


def filter_lines(added: Sequence[str] = (), *, base: Sequence[str] = OF_SERVICES) -> tuple[str, ...]:
    """The settings of a unit that make up its filter.

    Args:
        added: System calls beside those of `base`. FORBIDDEN comes last, so that none of these is among them.
        base: Values of `SystemCallFilter=`, in their order.
    """
    values = (*base, *([" ".join(added)] if added else []), f"~{' '.join(FORBIDDEN)}")
    return (*(f"SystemCallFilter={value}" for value in values), "SystemCallErrorNumber=EPERM")
