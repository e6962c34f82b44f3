"""Role base alone: what a mirror of the distribution's archive is asked for."""

from pyinfra import host

from roles.base import base
from roles.probe import probe_host
from roles.rig import rig_of_host

rig = rig_of_host(host)
if facts := probe_host(rig):
    base(rig, facts)
