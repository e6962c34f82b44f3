"""Removal: everything that we put on a host is taken off, and nothing else."""

from __future__ import annotations

from pyinfra import host, logger, state
from pyinfra.api import deploy

from rigwright.containers.end_of_management import container_release_values
from rigwright.fetch_job_spec import CREDENTIAL, authority_path
from rigwright.gateway.gateway_units import HEALTH_FOLDER, LOGS, ROTATION, ROUTER_RUNTIME, RUNTIME
from rigwright.host.generation_layout import ACTIVATING
from rigwright.host.systemd import STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.model import installation
from rigwright.model.instance import CACHES, COMPILED, CONTAINER_RUNTIME_FOLDER, WARM
from rigwright.monitoring.monitoring_facts import monitoring_release_values
from rigwright.monitoring.self_check import self_check_release_values
from rigwright.nvidia.driver.driver_files import driver_release_values
from rigwright.pull.pull_units import FETCHED
from rigwright.render import render
from rigwright.serving import takeover
from rigwright.serving.instance_units import STOPPED
from rigwright.weights.verification import REHASH_STAMP, REHASH_UNITS, records_folder, weights_program_folder
from rigwright.weights.weight_server import share_release_values
from roles.operations.containers import read_container_facts
from roles.operations.generations import read_serving_state
from roles.operations.jobs import ensure_job
from roles.rig_lookup import HostRun


@deploy("Removal")
def removal(run: HostRun) -> None:
    """Stop our services and remove what the ledger lists, or all but the weights.

    A host that is served from another configuration fails, untouched.
    """
    rig, keep_weights = run.rig, run.options.keep_weights
    found = read_serving_state(rig)
    if found.elsewhere:
        logger.error(
            f"{host.print_prefix}refused: this host is already deployed with its configuration in "
            f"{found.elsewhere}: set that as roots.config"
        )
        state.fail_hosts({host})
        return
    containers = read_container_facts(rig)
    if containers is None:
        return
    roots = rig.roots
    loose = ("current", "current.rigwright-new", ACTIVATING, f"{ACTIVATING}.rigwright-new")
    script = render(
        "removal/remove.sh.j2",
        helpers=REHASH_UNITS,
        stamp=REHASH_STAMP,
        units=sorted({*found.links, *found.processes}),
        unit_folder=UNIT_FOLDER,
        links=[
            *(f"{roots.config}/{name}" for name in loose),
            *(authority_path(rig.roots), ROTATION, roots.accepted_serials),
        ],
        caches=[f"{roots.config}/{STOPPED}", CACHES, WARM, LOGS, RUNTIME, ROUTER_RUNTIME, HEALTH_FOLDER, FETCHED],
        mounted=[RUNTIME, ROUTER_RUNTIME, HEALTH_FOLDER],
        compiled=COMPILED,
        containers=CONTAINER_RUNTIME_FOLDER,
        trees=[
            *(rig.roots.generations, rig.roots.credentials, rig.roots.installations, weights_program_folder(rig.roots)),
            *(
                rig.roots.jobs,
                rig.roots.builds,
                records_folder(rig.roots),
                installation.records_folder(rig.roots),
                rig.roots.startup_records,
                rig.roots.residency,
                rig.roots.memory_records,
                rig.roots.rollout,
            ),
        ],
        models=roots.models,
        run="/run",
        token=CREDENTIAL,
        ledger=rig.roots.ledger,
        started_from=STARTED_FROM_FOLDER,
        keep_weights=keep_weights,
        theirs=takeover.takeover_folder(rig.roots),
        **driver_release_values(rig.roots),
        **share_release_values(rig.roots),
        **monitoring_release_values(rig.roots),
        **self_check_release_values(rig.roots),
        **container_release_values(rig.roots, containers, removing=True),
    )
    gone = f"! grep -qv '^\\(file\\|dir\\) ' {rig.roots.ledger}" if keep_weights else f"[ ! -e {rig.roots.ledger} ]"
    # served objects are ours too, even where the list of ours has gone
    test = f"{gone} && [ ! -e {UNIT_FOLDER}/rigwright.target ]"
    # its output is kept outside of the removed folders
    ensure_job(name="Remove", unit="rw-job-remove", script=script, test=test, folder="/run")
