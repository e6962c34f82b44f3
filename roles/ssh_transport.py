"""The SSH transport: paramiko's, held to a host's key, without Nagle's algorithm, and ended where a host is gone.

paramiko leaves TCP_NODELAY unset; against a delayed acknowledgement that costs about 40 ms a command, 2 ms without.
"""

from __future__ import annotations

import getpass
import re
import shlex
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

import paramiko
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.api.state import State
from pyinfra.connectors import ssh, ssh_util
from pyinfra.connectors.sshuserclient import client as ssh_client
from pyinfra.connectors.sshuserclient.client import (
    AcceptNewPolicy,
    AskPolicy,
    SSHClient,
    StrictPolicy,
    WarningPolicy,
    append_hostkey,
)

from rigwright.declaration.connection import HostKey
from roles.known_hosts_reader import KnownHosts, load_known_hosts
from roles.login_shell import wrap_channel
from roles.root_shell import OPENING

KEY_PROMPT = "Enter password for private key: "
"""How pyinfra asks for one; the file's name follows."""
ENCRYPTED_KEY = re.compile(r"Private key file \((.+)\) is encrypted, set ssh_key_password to use this key")
"""pyinfra's message about a passphrase for which it does not ask."""
OPTIONS = {
    (socket.IPPROTO_TCP, socket.TCP_NODELAY): 1,
    # a host that lost its power or its network says nothing any more: without these it is waited for up to an hour
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 15,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 15,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 4,
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 75_000,  # milliseconds that what was sent may be unacknowledged
}
"""Socket options of every connection; by them a host is given up after 75 s of silence (tcp(7))."""


def describe_encrypted_key(file: str) -> str:
    """Why a private key with a passphrase is not used, and the way to use it."""
    return (
        f"the private key {file} has a passphrase: `ssh-add {shlex.quote(file)}` gives it to your agent; then log in "
        "without ssh_key in the inventory (init: without --key)"
    )


class UnusableKey(ConnectError):
    """A private key cannot be used; the text is one line."""


class HostKeyRejected(paramiko.SSHException):
    """A host has another key than is expected of it, or nothing is known of it; the text is one line."""

    def __init__(self, found: HostKey, expected: HostKey | None, hostname: str, file: str, name: str) -> None:
        self.found, self.expected = found, expected
        accept = f"rigwright key host {shlex.quote(file)} --limit {name}" if file else "rigwright init"
        known = (
            f"has a different host key than declared: expected {expected.fingerprint}, found {found.fingerprint}"
            if expected
            else f"is unknown: neither the inventory nor known_hosts has its host key, {found.fingerprint}"
        )
        super().__init__(
            f"{hostname} {known} ({found.kind}). Rigwright has sent no data. `{found.comparison_command}` on "
            f"the box's own console prints its key's fingerprint; if that is equal, `{accept}` prints the line to "
            f"declare"
        )


class PinnedTransport(paramiko.Transport):
    """A connection that goes on to its login only with the host that was meant."""

    def __init__(self, sock: Any, expected: HostKey | None, file: str, name: str, **options: Any) -> None:
        super().__init__(sock, **options)
        self.expected, self.file, self.name_of_rig = expected, file, name
        # paramiko waits an hour for a host to open a session
        self.channel_timeout = OPENING

    def start_client(self, event: threading.Event | None = None, timeout: float | None = None) -> None:
        """Agree on keys for the connection, and see whose it is.

        Raises:
            HostKeyRejected: the host's key is not the declared one.
        """
        if self.expected:
            # a host has a key of each kind, and shows the one that is asked for first
            security = self.get_security_options()
            first = [kind for kind in security.key_types if _signs_with(kind, self.expected.kind)]
            security.key_types = (*first, *(kind for kind in security.key_types if kind not in first))
        super().start_client(event, timeout)
        found = as_host_key(self.get_remote_server_key())
        if self.expected and found != self.expected:
            self.close()
            raise self.reject_host_key(found, self.expected)

    def open_session(self, *arguments: Any, **options: Any) -> paramiko.Channel:
        """A session whose commands pass any login shell."""
        channel: paramiko.Channel = wrap_channel(super().open_session(*arguments, **options))
        return channel

    def reject_host_key(self, found: HostKey, expected: HostKey | None, hostname: str = "") -> HostKeyRejected:
        """Why the host that this leads to is not logged in to."""
        return HostKeyRejected(found, expected, hostname or self.name_of_rig, self.file, self.name_of_rig)


