"""The lease: one run at a time changes a host. It ends with the run that holds it, however that ends."""

from __future__ import annotations

import getpass
import json
import os
import socket
from datetime import datetime, timezone
from typing import Any

import gevent
from paramiko import Channel, SSHException
from pyinfra import host, logger, state
from pyinfra.context import ctx_host

from rigwright.render import render

BEAT = 15.0  # seconds between two signs of life
SILENCE = 60  # seconds without one after which the host takes a holder for dead: its connection was cut
PATIENCE = 2  # seconds for `rigwright status`, which takes it for an instant to see whether it is free
RENEWAL = 2 * SILENCE  # seconds in which the host must have noticed that our own old connection is gone


class Lease:
    """One host's lease, held by this process over a channel of its own."""

    def __init__(self, target: Any, doing: str, removing: bool = False) -> None:
        self.host = target
        self.removing = removing
        self.lost = ""
        self.channel: Channel | None = None
        self.renewals = 0
        holder = {
            "who": f"{getpass.getuser()}@{socket.gethostname()}",
            "pid": os.getpid(),
            "since": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
            "doing": doing,
        }
        self.holder = json.dumps(holder)

    def take(self, patience: int = PATIENCE) -> str:
        """Take it; returns why not, or nothing.

        Args:
            patience: Seconds to wait for another holder.
        """
        script = render("lease/hold.sh.j2", patience=patience, silence=SILENCE, removing=self.removing)
        words = "sudo -n sh" if self.host.data.get("_sudo") else "sh"
        try:
            channel = self.host.connector.client.get_transport().open_session()
            channel.exec_command(f"{words} -c {_quoted(script)}")
            channel.sendall(f"{self.holder}\n".encode())
            said = channel.makefile("r").readline().strip()
            complaint = "" if said else channel.makefile_stderr("r").readline().strip()
        except (OSError, SSHException, EOFError, AttributeError) as error:
            return f"no lease: {error}"
        if said != "taken":
            channel.close()
            return _by(said) if said else _denied(complaint)
        self.channel = channel
        gevent.spawn(self._beat, channel)
        return ""

    def renew(self) -> None:
        """After a new connection: the host still waits for the old one, so this goes on in the background."""
        self.renewals += 1
        gevent.spawn(self._renew, self.renewals)

    def _renew(self, number: int) -> None:
        refused = self.take(RENEWAL)
        # another cut has ended this renewal, and begun the next one
        if number == self.renewals:
            self.lost = refused

    def _beat(self, channel: Channel) -> None:
        while not channel.closed:
            try:
                channel.sendall(b".")
            except (OSError, SSHException):
                break
            gevent.sleep(BEAT)
        # a cut connection is made again, and the lease with it; here the host has ended it alone, and may have another
        if channel is self.channel and channel.get_transport().is_active():
            self.lost = "the host has let go of it, as after a silence of this machine"


def _quoted(script: str) -> str:
    return "'" + script.replace("'", "'\\''") + "'"


def _by(said: str) -> str:
    """Who holds it, from the host's answer `held JSON`."""
    try:
        holder = json.loads(said.removeprefix("held "))
        who = f"{holder['who']} (process {holder['pid']})"
        return f"{who} has been at this host since {holder['since']}: {holder['doing']}; wait until that is done"
    except (ValueError, KeyError, TypeError):
        return f"somebody else is at this host ({said or 'the host said nothing'})"


def _denied(complaint: str) -> str:
    """What a host that gives no lease to anybody has said."""
    return f'the host gave no lease ({complaint or "no answer"}): log in as root, or set "_sudo": True and allow it'


_leases: dict[str, Lease] = {}


def lease_of(target: Any) -> Lease | None:
    """The lease that this process has on a host."""
    return _leases.get(target.name)


def lease(doing: str, removing: bool = False) -> bool:
    """Take the lease of the running deploy's host; False after failing this host, and only this one.

    No operation: a plan made while somebody changes the host would be wrong too.
    """
    # the host itself: a greenlet of our own does not know which one is meant by `host`
    mine = Lease(ctx_host.get(), doing, removing)
    refused = mine.take()
    if refused:
        logger.error(f"{host.print_prefix}refused: {refused}")
        state.fail_hosts({host})
        return False
    _leases[host.name] = mine
    return True
