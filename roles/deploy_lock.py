"""The deploy lock: one run at a time changes a host. It ends with the run that holds it, however that ends."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any

import gevent
from paramiko import Channel, SSHException
from pyinfra import host, logger, state
from pyinfra.context import ctx_host

from rigwright.host import deploy_lock_state
from rigwright.host.deploy_lock_state import LOCKS, render_holder_record
from rigwright.host.script_output import free_text
from rigwright.monitoring.textfile import DEPLOY_STARTED
from rigwright.render import render
from roles import root_shell

BEAT = 15.0  # seconds between two signs of life
ANSWER = 60  # seconds within which a host that is not waiting answers
SILENCE = 60  # seconds without one after which the host takes a holder for dead: its connection was cut
PATIENCE = 2  # seconds for `rigwright status`, which takes it for an instant to see whether it is free
RENEWAL = 2 * SILENCE  # seconds in which the host must have noticed that our own old connection is gone
NO_SHELL = re.compile(r"account is (?:currently )?not available|nologin", re.IGNORECASE)
"""The message of nologin(8) in place of a command, also as a shell that is missing."""
READ_ONLY = "Read-only file system"
LINES = 1000  # that a host says before it tells something


class DeployLock:
    """One host's deploy lock, held by this process over a channel of its own."""

    def __init__(self, target: Any, doing: str, removing: bool = False, marks: str = "") -> None:
        self.host = target
        self.removing = removing
        self.marks = marks
        self.lost = ""
        self.channel: Channel | None = None
        self.renewals = 0
        self.holder = render_holder_record(doing)

    def acquire(self, patience: int = PATIENCE) -> str:
        """Take it; returns why not, or nothing.

        Args:
            patience: Seconds to wait for another holder.
        """
        values = {"locks": LOCKS, "patience": patience, "silence": SILENCE, "removing": self.removing}
        values |= {"marks": self.marks, "mark": DEPLOY_STARTED}
        script = render("deploy_lock/hold.sh.j2", **values)
        began, limit = time.monotonic(), patience + ANSWER
        try:
            channel = root_shell.start_command(self.host, script, limit)
            # a host may send a letter at a time
            with root_shell.close_after(channel, limit) as is_closed:
                channel.sendall(f"{self.holder}\n".encode())
                refused = _read_refusal(channel, str(self.host.data.get("ssh_user") or ""), is_closed)
        except root_shell.BROKEN as error:
            is_late = isinstance(error, TimeoutError) or time.monotonic() - began >= min(limit, root_shell.OPENING)
            return f"no deploy lock: {f'the host did not answer within {limit} s' if is_late else error}"
        if refused:
            channel.close()
            return refused
        channel.settimeout(None)
        self.channel = channel
        gevent.spawn(self._send_heartbeats, channel)
        return ""

    def end_renewals(self) -> None:
        """Before a new connection: a renewal over the connection that it replaces ends, and tells nothing."""
        self.renewals += 1

    def renew(self) -> None:
        """After a new connection: the host still waits for the old one, so this goes on in the background."""
        self.renewals += 1
        gevent.spawn(self._renew, self.renewals)

    def _renew(self, number: int) -> None:
        refused = self.acquire(RENEWAL)
        # another cut has ended this renewal, and begun the next one
        if number == self.renewals:
            self.lost = refused

    def _send_heartbeats(self, channel: Channel) -> None:
        while not channel.closed:
            try:
                channel.sendall(b".")
            except (OSError, SSHException):
                break
            gevent.sleep(BEAT)
        # a cut connection is made again, and the deploy lock with it; here the host has ended it alone, and may
        # have another
        if channel is self.channel and channel.get_transport().is_active():
            self.lost = "the host released it, as it does when this machine is silent"


def _read_refusal(channel: Channel, user: str, is_closed: Callable[[], bool]) -> str:
    """Why the host gives no deploy lock, or nothing: the first of its lines that tells.

    Args:
        channel: The session.
        user: The login.
        is_closed: Whether the session was closed for its limit.

    Raises:
        TimeoutError: the session was closed before the host told anything.
    """
    words = []
    for line in islice(root_shell.read_bounded_lines(channel.makefile("rb")), LINES):
        words.append(line.decode(errors="replace"))
        with suppress(ValueError):
            return deploy_lock_state.describe_lock_refusal(words)
    complaint = channel.makefile_stderr("rb").readline().decode(errors="replace")
    if is_closed():
        raise TimeoutError
    return describe_denial(complaint or "".join(words[-1:]), user)


def describe_denial(complaint: str, user: str) -> str:
    """Why a host gives the deploy lock to no run of this user, and the remedy."""
    if words := root_shell.describe_sudo_denial(complaint.encode()):
        return str(root_shell.RootDenied(words, user))
    words = free_text(complaint.strip()) or "no answer"
    remedy = 'log in as root, or set "_sudo": True and allow sudo'
    if NO_SHELL.search(words):
        remedy = f"give {user or 'the user'} a login shell on the box (chsh -s /bin/sh), or log in as another user"
    elif READ_ONLY in words:
        remedy = "mount that file system writable"
    return f"the host did not grant the deploy lock ({words}): {remedy}"


_deploy_locks: dict[str, DeployLock] = {}


def find_deploy_lock(target: Any) -> DeployLock | None:
    """The deploy lock that this process has on a host."""
    return _deploy_locks.get(target.name)


def release_deploy_locks() -> None:
    """Give back those that this process has: its next run takes them anew."""
    while _deploy_locks:
        _, mine = _deploy_locks.popitem()
        if mine.channel:
            mine.channel.close()


def acquire_deploy_lock(doing: str, removing: bool = False, marks: str = "") -> bool:
    """Take the deploy lock of the running deploy's host; False after failing this host, and only this one.

    No operation: a plan made while another process changes the host would be wrong too.

    Args:
        doing: The work, for others that want the lock.
        removing: Whether all of ours is taken off the host.
        marks: The file that tells observers that the host is being changed; empty for none.
    """
    # the host itself: a greenlet of our own does not know which one is meant by `host`
    mine = DeployLock(ctx_host.get(), doing, removing, marks)
    refused = mine.acquire()
    if refused:
        logger.error(f"{host.print_prefix}refused: {refused}")
        state.fail_hosts({host})
        return False
    _deploy_locks[host.name] = mine
    return True
