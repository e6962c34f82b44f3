"""`rigwright ca`: the certificate that clients of our own gateways have to trust."""

from __future__ import annotations

from pathlib import Path

import click

from cli.inventory_loading import INVENTORY_ARGUMENT, load_host_rig, load_hosts
from cli.tables import print_prose
from rigwright.gateway import certificate_authority

TRUST_INSTRUCTIONS = """\
{there} {path}, SHA-256
  {fingerprint}
Its key, {key}, stays on this machine: whoever has it can stand in for every gateway of this inventory.
Clients trust it so (the file is what is printed here on standard output):
  curl --cacert ca.crt https://...
  export SSL_CERT_FILE=ca.crt           openai for Python, httpx: it takes the place of the system's list
  export REQUESTS_CA_BUNDLE=ca.crt      requests, likewise
  export NODE_EXTRA_CA_CERTS=ca.crt     openai for Node, and other programs in it: beside the list
  Debian, Ubuntu:  cp ca.crt /usr/local/share/ca-certificates/rigwright.crt && update-ca-certificates
  Firefox: Settings, Certificates, Authorities, Import; Chrome: Settings, Security, Manage certificates"""


@click.command()
@INVENTORY_ARGUMENT
def ca(inventory: str) -> None:
    """Print the certificate that clients of INVENTORY's gateways have to trust; make the authority if there is none.

    How they do so comes on standard error. Gateways with `cert_file` need none of this. Refused where no
    host has a gateway.
    Example: rigwright ca ~/boxes/rig.py > ca.crt
    """
    if not any(load_host_rig(name, data.get("rig")).gateway for name, data in load_hosts(inventory, None).items()):
        raise click.ClickException(f"{inventory}: no host has a gateway")
    folder, now = (
        Path(inventory).resolve().parent / certificate_authority.FOLDER,
        certificate_authority.certificate_now(),
    )
    try:
        there = certificate_authority.load_authority(folder, now)
        found = there or certificate_authority.ensure_authority(folder, now)
    except (certificate_authority.BrokenAuthority, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(found.pem, nl=False)
    print_prose(
        TRUST_INSTRUCTIONS.format(
            there="The CA in" if there else "Created a new CA in",
            path=folder / certificate_authority.CERTIFICATE,
            key=folder / certificate_authority.KEY,
            fingerprint=found.fingerprint,
        ),
        err=True,
    )
