"""Commands as root on a connected host: the one way to run them outside of pyinfra's own facts and operations."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from paramiko import Channel, SSHException

from rigwright.safe_text import printable, printable_lines
from roles.login_shell import render_line

LIMIT = 3600.0  # seconds without a byte: hashing all weights takes long, and so does a load on a CPU
# seconds until a host has opened a session and taken its command
OPENING = 60.0
# bytes per second that go either way at least, beyond the seconds of a limit, as in roles/weights/host/spec.py
LEAST = 1024
# bytes of an answer: a host that is taken over may send as long as it is read
MOST = 256 << 20
# bytes of complaints, of which the last line counts
KEPT = 8 << 20
PIECE = 1 << 16
LONGEST = 1 << 16  # bytes of a line; one that is longer comes in parts
WORDS = 200  # characters of what sudo has said
# paramiko's errors for a lost connection, and those of a connector without one
BROKEN = (OSError, SSHException, EOFError, AttributeError)


class ConnectionGone(OSError):
    """The connection is gone, or nothing has come over it for too long."""


class HostTooSlow(ConnectionGone):
    """A host answers, but slower than LEAST; the text says what it did in which time."""


class TransferAllowance:
    """The seconds that a command may take: `whole`, or `limit` and one more for each LEAST bytes either way."""

    def __init__(self, limit: float, whole: float | None = None) -> None:
        """Begin to count.

        Args:
            limit: Seconds.
            whole: Seconds for all of it, however much comes; `limit` then counts for nothing.
        """
        self.limit, self.whole, self.size = limit, whole, 0
        self.began = time.monotonic()

    def count(self, size: int) -> None:
        """Count bytes that have gone either way.

        Raises:
            HostTooSlow: the time for them is over.
        """
        self.size += size
        took = time.monotonic() - self.began
        if self.whole is not None:
            if took > self.whole:
                raise HostTooSlow(f"an endless answer, abandoned after {took:.0f} s")
        elif took > self.limit + self.size / LEAST:
            raise HostTooSlow(f"slower than {LEAST} bytes/s: {self.size} bytes in {took:.0f} s, given up")


class RootDenied(ConnectionGone):
    """The user that logs in does not become root; the text says so, with sudo's own words and the remedy."""

    def __init__(self, words: str, user: str) -> None:
        self.denial = f"{ROOT_DENIAL} ({words})"
        rule = shlex.quote(f"{user or 'USER'} ALL=(ALL) NOPASSWD: ALL")
        self.remedy = f"on the box, as root: echo {rule} > /etc/sudoers.d/rigwright"
        if words.endswith("not found"):
            self.remedy = "install sudo on the box, or log in as root"
        super().__init__(f"{self.denial}: {self.remedy}")


ROOT_DENIAL = "cannot become root"
"""Begins the message of a host that refuses root."""


def is_root_denial(message: str) -> bool:
    """Whether a message reports that a host refuses root; verbs count that host as not reached."""
    return ROOT_DENIAL in message


class RootCommandFailed(Exception):
    """A command that fails on the host, in its own words."""


@dataclass(frozen=True)
class RootCommandResult:
    """The end of a command."""

    status: int
    """Its exit status; -1 where a signal has ended it."""
    out: bytes
    err: bytes

    @property
    def lines(self) -> list[str]:
        """Its output's lines."""
        return self.out.decode(errors="replace").splitlines()

    @property
    def complaint(self) -> str:
        """The last line of what it said on standard error; empty for none."""
        said = [line.strip() for line in self.err.decode(errors="replace").splitlines()]
        return next((line for line in reversed(said) if line), "")


def is_connected(target: Any) -> bool:
    """Whether a host's connection is up, as far as is known."""
    transport = target.connector.client.get_transport()
    return transport is not None and transport.is_active()


@dataclass(frozen=True)
class OperatorTerminal:
    """The operator's, which a command on a host is to have."""

    kind: str
    """As TERM has it."""
    columns: int
    lines: int


