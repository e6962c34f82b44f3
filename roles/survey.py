"""The survey: a box looked at over SSH in one round trip, before any inventory names it."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paramiko import SSHException
from pyinfra.api.config import Config
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State

from rigwright.render import render
from rigwright.survey import findings as survey
from roles.transport import nodelay

LIMIT = 120.0  # seconds without a byte: each of the survey's slow commands ends itself after 20


class Unreachable(Exception):
    """The box cannot be looked at; the text is one line for the operator."""


def look(name: str, connection: Mapping[str, object], *, sudo: bool) -> survey.Survey:
    """Connect to a box and survey it.

    Args:
        name: What to call it in messages of pyinfra's.
        connection: The inventory's `ssh_` keys.
        sudo: Look as root, through sudo.

    Raises:
        Unreachable: no connection, no password-less sudo, or an answer that is none.
    """
    # a first connection has to remember the box's key somewhere
    known = Path("~/.ssh/known_hosts").expanduser()
    known.parent.mkdir(mode=0o700, exist_ok=True)
    known.touch(mode=0o600)
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # its tracebacks are said in one line here
    data = {**connection, "ssh_paramiko_connect_kwargs": {"transport_factory": nodelay}}
    data.setdefault("ssh_strict_host_key_checking", "accept-new")
    inventory = Inventory(([(name, data)], {}))
    State(inventory, Config())  # makes the host's connector
    host = inventory.get_host(name)
    connector: Any = host.connector
    try:
        host.connect(show_errors=False, raise_exceptions=True)
        out, err = _run(connector.client, sudo)
    except (PyinfraError, SSHException, OSError, EOFError) as error:
        raise Unreachable(" ".join(str(error).split()) or type(error).__name__) from None
    finally:
        if connector.client is not None:
            connector.client.close()
    try:
        return survey.parse(out.decode("ascii", "replace").split("\n"))
    except ValueError as error:
        said = [line for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
        hint = "; allow the user sudo without a password, or use --no-sudo" if sudo else ""
        raise Unreachable((said[-1] if said else str(error)) + hint) from None


def _run(client: Any, sudo: bool) -> tuple[bytes, bytes]:
    script = render("probe/survey.sh.j2")
    channel = client.get_transport().open_session()
    channel.settimeout(LIMIT)
    channel.exec_command(f"{'sudo -n ' if sudo else ''}sh -c {shlex.quote(script)}")
    # one stream after the other is safe: the survey's own standard error is discarded on the box
    return channel.makefile("rb").read(), channel.makefile_stderr("rb").read()
