"""Removal: everything that we put on a host is taken off, and nothing else."""

from __future__ import annotations

from pyinfra import host, logger, state
from pyinfra.api import deploy

from rigwright.containers.leaving import release as release_containers
from rigwright.delivery.fetching import CREDENTIAL
from rigwright.delivery.network import authority_path
from rigwright.gateway.service import LOGS, ROTATION, ROUTER_RUNTIME, RUNTIME
from rigwright.host.systemd import STARTED_FROM, UNITS
from rigwright.model import trees
from rigwright.model.rig import CACHES, COMPILED, CONTAINERS, WARM, Rig
from rigwright.monitoring.found import release as release_monitoring
from rigwright.nvidia.driver.files import release
from rigwright.render import render
from rigwright.serving import theirs
from rigwright.serving.generation import ACTIVATING
from rigwright.serving.units import STOPPED
from rigwright.weights.records import REHASH_STAMP, REHASH_UNITS, programs, records_folder
from rigwright.weights.sharing import release as release_share
from roles.operations.containers import look as look_at_containers
from roles.operations.generations import look
from roles.operations.jobs import job


@deploy("Removal")
def removal(rig: Rig, keep_weights: bool) -> None:
    """Stop our services and remove what the ledger lists, or all but the weights.

    A host that is served from another configuration fails, untouched.
    """
    found = look(rig)
    if found.elsewhere:
        logger.error(
            f"{host.print_prefix}refused: this host is already deployed with its configuration in "
            f"{found.elsewhere}: set that as roots.config"
        )
        state.fail_hosts({host})
        return
    containers = look_at_containers(rig)
    if containers is None:
        return
    roots = rig.roots
    loose = ("current", "current.rigwright-new", ACTIVATING, f"{ACTIVATING}.rigwright-new")
    script = render(
        "removal/remove.sh.j2",
        helpers=REHASH_UNITS,
        stamp=REHASH_STAMP,
        units=sorted({*found.links, *found.processes}),
        unit_folder=UNITS,
        links=[f"{roots.config}/{name}" for name in loose] + [authority_path(rig), ROTATION],
        caches=[f"{roots.config}/{STOPPED}", CACHES, WARM, LOGS, RUNTIME, ROUTER_RUNTIME],
        mounted=[RUNTIME, ROUTER_RUNTIME],
        compiled=COMPILED,
        containers=CONTAINERS,
        trees=[
            *(rig.generations, rig.credentials, rig.installations, programs(rig)),
            *(rig.jobs, rig.builds, records_folder(rig), trees.records(rig), rig.starts),
        ],
        models=roots.models,
        run="/run",
        token=CREDENTIAL,
        ledger=rig.ledger,
        started_from=STARTED_FROM,
        keep_weights=keep_weights,
        theirs=theirs.folder(rig),
        **release(rig),
        **release_share(rig),
        **release_monitoring(rig),
        **release_containers(rig, containers, removing=True),
    )
    gone = f"! grep -qv '^\\(file\\|dir\\) ' {rig.ledger}" if keep_weights else f"[ ! -e {rig.ledger} ]"
    # what is served is ours too, even where the list of what is ours has gone
    test = f"{gone} && [ ! -e {UNITS}/rigwright.target ]"
    # what it says is kept outside of what it removes
    job(name="Remove", unit="rw-job-remove", script=script, test=test, folder="/run")
