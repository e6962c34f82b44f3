"""Roles base and tools: what root installs on a host from the wheels of a lock."""

from pyinfra import host

from rigwright.delivery.tools import tools
from roles.base import base
from roles.probe import probe
from roles.rig import rig_of
from roles.tools import tools as installed

rig = rig_of(host)
if facts := probe(rig):
    base(rig, facts)
    installed(rig, tools(rig, facts))
