"""Only role base: the requests to a mirror of the distribution's archive."""

from pyinfra import host

from rigwright.plan.plan_inputs import build_target_state
from roles.base import base
from roles.host_probe import probe_host
from roles.rig_lookup import DeployContext, rig_of_host

rig = rig_of_host(host)
if facts := probe_host(rig):
    base(DeployContext(build_target_state(rig, facts)))
