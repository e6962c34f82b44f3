"""`rigwright host-key`: which keys hosts show, before anybody logs in."""

from __future__ import annotations

import sys

import click

from checks.results import STATUS
from cli.inventory_loading import INVENTORY_ARGUMENT, load_hosts
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_prose
from rigwright.declaration.connection import HostKey
from rigwright.survey.inventory_draft import flatten_text


def render_declaration(key: HostKey) -> str:
    """The inventory's line that holds a host to a key."""
    return f'"ssh_host_key": "{key}",'


@click.command("host-key")
@INVENTORY_ARGUMENT
@LIMIT_OPTION
def host_key(inventory: str, limit: str | None) -> None:
    """Ask every host of INVENTORY for its SSH host key, without logging in, and print what to declare.

    Exit status 0: each has the key that it is expected to have. 1: one has another, or none is known of it. 2: the
    command or the inventory is refused. 3: a host cannot be reached.
    Example: rigwright host-key ~/boxes/rig.py --limit box1
    """
    import pyinfra_cli  # noqa: F401 (it patches the standard library: before anything opens a connection)

    from roles.connection_failures import describe_unreachable_host
    from roles.first_contact import HostKeyUnavailable, probe_host_key

    status = 0
    for name, data in load_hosts(inventory, limit).items():
        try:
            contact = probe_host_key(name, data)
        except HostKeyUnavailable as error:
            print_prose(f"{name}: {describe_unreachable_host(flatten_text(str(error)))}", err=True)
            status = STATUS["not reached"]
            continue
        found, expected = contact.found, contact.expected
        if found == expected:
            where = "as declared" if data.get("ssh_host_key") else "as in known_hosts; to declare it:"
            print_prose(f"{name}: {found.fingerprint} ({found.kind}), {where}")
        else:
            wrong = f"expected {expected.fingerprint}" if expected else "which is unverified"
            print_prose(f"{name}: {found.fingerprint} ({found.kind}), {wrong}")
            print_prose(f"  `{found.comparison_command}` on its own console must print the same; if it does, declare")
            status = status or STATUS["not as declared"]
        if found != expected or not data.get("ssh_host_key"):
            click.echo(f"  {render_declaration(found)}")
    sys.exit(status)