def start_command(
    target: Any, command: str, limit: float = LIMIT, together: bool = False, terminal: OperatorTerminal | None = None
) -> Channel:
    """Start a shell command; returns its channel, which is to be closed.

    Args:
        target: pyinfra's connected host; where its data says so, root comes through sudo.
        command: For `sh -c`.
        limit: Seconds without a byte after which reading gives up.
        together: Whether standard error comes with standard output.
        terminal: The terminal of the command; none without one.

    Raises:
        ConnectionGone: there is no connection.
    """
    sudo = "sudo -n " if target.data.get("_sudo") else ""
    try:
        channel: Channel = target.connector.client.get_transport().open_session()
        channel.settimeout(limit)
        channel.set_combine_stderr(together)
        # paramiko itself waits without end for a host to take a command
        with close_after(channel, OPENING):
            words = f"{sudo}sh -c {shlex.quote(command)}"
            if terminal:
                channel.get_pty(terminal.kind, terminal.columns, terminal.lines)
                channel.exec_command(words)
            else:
                line, script = render_line(words)
                channel.exec_command(line)
                if script:
                    channel.sendall(script)
    except BROKEN as error:
        raise ConnectionGone(str(error)) from error
    return channel


@contextmanager
def close_after(channel: Channel, seconds: float) -> Iterator[Callable[[], bool]]:
    """Close a channel where the block takes longer: a caller that waits for its host then fails, or finds its end.

    Yields a function that says whether it was closed.
    """
    closed = threading.Event()

    def close() -> None:
        closed.set()
        channel.close()

    late = threading.Timer(seconds, close)
    late.daemon = True
    late.start()
    try:
        yield closed.is_set
    finally:
        late.cancel()


def run_command(
    target: Any,
    command: str,
    stdin: str = "",
    limit: float = LIMIT,
    *,
    whole: float | None = None,
    begin: float | None = None,
    most: int = MOST,
    rest: Callable[[bytes], str | None] | None = None,
    heard: Callable[[bytes], None] | None = None,
) -> RootCommandResult:
    """Run a shell command to its end.

    Args:
        target: As in `start_command`.
        command: As in `start_command`.
        stdin: Its input.
        limit: As in `start_command`; without `whole`, all of it may take so long, and a second more per LEAST bytes.
        whole: Seconds for all of it, however much comes.
        begin: Seconds until the line of `rest`.
        most: Bytes of its output.
        rest: Its further input, by a line of its output, the first of which this is not None: others are left out. It
            has at most `most` of a line, and none where the command ends before. Its errors are raised here.
        heard: Gets each line that it prints after that, as soon as it is whole.

    Raises:
        RootDenied: sudo refuses.
        HostTooSlow: it does not come to an end in that time.
        ConnectionGone: there is no connection, or none any more, or it is silent.
    """
    allowed = TransferAllowance(limit, begin or whole)
    with closing(start_command(target, command, limit)) as channel:
        complaint: list[bytes] = []
        # Both streams share a channel's room: one would stop where the other is full. By the module's name: gevent puts
        # its own class there, and the join of an earlier one would not end.
        reader = threading.Thread(target=_drain_stderr, args=(channel, complaint), daemon=True)
        reader.start()
        out = bytearray()
        with _as_connection_gone(limit):
            send_stdin(channel, stdin.encode(), allowed, last=rest is None)
        last = None
        while rest and last is None:
            with _as_connection_gone(limit):
                _receive_output(channel, allowed, most, out, line=True)
            begun, ended_line, after = out.partition(b"\n")
            if not ended_line:
                break
            last, out = rest(bytes(begun)), after
        allowed.whole = whole
        with _as_connection_gone(limit):
            if rest:
                send_stdin(channel, (last or "").encode(), allowed)
            _receive_output(channel, allowed, most, out, heard=heard)
            status = wait_for_exit(channel, limit)
        reader.join(limit)
    if status < 0 and not is_connected(target):
        raise ConnectionGone("the session ended")
    answer = RootCommandResult(status, bytes(out), b"".join(complaint))
    if status and not out and target.data.get("_sudo") and (words := describe_sudo_denial(answer.err)):
        raise RootDenied(words, str(target.data.get("ssh_user") or ""))
    return answer


def describe_sudo_denial(complaint: bytes) -> str:
    """sudo's message about a command that it did not run; empty where it has none."""
    lines = complaint.decode(errors="replace").splitlines()
    # as sudo begins its lines, also in other languages; and as a shell that finds none
    words = next((line.strip() for line in lines if "sudo: " in line), "")
    if "must have a tty" in words:
        return f"{printable(words)[:WORDS]}; the sudoers file has `Defaults requiretty`: exempt the user from it"
    return printable(words)[:WORDS]


