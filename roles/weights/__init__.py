"""Role weights: locked files, fetched with resumption, verified before they get their name, and verified for good."""

from __future__ import annotations

import shlex

from rigwright.fetch_job_spec import ToolEnvironment, hub_client_tools
from rigwright.model.fact_types import HostFacts
from rigwright.model.instance import loaded_weights
from rigwright.model.rig import Rig
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import HUB_CLIENT
from rigwright.weights.verification import (
    REHASH_STAMP,
    REHASH_UNITS,
    recorded_file,
    records_folder,
    render_rehash_units,
)
from roles import artefact_fetch
from roles.operations.files import TextFile
from roles.operations.units import ensure_unit_running, remove_units
from roles.python_tools import install_environment
from roles.rig_lookup import DeployContext, role
from roles.weights.host.records import WRONG


@role("Weights")
def weights(context: DeployContext) -> None:
    """Fetch what is missing or no longer as it was verified, and have all of it hashed again as time passes."""
    rig = context.rig
    units = render_rehash_units(rig.roots)
    if not loaded_weights(rig.instances):
        remove_units(name="No weights to look after", paths=[*units, REHASH_STAMP])
        return
    if rig.bundle:
        for artefact in loaded_weights(rig.instances):
            _fetch_from_bundle(rig, artefact)
    else:
        client = _needed_hub_client(rig, context.facts)
        if client:
            install_environment(rig, client, rig.hub_client, "the hub's client", alone=f"{HUB_CLIENT}-")
        count = len(loaded_weights(rig.instances))
        title = f"Fetch {loaded_weights(rig.instances)[0].file}" if count == 1 else f"Fetch {count} files of weights"
        artefact_fetch.ensure_fetched(rig, loaded_weights(rig.instances), title, client=client.folder if client else "")
    ensure_unit_running(
        name="Weights are hashed again as time passes",
        unit=REHASH_UNITS[0],
        files=[TextFile(path, text) for path, text in units.items()],
    )


def weights_verified(rig: Rig) -> bool:
    """Whether all files lie on the host of the running deploy as they were verified."""
    return artefact_fetch.are_artefacts_verified(rig, loaded_weights(rig.instances))


def _needed_hub_client(rig: Rig, facts: HostFacts) -> ToolEnvironment | None:
    """The hub's own client, where it may be needed: a host that has all its files has no use for a package index."""
    return None if weights_verified(rig) else hub_client_tools(rig.roots, rig.hub_client, facts)


def _fetch_from_bundle(rig: Rig, one: Artefact) -> None:
    """Have one file from the bundle; a job each, for a disk may have no room for a model twice."""
    wrong, place = (
        f"{records_folder(rig.roots)}/{WRONG}/{recorded_file(rig.roots, one).record}",
        rig.roots.weight_path(one),
    )
    artefact_fetch.ensure_fetched(
        rig,
        [one],
        f"Fetch {one.file}",
        # a file known to be wrong is sent at once: the job removes it where nothing was
        present=f'[ ! -e {shlex.quote(wrong)} ] && [ "$(stat -c %s {shlex.quote(place)} 2>/dev/null)" = {one.size} ]',
    )
