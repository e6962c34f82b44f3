"""Why a host was not connected to, in one line, without the libraries' own logs and tracebacks."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paramiko
from paramiko.ssh_exception import NoValidConnectionsError
from pyinfra.api.state import BaseStateCallback

from rigwright.problems import printable
from roles.ssh_transport import HostKeyRejected, UnusableKey

NOTHING = logging.CRITICAL + 1
LONGEST = 400  # characters; a host may say anything, even before a login
NUMBER = re.compile(r"\[Errno (?:None|-?\d+)\] ")
BRACKETED = re.compile(r"[A-Za-z ]+ \((.*)\)", re.DOTALL)
"""pyinfra's prefix with the kind of an error before its text."""
NO_LOGIN_METHOD = "No authentication methods available"
"""paramiko's message where it has no key to try."""
UNSPOKEN = "no existing session"
"""paramiko's message where a handshake took too long."""
LOGIN_REMEDY = (
    "correct the user or key (inventory: ssh_user, ssh_key; init: USER@HOST, --key), or allow the key there with "
    "ssh-copy-id"
)
ADDRESS_REMEDY = "check the address (inventory: ssh_hostname), and that the box is on"
PORT_REMEDY = "check the port (inventory: ssh_port; init: HOST:PORT), and that sshd runs there"


class ConnectFailureRecorder(BaseStateCallback):
    """Hears from pyinfra which hosts were not connected to."""

    def __init__(self, connected: Callable[[str], object]) -> None:
        self.why: dict[str, str] = {}
        self.reached: set[str] = set()
        self.connected = connected
        """Is called with the name of each host as soon as it is connected."""

    def host_connect(self, state: Any, host: Any) -> None:  # type: ignore[override]
        """Report a connected host."""
        self.reached.add(host.name)
        self.connected(host.name)

    def host_connect_error(self, state: Any, host: Any, error: BaseException) -> None:  # type: ignore[override]
        """Keep why."""
        self.why[host.name] = describe_connect_error(error, address_of(host))


def silence_paramiko_log() -> None:
    """Have paramiko log nothing: its threads tell of a host that does not answer as tracebacks, at any time."""
    logging.getLogger("paramiko").setLevel(NOTHING)


@contextmanager
def silence_pyinfra_log() -> Iterator[None]:
    """Have pyinfra log nothing of how it connects: the caller reports why there is no connection."""
    silence_paramiko_log()
    logger = logging.getLogger("pyinfra")
    before = logger.level
    logger.setLevel(NOTHING)
    try:
        yield
    finally:
        logger.setLevel(before)


def strip_address(reason: str) -> str:
    """The reason of a failed connection without the host's own address: hosts with the same cause have the same."""
    portless = re.sub(r" \(port [0-9]+ of [^()\s]+\)", "", reason)
    return re.sub(r"^((?:cannot be reached: )?)the name \S+ has no", r"\1its name has no", portless)


def describe_unreachable_host(reason: str) -> str:
    """The message about a host that is out of reach."""
    return f"cannot be reached: {reason}" if reason else "cannot be reached"


def address_of(host: Any) -> str:
    """The address of one of pyinfra's hosts, as the inventory has it."""
    return str(host.data.get("ssh_hostname") or host.name)


def describe_connect_error(error: BaseException, address: str = "") -> str:
    """Why there is no connection, for the operator, and the key of the inventory to look at.

    Args:
        error: pyinfra's, while what caused it is its context; or paramiko's own.
        address: The host's, as the inventory has it; empty for unknown.
    """
    for cause in _exception_chain(error):
        if isinstance(cause, NoValidConnectionsError):
            places = dict.fromkeys(
                f"{_describe_error(one)} (port {key[1]} of {key[0]})" for key, one in cause.errors.items()
            )
            refused = all(isinstance(one, ConnectionRefusedError) for one in cause.errors.values())
            remedy = PORT_REMEDY if refused else ADDRESS_REMEDY
            return f"{printable('; '.join(places))[:LONGEST]}: {remedy}"
        if isinstance(cause, (HostKeyRejected, UnusableKey)):
            return printable(str(cause))
        if isinstance(cause, paramiko.PasswordRequiredException):
            return "the private key has a passphrase: add it to ssh-agent"
        if isinstance(cause, paramiko.AuthenticationException):
            said = printable(f"{_describe_login_error(error)} ({_describe_error(cause)})")[:LONGEST]
            return f"{said}: {LOGIN_REMEDY}"
        if NO_LOGIN_METHOD in str(cause):
            return "no SSH key to log in with: name one (init: --key FILE; inventory: ssh_key), or add it to ssh-agent"
        if isinstance(cause, TimeoutError):
            return f"no answer: the connection timed out: {ADDRESS_REMEDY}, or that no firewall drops its packets"
        if UNSPOKEN in str(cause).lower():
            return f"it takes the connection, and does not answer as an SSH server in time: {PORT_REMEDY}"
        if "SSH protocol banner" in str(cause) or isinstance(cause, EOFError):
            return f"it takes the connection, and ends it before it has answered as an SSH server: {PORT_REMEDY}"
        if isinstance(cause, socket.gaierror):
            name = f"the name {printable(address)[:LONGEST]}" if address else "its name"
            remedy = "check the address (inventory: ssh_hostname), and this machine's resolver"
            return f"{name} has no address ({_describe_error(cause)}): {remedy}"
    said = _describe_error(error)
    return printable(found[1] if (found := BRACKETED.fullmatch(said)) else said)[:LONGEST]


def _exception_chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _describe_error(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return NUMBER.sub("", " ".join(text.split())) or type(error).__name__


def _describe_login_error(error: BaseException) -> str:
    found = re.search(r"username=([^,)]+)", str(error))
    user = f" as {found[1]}" if found else ""
    key = re.search(r"key=([^)]+?)[,)]", str(error))
    return f"login{user} is refused with {key[1] if key else 'every key that was tried'}"
