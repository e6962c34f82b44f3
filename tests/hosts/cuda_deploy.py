"""Role cuda_toolkit and what it stands on."""

from pyinfra import host

from rigwright.nvidia.cuda.toolkit import toolkit
from rigwright.supply.tools import tools as tools_of
from roles.base import base
from roles.cuda_toolkit import cuda_toolkit
from roles.probe import probe
from roles.rig import rig_of
from roles.tools import tools

rig = rig_of(host)
if (facts := probe(rig)) and (wanted := toolkit(rig, facts)):
    host_tools = tools_of(rig, facts)
    base(rig, facts)
    tools(rig, host_tools)
    cuda_toolkit(rig, wanted, host_tools)
