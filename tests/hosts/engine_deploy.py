"""Roles base and engines, and the programs that fetch: what a source makes of its compilation."""

from pyinfra import host

from rigwright.plan.desired import desired
from roles.base import base
from roles.engines import engines
from roles.fetching import programs
from roles.probe import probe
from roles.rig import rig_of

rig = rig_of(host)
if facts := probe(rig):
    base(rig, facts)
    programs(rig)
    engines(desired(rig, facts))
