"""`rigwright key`: client keys and the CA of gateways, and SSH host keys."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from checks.results import STATUS
from cli.inventory_loading import INVENTORY_ARGUMENT, load_host_rig, load_hosts
from cli.lazy_commands import LazyGroup
from cli.shell_completion import LIMIT_OPTION
from cli.tables import is_terminal, print_prose
from rigwright.declaration.connection import HostKey
from rigwright.problems import describe_unknown, format_count
from rigwright.survey.inventory_draft import flatten_text

if TYPE_CHECKING:
    from datetime import datetime

    from rigwright.gateway.certificate_authority import Authority

TRUST_INSTRUCTIONS = """\
{there} {path}, SHA-256
  {fingerprint}
Its key, {key}, stays on this machine: a copy of it can impersonate every gateway of this inventory.
To make clients trust it (standard output has ca.crt):
  curl --cacert ca.crt https://...
  export SSL_CERT_FILE=ca.crt           openai for Python, httpx: it replaces the system's list
  export REQUESTS_CA_BUNDLE=ca.crt      requests, likewise
  export NODE_EXTRA_CA_CERTS=ca.crt     openai for Node, and other programs in it: it adds to the list
  Debian, Ubuntu:  cp ca.crt /usr/local/share/ca-certificates/rigwright.crt && update-ca-certificates
  Firefox: Settings, Certificates, Authorities, Import; Chrome: Settings, Security, Manage certificates"""


@click.group(
    cls=LazyGroup,
    places={
        **{name: ("keys", name) for name in ("make", "rotate", "revoke", "sync")},
        "list": ("keys", "list_"),
        **{name: ("key", name) for name in ("ca", "host")},
    },
)
def key() -> None:
    """Manage keys and certificates."""


@click.command()
@INVENTORY_ARGUMENT
@click.option("--revoke", metavar="BOX", help="Revoke the certificates of this box for connections between boxes.")
def ca(inventory: str, revoke: str | None) -> None:
    """Print the CA certificate of gateways.

    Creates the CA if there is none. Standard error says how clients trust it. Gateways with `cert_file` do not use it.
    With --revoke, prints no certificate; the next deploy brings the list of revoked certificates to the boxes.
    Example: rigwright key ca rig.py > ca.crt
    """
    from rigwright.gateway import certificate_authority
    from rigwright.gateway.gateway_units import certificate_owners

    rigs = [load_host_rig(name, data.get("rig")) for name, data in load_hosts(inventory, None).items()]
    gateways = [rig.gateway for rig in rigs if rig.gateway]
    if not gateways:
        raise click.ClickException(f"{inventory}: no host has a gateway")
    folder, now = (
        Path(inventory).resolve().parent / certificate_authority.FOLDER,
        certificate_authority.certificate_now(),
    )
    try:
        there = certificate_authority.load_authority(folder, now)
        if revoke is not None:
            print_prose(_revoke_certificates(inventory, folder, there, revoke, now))
            return
        if not there and not any(certificate_owners(gateway) for gateway in gateways):
            raise click.ClickException(
                f"{inventory}: no listener uses TLS, and no gateway an instance of another box, so no CA was made: add "
                '"tls": True to a listener first'
            )
        found = there or certificate_authority.ensure_authority(folder, now)
    except (certificate_authority.BrokenAuthority, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(found.pem, nl=False)
    half = "\n  " if is_terminal(err=True) else ""
    print_prose(
        TRUST_INSTRUCTIONS.format(
            there="The CA in" if there else "Created a new CA in",
            path=folder / certificate_authority.CERTIFICATE,
            key=folder / certificate_authority.KEY,
            # a line of 80 columns has room for half of it
            fingerprint=f"{found.fingerprint[:48]}{half}{found.fingerprint[48:]}",
        ),
        err=True,
    )


def _revoke_certificates(inventory: str, folder: Path, there: Authority | None, box: str, now: datetime) -> str:
    """Revoke those of a box; returns what is left to do."""
    from rigwright.gateway import certificate_revocations

    names = certificate_revocations.recorded_names(folder)
    boxes = {name.partition(".")[0] for name in names}
    if box not in boxes or not there:
        unknown = describe_unknown("box with certificates for connections between boxes", box, boxes)
        raise click.ClickException(f"{inventory}: {unknown}")
    number = certificate_revocations.revoke_box(folder, there, box, now)
    deploy = f"`rigwright deploy {inventory}`"
    if not number:
        return f"All certificates of {box} are revoked already; {deploy} brings the list to the boxes."
    return (
        f"Revoked {format_count(number, 'certificate')} of {box}. The other boxes accept a revoked certificate until "
        f"{deploy}, which brings the list and a new certificate to each box."
    )


def render_declaration(key: HostKey) -> str:
    """The inventory's line that holds a host to a key."""
    return f'"ssh_host_key": "{key}",'


@click.command("host")
@INVENTORY_ARGUMENT
@LIMIT_OPTION
def host(inventory: str, limit: str | None) -> None:
    """Print SSH host keys, and the line to declare.

    Does not log in. Exit status: 0, each host has the expected key. 1, a key differs, or none is known. 2, the command
    or the inventory is refused. 3, a host was not reached.
    Example: rigwright key host rig.py --limit box1
    """
    import pyinfra_cli  # noqa: F401 (it patches the standard library: before anything opens a connection)

    from checks.connections import map_hosts
    from roles.connection_failures import describe_unreachable_host
    from roles.first_contact import HostKeyUnavailable, ProbedHostKey, probe_host_key
    from roles.host_pool import TooManyHosts, raise_file_limit

    def probe(pair: tuple[str, dict[str, Any]]) -> ProbedHostKey | HostKeyUnavailable:
        try:
            return probe_host_key(*pair)
        except HostKeyUnavailable as error:
            return error

    status, hosts = 0, load_hosts(inventory, limit)
    try:
        raise_file_limit(len(hosts))
    except TooManyHosts as error:
        raise click.ClickException(f"{inventory}: {error}") from None
    for (name, data), contact in zip(hosts.items(), map_hosts([*hosts.items()], probe), strict=True):
        if isinstance(contact, HostKeyUnavailable):
            print_prose(f"{name}: {describe_unreachable_host(flatten_text(str(contact)))}", err=True)
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
