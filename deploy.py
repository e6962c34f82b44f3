"""What happens to a rig, in order: `pyinfra inventory/demo.py deploy.py`. Going back and removal are verbs over it."""

from pyinfra import host
from pyinfra.api.exceptions import PyinfraError

from rigwright.engines.llama_cpp.build import build
from rigwright.nvidia.cuda_toolkit import toolkit
from rigwright.nvidia.driver.plan import DriverPlan
from rigwright.serving.generation import generation
from rigwright.supply.tools import tools as tools_of
from roles.base import base
from roles.cuda_toolkit import cuda_toolkit
from roles.lease import lease
from roles.llama_cpp import llama_cpp
from roles.network import network
from roles.nvidia_driver import driver_of, earlier_driver, no_driver, nvidia_driver
from roles.preflight import preflight
from roles.probe import probe
from roles.removal import removal
from roles.rig import orders_of, rig_of
from roles.rollback import rollback
from roles.serving import serving
from roles.sharing import sharing
from roles.tools import tools
from roles.weights import weights

asked = orders_of(host)
verb = asked.verb
rig = rig_of(host)
if verb in ("deploy", "upgrade") and rig.bundle_faults:
    raise PyinfraError("\n".join(map(str, rig.bundle_faults)))
held = lease(f"{verb} of {rig.inventory}", removing=verb == "remove")

if held and verb == "rollback":
    if asked.driver:
        earlier_driver(rig, asked.reboot)
    else:
        rollback(rig, asked.to)
elif held and verb == "remove":
    removal(rig, asked.keep_weights)
elif held and (facts := probe(rig)):
    driver_facts, driver = driver_of(rig, verb == "upgrade")
    builds = {name: build(rig, name, engine, facts) for name, engine in rig.engines.items()}
    if preflight(rig, facts, list(builds.values()), driver):
        host_tools = tools_of(rig, facts)
        base(rig, facts)
        network(rig)
        tools(rig, host_tools)
        if driver_facts and isinstance(driver, DriverPlan):
            nvidia_driver(rig, driver, driver_facts, upgrading=verb == "upgrade", reboot=asked.reboot)
        elif facts.driver_ours:
            no_driver(rig)
        if cuda := toolkit(rig, facts):
            cuda_toolkit(rig, cuda, host_tools)
        for one in builds.values():
            llama_cpp(rig, one, host_tools)
        if rig.share or facts.sharing.there:
            sharing(rig)  # before weights: others see what is on its way here
        weights(rig, facts)
        serving(rig, generation(rig, builds, host_tools))
