"""Role cuda_toolkit and what it stands on."""

from pyinfra import host

from rigwright.plan.desired import desired
from roles.base import base
from roles.cuda_toolkit import cuda_toolkit
from roles.probe import probe
from roles.rig import rig_of
from roles.tools import tools

rig = rig_of(host)
if facts := probe(rig):
    wanted = desired(rig, facts)
    base(rig, facts)
    tools(rig, wanted.tools)
    cuda_toolkit(wanted)
