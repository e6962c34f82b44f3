"""Roles base and engines, and the programs that fetch: the effects of a source on its compilation."""

from pyinfra import host

from rigwright.plan.plan_inputs import build_target_state
from roles.artefact_fetch import install_fetch_programs
from roles.base import base
from roles.engines import engines
from roles.host_probe import probe_host
from roles.rig_lookup import DeployContext, rig_of_host

rig = rig_of_host(host)
if facts := probe_host(rig):
    context = DeployContext(build_target_state(rig, facts))
    base(context)
    install_fetch_programs(rig)
    engines(context)
