"""Role base alone: what a mirror of the distribution's archive is asked for."""

from pyinfra import host

from roles.base import base
from roles.probe import probe
from roles.rig import rig_of

rig = rig_of(host)
if facts := probe(rig):
    base(rig, facts)
