"""Role base alone: what a mirror of the distribution's archive is asked for."""

from pyinfra import host

from roles.base import base
from roles.rig import rig_of

base(rig_of(host))
