"""The operator's terminal, for as long as a command on a host has it."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import IO

import gevent
from gevent.os import tp_read
from paramiko import Channel

from roles import root

PART = 1 << 15  # bytes


def interactive() -> bool:
    """Whether somebody types, and reads."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def terminal() -> root.Terminal:
    """What a command on a host is to take for its own."""
    return root.Terminal(os.environ.get("TERM", "dumb"), *_size())


def attach(channel: Channel, typed: bool) -> int:
    """Give a command on a host all that comes in here, and show what it says, until it ends; returns its exit status.

    Args:
        channel: The command's.
        typed: Whether it has the operator's terminal: then every key is its, an interrupt too.

    Raises:
        roles.root.BROKEN: the connection is gone.
    """
    channel.settimeout(None)
    with _raw() if typed else nullcontext():
        if typed:
            gevent.get_hub().loop.signal(signal.SIGWINCH).start(lambda: channel.resize_pty(*_size()))
        sending = gevent.spawn(_send, channel)
        errors = gevent.spawn(_copy, channel.recv_stderr, sys.stderr.buffer)
        _copy(channel.recv, sys.stdout.buffer)
        errors.join()
        sending.kill(block=False)
    return channel.recv_exit_status() & 0xFF


def _send(channel: Channel) -> None:
    # a command that has ended reads no more
    with suppress(*root.BROKEN):
        while part := tp_read(sys.stdin.fileno(), PART):
            channel.sendall(part)
        channel.shutdown_write()


def _copy(read: Callable[[int], bytes], into: IO[bytes]) -> None:
    pool = gevent.get_hub().threadpool
    while part := read(PART):
        # who does not read what is written holds this stream up, and nothing else: signs of life go on
        pool.apply(into.write, (part,))
        pool.apply(into.flush)


def _size() -> tuple[int, int]:
    size = shutil.get_terminal_size()
    return size.columns, size.lines


@contextmanager
def _raw() -> Iterator[None]:
    """Every key goes to the host, an interrupt too."""
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
