"""Roles base and engines alone: what a source makes of its compilation."""

from pyinfra import host

from rigwright.host.desired import desired
from roles.base import base
from roles.engines import engines
from roles.probe import probe
from roles.rig import rig_of

rig = rig_of(host)
if facts := probe(rig):
    base(rig, facts)
    engines(desired(rig, facts))