def _signs_with(algorithm: str, kind: str) -> bool:
    return algorithm == kind or (kind == "ssh-rsa" and algorithm.startswith("rsa-sha2-"))


def as_host_key(key: paramiko.PKey) -> HostKey:
    """A key of paramiko's as ours."""
    return HostKey(key.get_name(), key.asbytes())


def pinned_transport(sock: Any, *, expected: HostKey | None, file: str, name: str, **options: Any) -> PinnedTransport:
    """A paramiko `transport_factory`; a ProxyCommand is no socket and is left as it is.

    Args:
        sock: The socket of the connection.
        expected: The declared host key; None leaves it to pyinfra and its known_hosts.
        file: The inventory; empty before there is one.
        name: The rig.
        **options: paramiko's.
    """
    if isinstance(sock, socket.socket):
        for option, value in OPTIONS.items():
            sock.setsockopt(*option, value)
    return PinnedTransport(sock, expected, file, name, **options)


_get_private_key = ssh_util.get_private_key
_unknown: Callable[..., None] = StrictPolicy.missing_host_key


def unreadable_known_hosts_lines(client: SSHClient) -> tuple[str, ...]:
    """FILE:LINE of the lines of known_hosts that a connection could not read."""
    hosts = client._host_keys
    return tuple(hosts.skipped) if isinstance(hosts, KnownHosts) else ()


def _refuse_revoked(client: SSHClient, hostname: str, key: paramiko.PKey) -> None:
    hosts = client._host_keys
    if not isinstance(hosts, KnownHosts):
        return
    hosts.refuse_unreadable_revocations()
    if hosts.is_revoked(key):
        found = as_host_key(key)
        raise paramiko.SSHException(
            f"{hostname} has host key {found.fingerprint} ({found.kind}), which known_hosts revokes; Rigwright has "
            f"sent no data"
        )


def _ask_host_key(self: AskPolicy, client: SSHClient, hostname: str, key: paramiko.PKey) -> None:
    """Ask for consent to an unknown key, such as a jump host's, with its fingerprint; on a pipe the key is refused."""
    _refuse_revoked(client, hostname, key)
    found = as_host_key(key)
    unknown = f"known_hosts has no host key for {hostname}, which shows {found.fingerprint} ({found.kind})"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        close_client(client)
        raise paramiko.SSHException(
            f"{unknown}. Rigwright has sent no data. If `{found.comparison_command}` on its own console "
            f"prints the same, add the key with `ssh {hostname}`"
        )
    question = f"{unknown}.\n`{found.comparison_command}` on its own console must print the same. Does it? [y/N] "
    if input(question).lower() != "y":
        raise paramiko.SSHException(f"{hostname}: its host key was not confirmed")
    append_hostkey(client, hostname, key)


def _missing_host_key(self: StrictPolicy, client: SSHClient, hostname: str, key: paramiko.PKey) -> None:
    """The answer to pyinfra about a host that its known_hosts lacks: a declared key was compared before; for any other
    the refusal shows the offered key, which pyinfra's own does not.
    """
    _refuse_revoked(client, hostname, key)
    transport = client.get_transport()
    if not isinstance(transport, PinnedTransport):
        _unknown(self, client, hostname, key)
    elif transport.expected is None:
        transport.close()
        raise transport.reject_host_key(as_host_key(key), None, hostname)


_accept_new: Callable[..., None] = AcceptNewPolicy.missing_host_key
_warn: Callable[..., None] = WarningPolicy.missing_host_key


