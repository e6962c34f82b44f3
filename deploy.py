"""What happens to a rig, in order: `pyinfra inventory/demo.py deploy.py`. Going back and removal are verbs over it."""

from pyinfra import host
from pyinfra.api.exceptions import PyinfraError

from rigwright.monitoring.textfile import deploy_textfile
from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.stages import applicable_stages
from rigwright.serving.takeover import find_takeover_refusals, without_ports_of
from rigwright.supply.digest import describe_digest_mismatch
from roles.base import base
from roles.container_toolkit import choose_containers, container_toolkit, packages_for_containers
from roles.cuda_toolkit import cuda_toolkit
from roles.deploy_lock import acquire_deploy_lock
from roles.engines import engines
from roles.monitoring import monitoring
from roles.network import network
from roles.nvidia_cards import nvidia_cards
from roles.nvidia_driver import choose_driver, nvidia_driver, packages_for_driver, restore_previous_driver
from roles.operations.prefetch import enable_prefetch, prefetch_facts, prefetch_operations
from roles.preflight import client_key_problems, preflight
from roles.probe import probe_host
from roles.removal import removal
from roles.rig import orders_of_host, rig_of_host
from roles.rollback import rollback
from roles.serving import serving
from roles.sharing import sharing
from roles.takeover import read_existing_service, restore_previous_service
from roles.tools import tools
from roles.trees import read_trees
from roles.weights import weights, weights_verified

asked = orders_of_host(host)
verb = asked.verb
rig = rig_of_host(host, asked.switch)
if verb in ("deploy", "upgrade") and rig.bundle_faults:
    raise PyinfraError("\n".join(map(str, rig.bundle_faults)))
if asked.expected_digest and (wrong := describe_digest_mismatch(rig.digest, asked.expected_digest)):
    raise PyinfraError(f"{host.name}: {wrong}")
enable_prefetch()
removing = verb == "remove"
held = acquire_deploy_lock(f"{verb} of {rig.inventory}", removing, "" if removing else deploy_textfile(rig))
if held and verb in ("deploy", "upgrade"):
    # what decisions wait for
    prefetch_facts(
        lambda: probe_host(rig),
        lambda: choose_driver(rig, verb == "upgrade"),
        lambda: choose_containers(rig),
        lambda: weights_verified(rig),
        lambda: read_trees(rig),
        lambda: client_key_problems(rig),
    )

if held and verb == "rollback":
    if asked.driver:
        restore_previous_driver(rig, asked.reboot)
    elif asked.existing_service:
        restore_previous_service(rig, asked.existing_service)
    else:
        rollback(rig, asked.to)
elif held and verb == "remove":
    removal(rig, asked.keep_weights)
elif held and (facts := probe_host(rig)):
    theirs = read_existing_service(rig, asked.existing_service) if asked.existing_service else None
    facts = without_ports_of(facts, theirs) if theirs else facts
    driver = choose_driver(rig, verb == "upgrade")
    containers = choose_containers(rig)
    wanted = build_target_state(rig, facts, packages_for_driver(driver), packages_for_containers(containers))
    roles = {
        "base": lambda: base(rig, facts),
        "network": lambda: network(rig),
        "tools": lambda: tools(rig, wanted.tools),
        "nvidia_driver": lambda: nvidia_driver(wanted, upgrading=verb == "upgrade", reboot=asked.reboot),
        "nvidia_cards": lambda: nvidia_cards(rig),
        "container_toolkit": lambda: container_toolkit(wanted),
        "cuda_toolkit": lambda: cuda_toolkit(wanted),
        "sharing": lambda: sharing(rig),
        "monitoring": lambda: monitoring(rig),
        "engines": lambda: engines(wanted),
        "weights": lambda: weights(rig, facts),
        "serving": lambda: serving(wanted, asked.switch, theirs),
    }
    unfit = find_takeover_refusals(rig, asked.switch.instance, theirs) if asked.switch and theirs else []
    if preflight(wanted, driver, containers, unfit):
        for stage in applicable_stages(wanted):
            roles[stage.role]()

prefetch_operations()
