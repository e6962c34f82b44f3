"""Roles base and tools: root's installation on a host from the wheels of a lock."""

from pyinfra import host

from rigwright.plan.plan_inputs import build_target_state
from roles.base import base
from roles.host_probe import probe_host
from roles.python_tools import tools
from roles.rig_lookup import DeployContext, rig_of_host

rig = rig_of_host(host)
if facts := probe_host(rig):
    context = DeployContext(build_target_state(rig, facts))
    base(context)
    tools(context)
