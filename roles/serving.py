"""Role serving: keys, then one generation with a hardened unit an instance, activated with a way back."""

from __future__ import annotations

from pathlib import Path

from pyinfra.api import deploy

from rigwright.declaration import keys
from rigwright.declaration.instances import beside
from rigwright.declaration.rig import Rig
from rigwright.gateway.pairs import Wanted, sans
from rigwright.gateway.service import ROTATION, rotation
from rigwright.host.plan import Desired
from rigwright.serving.units import OWNED, credential_path
from roles.operations import gateway
from roles.operations.credentials import credentials
from roles.operations.files import Text, absent, texts
from roles.operations.generations import activated, pruned, written

STOPPING = 60  # seconds that an old process may take to end before the new one starts


@deploy("Serving")
def serving(desired: Desired) -> None:
    """Bring keys, units and running processes to their state; what is not declared any more goes."""
    rig, wanted = desired.rig, desired.generation
    credentials(
        name="API keys",
        keys={credential_path(rig, i): keys.read(i.api_key_file) if i.api_key_file else None for i in rig.instances},
    )
    _secrets(rig)
    written(name="Write generation", rig=rig, wanted=wanted)
    activated(
        name="Activate generation",
        rig=rig,
        wanted=wanted,
        timeout=max((i.variant.ready_timeout for i in rig.instances), default=0) + STOPPING,
    )
    if rig.gateway:
        # of what was given before, by an instance's key that has changed or a certificate that was made anew
        gateway.credentials_given(name="The gateway has them", rig=rig)
    _log(rig)
    ours = [account.name for account in desired.facts.users if account.ours]
    pruned(name="Prune generations", rig=rig, wanted=wanted, users=ours)


def _log(rig: Rig) -> None:
    """How long lines of the gateway's log are kept."""
    name = "Rotation of the gateway's log"
    if rig.gateway:
        texts(name=name, files=[Text(ROTATION, rotation(rig, OWNED))])
    else:
        absent(name=name, paths=[ROTATION])


def _secrets(rig: Rig) -> None:
    """Keys of the gateway's clients, and its certificates: of no generation, so that what was revoked stays so."""
    if not rig.gateway:
        return
    folder = Path(rig.inventory).parent
    gateway.keys(name="Keys of clients", rig=rig, file=beside(folder, rig.gateway.keys_file))
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
