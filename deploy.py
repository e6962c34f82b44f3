"""What happens to a rig, in order: `pyinfra inventory/demo.py deploy.py`. Going back and removal are verbs over it."""

from pyinfra import host
from pyinfra.api.exceptions import PyinfraError

from rigwright.monitoring.figures import deploy_file
from rigwright.plan.desired import desired
from rigwright.plan.stages import stages
from rigwright.serving.theirs import leaving, refusals
from rigwright.supply.expected import refusal
from roles.base import base
from roles.container_toolkit import brought_with, container_toolkit, containers_of
from roles.cuda_toolkit import cuda_toolkit
from roles.deploy_lock import deploy_lock
from roles.engines import engines
from roles.monitoring import monitoring
from roles.network import network
from roles.nvidia_cards import nvidia_cards
from roles.nvidia_driver import driver_of, earlier_driver, managed, nvidia_driver
from roles.operations.ahead import ask_ahead, ask_at_once, remember
from roles.preflight import keys_refusals, preflight
from roles.probe import probe
from roles.removal import removal
from roles.rig import orders_of, rig_of
from roles.rollback import rollback
from roles.serving import serving
from roles.sharing import sharing
from roles.theirs import brought_back, found_theirs
from roles.tools import tools
from roles.trees import look as installed
from roles.weights import weights, whole

asked = orders_of(host)
verb = asked.verb
rig = rig_of(host, asked.switch)
if verb in ("deploy", "upgrade") and rig.bundle_faults:
    raise PyinfraError("\n".join(map(str, rig.bundle_faults)))
if asked.expect and (wrong := refusal(rig.digest, asked.expect)):
    raise PyinfraError(f"{host.name}: {wrong}")
remember()
removing = verb == "remove"
held = deploy_lock(f"{verb} of {rig.inventory}", removing, "" if removing else deploy_file(rig))
if held and verb in ("deploy", "upgrade"):
    # what decisions wait for
    ask_at_once(
        lambda: probe(rig),
        lambda: driver_of(rig, verb == "upgrade"),
        lambda: containers_of(rig),
        lambda: whole(rig),
        lambda: installed(rig),
        lambda: keys_refusals(rig),
    )

if held and verb == "rollback":
    if asked.driver:
        earlier_driver(rig, asked.reboot)
    elif asked.theirs:
        brought_back(rig, asked.theirs)
    else:
        rollback(rig, asked.to)
elif held and verb == "remove":
    removal(rig, asked.keep_weights)
elif held and (facts := probe(rig)):
    theirs = found_theirs(rig, asked.theirs) if asked.theirs else None
    facts = leaving(facts, theirs) if theirs else facts
    driver = driver_of(rig, verb == "upgrade")
    containers = containers_of(rig)
    wanted = desired(rig, facts, managed(driver), brought_with(containers))
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
    unfit = refusals(rig, asked.switch.instance, theirs) if asked.switch and theirs else []
    if preflight(wanted, driver, containers, unfit):
        for stage in stages(wanted):
            roles[stage.role]()

ask_ahead()