def _accept_new_host_key(self: AcceptNewPolicy, client: SSHClient, hostname: str, key: paramiko.PKey) -> None:
    _refuse_revoked(client, hostname, key)
    _accept_new(self, client, hostname, key)


def _warn_of_host_key(self: WarningPolicy, client: SSHClient, hostname: str, key: paramiko.PKey) -> None:
    _refuse_revoked(client, hostname, key)
    _warn(self, client, hostname, key)


def _ask_passphrase(prompt: str = KEY_PROMPT, stream: TextIO | None = None) -> str:
    """Ask for a private key's passphrase on a terminal; on a pipe a question would have no answer."""
    if sys.stdin.isatty():
        return getpass.getpass(prompt, stream)
    raise PyinfraError(describe_encrypted_key(prompt.removeprefix(KEY_PROMPT).removesuffix(": ")))


def _load_key(state: State, key_filename: str, key_password: str) -> paramiko.PKey:
    """A private key; pyinfra's own error would end the run of all hosts as a traceback.

    Raises:
        UnusableKey: it cannot be used.
    """
    try:
        return _get_private_key(state, key_filename, key_password)
    except PyinfraError as error:
        encrypted = ENCRYPTED_KEY.fullmatch(str(error))
        raise UnusableKey(describe_encrypted_key(encrypted[1]) if encrypted else str(error)) from None


_forget_file_transfers: Callable[[ssh.SSHConnector], None] = ssh.SSHConnector.disconnect
_connect_connector: Callable[[ssh.SSHConnector], None] = ssh.SSHConnector._connect
_connect_client: Callable[..., None] = SSHClient.connect
_open_jump_channel: Callable[..., paramiko.Channel] = SSHClient.gateway


def close_client(client: SSHClient) -> None:
    """End a connection, and those to its jump hosts, which pyinfra keeps until the process ends."""
    transport = client.get_transport()
    client.close()  # also its connection to the agent
    while transport and isinstance(transport.sock, paramiko.Channel):
        transport = transport.sock.get_transport()
        transport.close()


def _disconnect(self: ssh.SSHConnector) -> None:
    """End a host's connection; pyinfra's own forgets file transfers only."""
    _forget_file_transfers(self)
    if self.client is not None:
        close_client(self.client)


def _connect_anew(self: ssh.SSHConnector) -> None:
    """Connect to a host after the end of its former connection, which pyinfra's own forgets and leaves open."""
    if self.client is not None:
        self.disconnect()
    _connect_connector(self)


def _connect_or_close(self: SSHClient, *arguments: Any, **options: Any) -> None:
    """Connect to a host or a jump host; a failure leaves no connection open."""
    try:
        _connect_client(self, *arguments, **options)
    except BaseException:
        close_client(self)
        raise


def _open_or_close(self: SSHClient, *arguments: Any, **options: Any) -> paramiko.Channel:
    """Open a jump host's channel to the next host; a failure ends the connection to the jump host."""
    try:
        return _open_jump_channel(self, *arguments, **options)
    except BaseException:
        close_client(self)
        raise


AcceptNewPolicy.missing_host_key = _accept_new_host_key  # type: ignore[method-assign]
WarningPolicy.missing_host_key = _warn_of_host_key  # type: ignore[method-assign]
StrictPolicy.missing_host_key = _missing_host_key  # type: ignore[method-assign]
AskPolicy.missing_host_key = _ask_host_key  # type: ignore[method-assign]
ssh_client.get_host_keys = load_known_hosts
ssh_util.getpass = _ask_passphrase
ssh.get_private_key = _load_key
ssh.SSHConnector.disconnect = _disconnect  # type: ignore[method-assign]
ssh.SSHConnector._connect = _connect_anew  # type: ignore[method-assign]
SSHClient.connect = _connect_or_close  # type: ignore[method-assign]
SSHClient.gateway = _open_or_close  # type: ignore[method-assign]
