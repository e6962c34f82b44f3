"""The survey: a box looked at over SSH in one round trip, before any inventory names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paramiko import SSHException
from pyinfra.api.config import Config
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State

from rigwright.inventory import connection_data
from rigwright.render import render
from rigwright.survey import box_survey
from roles import root_shell
from roles.connection_failures import describe_connect_error, silence_paramiko_log
from roles.host_key_probe import HostKeyUnavailable

WHOLE = 600.0  # seconds for all of it: it writes little between its slow commands
LIMIT = 120.0  # seconds without a byte: each of the survey's slow commands ends itself after 20


def survey_host(name: str, connection: Mapping[str, object], *, sudo: bool) -> box_survey.BoxSurvey:
    """Connect to a box and survey it.

    Args:
        name: What to call it in messages of pyinfra's.
        connection: The inventory's `ssh_` keys.
        sudo: Look as root, through sudo.

    Raises:
        HostKeyUnavailable: no connection, no password-less sudo, or an answer that is none.
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
        raise HostKeyUnavailable(f"{error}{hint}") from None
    except (PyinfraError, SSHException, OSError, EOFError) as error:
        raise HostKeyUnavailable(describe_connect_error(error)) from None
    finally:
        if connector.client is not None:
            connector.client.close()
    try:
        return box_survey.parse_survey(answer.lines)
    except ValueError as error:
        raise HostKeyUnavailable((answer.complaint or str(error)) + hint) from None
