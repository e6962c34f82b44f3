"""First contact over SSH: the host key, and the survey of a host that no inventory names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import paramiko
from paramiko import SSHException
from pyinfra.api.config import Config
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.connectors.sshuserclient.client import SSHClient

from rigwright.declaration.connection import HostKey
from rigwright.inventory import connection_data
from rigwright.render import render
from rigwright.survey import box_survey
from roles import root_shell
from roles.connection_failures import address_of, describe_connect_error, silence_paramiko_log, silence_pyinfra_log
from roles.ssh_transport import HostKeyRejected, as_host_key, close_client, unreadable_known_hosts_lines


class HostKeyUnavailable(Exception):
    """The box cannot be looked at; the text is one line for the operator."""


@dataclass(frozen=True)
class ProbedHostKey:
    """A host's key, as it was found."""

    found: HostKey
    expected: HostKey | None
    """The declared one, or else that of known_hosts; None where neither has one."""
    skipped: tuple[str, ...] = ()
    """FILE:LINE of lines of known_hosts that could not be read: one of them may be this host's."""


class _HostKeyOnlyAuth:
    """paramiko's `auth_strategy` of a connection that only looks at the host's key."""

    found: HostKey

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Note the key, which is the one that was expected."""
        self.found = as_host_key(transport.get_remote_server_key())


def probe_host_key(name: str, data: Mapping[str, object]) -> ProbedHostKey:
    """Ask a host for its key; nothing of the operator's is sent.

    Args:
        name: The host's, in the inventory.
        data: Its host data, as `rigwright.inventory.connection_data` makes it.

    Raises:
        HostKeyUnavailable: there is no connection.
    """
    seen = _HostKeyOnlyAuth()
    # a key's passphrase would be asked for, for nothing
    keys: dict[str, Any] = {key: value for key, value in data.items() if key != "ssh_key"}
    keys["ssh_paramiko_connect_kwargs"] = {**keys.get("ssh_paramiko_connect_kwargs", {}), "auth_strategy": seen}
    keys["ssh_strict_host_key_checking"] = "yes"
    inventory = Inventory(([(name, keys)], {}))
    State(inventory, Config())  # makes the host's connector
    connector: Any = inventory.get_host(name).connector
    arguments = connector.make_paramiko_kwargs()
    client = SSHClient()
    try:
        with silence_pyinfra_log():
            client.connect(arguments.pop("hostname"), **arguments)
        return ProbedHostKey(seen.found, seen.found)
    except HostKeyRejected as refused:
        return ProbedHostKey(refused.found, refused.expected, unreadable_known_hosts_lines(client))
    except paramiko.BadHostKeyException as other:
        return ProbedHostKey(as_host_key(other.key), as_host_key(other.expected_key))
    except (OSError, EOFError, paramiko.SSHException, PyinfraError) as error:
        raise HostKeyUnavailable(describe_connect_error(error, str(data.get("ssh_hostname") or name))) from None
    finally:
        close_client(client)


WHOLE = 600.0  # seconds for all of it: it writes little between its slow commands
LIMIT = 120.0  # seconds without a byte: each of the survey's slow commands ends itself after 20


def survey_host(name: str, connection: Mapping[str, object], *, sudo: bool) -> box_survey.BoxSurvey:
    """Connect to a box and survey it.

    Args:
        name: Its name in messages of pyinfra's.
        connection: The inventory's `ssh_` keys.
        sudo: Look as root, through sudo.

    Raises:
        HostKeyUnavailable: no connection, no password-less sudo, or an invalid answer.
    """
    hint = "; allow the user sudo without a password, or use --no-sudo" if sudo else ""
    silence_paramiko_log()
    data = {**connection_data("", name, dict(connection)), "_sudo": sudo}
    inventory = Inventory(([(name, data)], {}))
    State(inventory, Config())  # makes the host's connector
    host = inventory.get_host(name)
    connector: Any = host.connector
    try:
        host.connect(show_errors=False, raise_exceptions=True)
        answer = root_shell.run_command(host, render("probe/survey.sh.j2"), limit=LIMIT, whole=WHOLE)
    except root_shell.RootDenied as error:
        raise HostKeyUnavailable(f"{error.denial}{hint}") from None
    except (PyinfraError, SSHException, OSError, EOFError) as error:
        raise HostKeyUnavailable(describe_connect_error(error, address_of(host))) from None
    finally:
        if connector.client is not None:
            close_client(connector.client)
    try:
        return box_survey.parse_survey(answer.lines)
    except ValueError as error:
        raise HostKeyUnavailable((answer.complaint or str(error)) + hint) from None
