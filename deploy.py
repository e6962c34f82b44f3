"""The roles of a box, in order: `pyinfra inventory/demo.py deploy.py`. Rollback and removal are verbs over it."""

from roles.base import base
from roles.ca_trust import network
from roles.container_toolkit import container_toolkit
from roles.cuda_toolkit import cuda_toolkit
from roles.engines import engines
from roles.monitoring import monitoring
from roles.nvidia_cards import nvidia_cards
from roles.nvidia_driver import nvidia_driver
from roles.operations.facts import prefetch_operations
from roles.preflight import preflight
from roles.python_tools import tools
from roles.removal import removal
from roles.rig_lookup import start_run
from roles.rollback import rollback
from roles.self_check import self_check
from roles.serving import serving
from roles.weight_server import sharing
from roles.weights import weights

run = start_run()
if run and run.verb == "rollback":
    rollback(run)
elif run and run.verb == "remove":
    removal(run)
elif run and (context := preflight(run)):
    # a line each: pyinfra orders the operations of several hosts by these lines
    base(context)
    network(context)
    tools(context)
    nvidia_driver(context)
    nvidia_cards(context)
    container_toolkit(context)
    cuda_toolkit(context)
    sharing(context)
    monitoring(context)
    engines(context)
    weights(context)
    serving(context)
    self_check(context)
prefetch_operations()
