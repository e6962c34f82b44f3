"""Role weights: locked files, fetched with resumption, verified before they get their name, and verified for good."""

from __future__ import annotations

import shlex

from pyinfra.api import deploy

from rigwright.delivery.tools import Tools, hub_client
from rigwright.model.facts import HostFacts
from rigwright.model.rig import Rig
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import HUB_CLIENT
from rigwright.weights.records import REHASH_STAMP, REHASH_UNITS, recorded, records_folder, rehash_units
from roles import fetching
from roles.operations.files import Text
from roles.operations.units import running, stopped
from roles.tools import environment
from roles.weights.host.records import WRONG


@deploy("Weights")
def weights(rig: Rig, facts: HostFacts) -> None:
    """Fetch what is missing or no longer as it was verified, and have all of it hashed again as time passes."""
    units = rehash_units(rig)
    if not rig.weights:
        stopped(name="No weights to look after", paths=[*units, REHASH_STAMP])
        return
    if rig.bundle:
        for artefact in rig.weights:
            _take(rig, artefact)
    else:
        client = _client(rig, facts)
        if client:
            environment(rig, client, rig.hub_client, "the hub's client", alone=f"{HUB_CLIENT}-")
        count = len(rig.weights)
        title = f"Fetch {rig.weights[0].file}" if count == 1 else f"Fetch {count} files of weights"
        fetching.brought(rig, rig.weights, title, client=client.folder if client else "")
    running(
        name="Weights are hashed again as time passes",
        unit=REHASH_UNITS[0],
        files=[Text(path, text) for path, text in units.items()],
    )


def whole(rig: Rig) -> bool:
    """Whether all files lie on the host of the running deploy as they were verified."""
    return fetching.whole(rig, rig.weights)


def _client(rig: Rig, facts: HostFacts) -> Tools | None:
    """The hub's own client, where it may be needed: a host that has all its files has no use for a package index."""
    return None if whole(rig) else hub_client(rig, facts)


def _take(rig: Rig, one: Artefact) -> None:
    """Have one file from the bundle; a job each, for a disk may have no room for a model twice."""
    wrong, place = f"{records_folder(rig)}/{WRONG}/{recorded(rig, one).record}", rig.weight_path(one)
    fetching.brought(
        rig,
        [one],
        f"Fetch {one.file}",
        # what is known to be wrong is sent at once: the job removes it where nothing was
        present=f'[ ! -e {shlex.quote(wrong)} ] && [ "$(stat -c %s {shlex.quote(place)} 2>/dev/null)" = {one.size} ]',
    )
