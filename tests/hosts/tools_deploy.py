"""Roles base and tools: what root installs on a host from the wheels of a lock."""

from pyinfra import host

from rigwright.delivery.tool_environments import host_tools
from roles.base import base
from roles.probe import probe_host
from roles.rig import rig_of_host
from roles.tools import tools

rig = rig_of_host(host)
if facts := probe_host(rig):
    base(rig, facts)
    tools(rig, host_tools(rig.roots, rig.tools, facts))
