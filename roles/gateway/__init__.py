"""Role gateway, beside what a generation has of it: clients' keys, and certificates.

They are of no generation, so that what was revoked stays so.
"""

from __future__ import annotations

from pathlib import Path

from rigwright.gateway.host_keys import keys_file
from rigwright.gateway.pairs import Wanted, sans
from rigwright.model.keys import beside
from rigwright.model.rig import Rig
from roles.operations import gateway


def secrets(rig: Rig) -> None:
    """Bring keys of clients and certificates of listeners where they lie."""
    if not rig.gateway:
        return
    folder = Path(rig.inventory).parent
    gateway.keys(name="Keys of clients", rig=rig, file=str(keys_file(rig, rig.gateway)))
    wanted = [
        Wanted(
            listener=name,
            sans=sans(one.names, [one.address]),
            cert_file=beside(folder, one.cert_file) if one.cert_file else None,
            key_file=beside(folder, one.key_file) if one.key_file else None,
        )
        for name, one in sorted(rig.gateway.listeners.items())
        if one.tls
    ]
    gateway.certificates(name="Certificates", rig=rig, wanted=wanted)


def keys_refusals(rig: Rig) -> list[str]:
    """Why the host does not take the operator's keys, of which it has newer ones; empty if it takes them."""
    if not rig.gateway:
        return []
    refusal = gateway.keys_refusal(rig, str(keys_file(rig, rig.gateway)))
    return [refusal] if refusal else []


def settled(rig: Rig) -> None:
    """Have a gateway that runs given what has come since: an instance's new key, a certificate that was made anew."""
    gateway.credentials_given(name="The gateway has them", rig=rig)
