"""Role gateway, beside what a generation has of it: clients' keys, and certificates.

They are of no generation, so that what was revoked stays so.
"""

from __future__ import annotations

from pathlib import Path

from rigwright.gateway.certificates import CertificateSpec, subject_alt_names
from rigwright.gateway.deployed_keys import keys_file_path
from rigwright.gateway.secrets_distribution import FLEET, FRONT
from rigwright.model.api_keys import resolve_inventory_path, resolve_secret
from rigwright.model.fleet_schema import front_certificate_name, lender_certificate_name
from rigwright.model.rig import Rig
from roles.operations import secrets


def ensure_gateway_secrets(rig: Rig) -> None:
    """Bring keys of clients and certificates of listeners where they lie."""
    if not rig.gateway:
        return
    folder = Path(rig.inventory).parent
    if rig.gateway.serves_clients:
        secrets.install_client_keys(
            name="Keys of clients", roots=rig.roots, file=str(keys_file_path(rig.inventory, rig.gateway))
        )
    wanted = [
        CertificateSpec(
            listener=name,
            sans=subject_alt_names(one.names, [one.address]),
            cert_file=resolve_inventory_path(folder, one.cert_file) if one.cert_file else None,
            key_file=resolve_secret(folder, one.key_file) if one.key_file else None,
        )
        for name, one in sorted(rig.gateway.listeners.items())
        if one.tls
    ]
    if rig.gateway.fleet.remote:
        names = (front_certificate_name(rig.name),)
        wanted.append(CertificateSpec(FRONT, names, between_boxes="client"))
    if rig.gateway.fleet.listener:
        names = (lender_certificate_name(rig.name),)
        wanted.append(CertificateSpec(FLEET, names, between_boxes="server"))
    secrets.install_certificates(name="Certificates", inventory=rig.inventory, roots=rig.roots, wanted=wanted)


def host_key_file_problems(rig: Rig) -> list[str]:
    """Why the host does not take the operator's keys, of which it has newer ones; empty if it takes them."""
    if not (rig.gateway and rig.gateway.serves_clients):
        return []
    refusal = secrets.describe_keys_refusal(rig.roots, str(keys_file_path(rig.inventory, rig.gateway)))
    return [refusal] if refusal else []


def reload_gateway(rig: Rig) -> None:
    """Have a gateway that runs given what has come since: an instance's new key, a certificate that was made anew."""
    secrets.reload_credentials(name="The gateway has them", roots=rig.roots)
