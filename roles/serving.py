"""Role serving: keys, then one generation with a hardened unit an instance, activated with a way back."""

from __future__ import annotations

from pyinfra.api import deploy

from rigwright.declaration.edit import Switch
from rigwright.engines import kind_of
from rigwright.gateway.service import ROTATION, rotation
from rigwright.model import keys
from rigwright.model.rig import Rig
from rigwright.plan.desired import Desired, node_of
from rigwright.serving.beside import Beside, beside
from rigwright.serving.doctors import examinations
from rigwright.serving.live import JOB
from rigwright.serving.theirs import Found, Taking
from rigwright.serving.units import OWNED, credential_path
from roles.operations.credentials import credentials
from roles.operations.files import Text, absent, texts
from roles.operations.generations import activated, pruned, written
from roles.operations.jobs import job
from roles.trees import recorded

STOPPING = 60  # seconds that an old process may take to end before the new one starts


@deploy("Serving")
def serving(desired: Desired, switch: Switch | None = None, theirs: Found | None = None) -> None:
    """Bring keys, units and running processes to their state; what is not declared any more goes.

    Args:
        desired: What the rig comes to.
        switch: The instance that is switched, whose clients notice as little as can be.
        theirs: What served before us, in whose place that instance comes.
    """
    rig, wanted = desired.rig, desired.generation
    credentials(
        name="API keys",
        keys={credential_path(rig, i): keys.read(i.api_key_file) if i.api_key_file else None for i in rig.instances},
    )
    if rig.gateway:
        # what judges certificates takes as long to load as all else together
        from roles.gateway import secrets

        secrets(rig)
    written(name="Write generation", rig=rig, wanted=wanted)
    for one in examinations(rig, desired.installations):
        job(name=one.title, unit=one.unit, script=one.script, test=one.test, folder=rig.jobs)
    activated(
        name="Activate generation",
        rig=rig,
        wanted=wanted,
        timeout=max((i.variant.ready_timeout for i in rig.instances), default=0) + STOPPING,
        beside=_beside(desired, switch),
        taking=Taking(theirs, _unit_of(rig, switch)) if switch and theirs else None,
    )
    if rig.gateway:
        from roles.gateway import settled

        settled(rig)
    _log(rig)
    ours = [account.name for account in desired.facts.users if account.ours]
    pruned(name="Prune generations", rig=rig, wanted=wanted, users=ours)
    recorded(name="Record what is installed", rig=rig, wanted=desired)


def _beside(desired: Desired, switch: Switch | None) -> dict[str, Beside]:
    """Unit of the instance that is switched -> what may be started beside the one that runs."""
    rig = desired.rig
    return {
        one.unit: beside(
            rig, one, desired.installations[one.installed_as], f"{JOB}.service", node_of(desired.facts, one)
        )
        for one in rig.instances
        if switch and one.name == switch.instance and not kind_of(one).contained_by
    }


def _unit_of(rig: Rig, switch: Switch) -> str:
    """Of the instance that is switched."""
    return next(one.unit for one in rig.instances if one.name == switch.instance)


def _log(rig: Rig) -> None:
    """How long lines of the gateway's log are kept."""
    name = "Gateway log rotation"
    if rig.gateway:
        texts(name=name, files=[Text(ROTATION, rotation(rig, OWNED))])
    else:
        absent(name=name, paths=[ROTATION])