def stream_lines(target: Any, command: str) -> Iterator[str]:
    """Run a shell command; yields the lines of both its outputs as they come, for as long as it takes.

    Raises:
        ConnectionGone: there is no connection, or none any more.
    """
    with closing(start_command(target, command, together=True)) as channel:
        channel.settimeout(None)
        try:
            for line in read_bounded_lines(channel.makefile("rb")):
                yield line.decode(errors="replace").rstrip("\n")
        except BROKEN as error:
            raise ConnectionGone(str(error)) from error
        if channel.recv_exit_status() < 0 and not is_connected(target):
            raise ConnectionGone("the session ended")


def read_bounded_lines(file: Any) -> Iterator[bytes]:
    """The lines of a channel's file: a line without end would take all memory here."""
    return iter(lambda: file.readline(LONGEST), b"")


@contextmanager
def _as_connection_gone(limit: float) -> Iterator[None]:
    try:
        yield
    except HostTooSlow:
        raise
    except BROKEN as error:
        raise ConnectionGone(str(error) or f"no answer for {limit:.0f} s") from error


def send_bytes(channel: Channel, data: bytes, allowed: TransferAllowance) -> None:
    """Send all of it.

    Raises:
        HostTooSlow: the host takes it slower than it may.
        OSError: the connection is gone.
    """
    done = 0
    while done < len(data):
        count = channel.send(data[done : done + PIECE])
        if not count:
            raise OSError("Socket is closed")
        allowed.count(count)
        done += count


def send_stdin(channel: Channel, stdin: bytes, allowed: TransferAllowance, *, last: bool = True) -> None:
    """Send a command what it reads; one that has ended before reads no more.

    Args:
        channel: The command's.
        stdin: Its input.
        allowed: The time that it may take.
        last: Whether that is all.

    Raises:
        HostTooSlow: the host takes it slower than it may.
        OSError: the connection is gone.
    """
    try:
        send_bytes(channel, stdin, allowed)
        if last:
            channel.shutdown_write()
    except OSError as error:
        if isinstance(error, HostTooSlow) or not channel.exit_status_ready():
            raise


def wait_for_exit(channel: Channel, limit: float) -> int:
    """Wait for a command's end; returns its exit status, -1 for none.

    Raises:
        TimeoutError: it does not come within `limit` seconds.
    """
    if not channel.status_event.wait(limit):  # recv_exit_status alone would wait for ever
        raise TimeoutError("no answer")
    return channel.recv_exit_status()


def _receive_output(
    channel: Channel,
    allowed: TransferAllowance,
    most: int,
    found: bytearray,
    *,
    line: bool = False,
    heard: Callable[[bytes], None] | None = None,
) -> None:
    """Add all that comes on standard output, or only what comes with its first line.

    Raises:
        HostTooSlow: it has no end in that time.
        OSError: it is more than so many bytes.
    """
    begun = 0
    while not (line and b"\n" in found) and (piece := channel.recv(PIECE)):
        found += piece
        if heard and b"\n" in piece:
            *whole, left = found[begun:].split(b"\n")
            begun = len(found) - len(left)
            for one in whole:
                heard(bytes(one))
        if len(found) > most:
            raise OSError(f"an answer longer than {most >> 20} MiB")
        allowed.count(len(piece))


def _drain_stderr(channel: Channel, into: list[bytes]) -> None:
    found = bytearray()
    # the other stream reports a lost connection
    with suppress(*BROKEN):
        while piece := channel.recv_stderr(PIECE):
            found += piece
            del found[:-KEPT]
    into.append(bytes(found))


class RootShell:
    """A connected host's shell, for commands that have to succeed."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def run(self, command: str, stdin: str = "") -> str:
        """Run a shell command; returns what it printed on standard output.

        Raises:
            RootCommandFailed: its exit status is not 0.
            ConnectionGone: as `run`.
        """
        answer = run_command(self.target, command, stdin)
        printed = answer.out.decode(errors="replace")
        if answer.status:
            words = answer.err.decode(errors="replace").strip() or printed.strip()[-1000:]
            raise RootCommandFailed(printable_lines(words) or f"exit status {answer.status}")
        return printed
