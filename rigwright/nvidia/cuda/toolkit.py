"""The CUDA toolkit that engines for cards are compiled with, and whose libraries they load: the lock's, or the
operator's own.

The lock's comes from NVIDIA's wheels, in a folder named by the digest of what it is made of: no toolkit of the system's
is needed or touched, and two generations can stand on two toolkits.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from rigwright.delivery.tool_environments import render_requirements
from rigwright.model.catalog import Card
from rigwright.model.instance import EnvSpec, Instance, needs_toolkit
from rigwright.model.nvidia.toolkit import Toolkit
from rigwright.model.nvidia.toolkit_spec import ToolkitSpec
from rigwright.model.roots import Roots
from rigwright.patches.patch import collect_digests

if TYPE_CHECKING:
    from rigwright.model.facts import HostFacts

COMPILER = "nvidia-cuda-nvcc"
# Measured: wheels of 530 MB, unpacked without what the build does not need.
DISK_KIB = 2 * 1024 * 1024


def plan_toolkit(
    roots: Roots,
    cards: tuple[Card, ...],
    instances: tuple[Instance, ...],
    envs: tuple[EnvSpec, ...],
    toolkit_spec: ToolkitSpec,
    facts: HostFacts,
) -> Toolkit | None:
    """The toolkit of a rig; None where no engine is made with one."""
    if not needs_toolkit(bool(cards), instances, envs):
        return None
    if toolkit_spec.own_root is not None:
        return Toolkit(toolkit_spec.own_root, facts.cuda_version, nvcc=facts.nvcc)
    text = render_requirements(toolkit_spec.wheels)
    nvcc = next(wheel.version for wheel in toolkit_spec.wheels if wheel.name == COMPILER)
    version = ".".join(nvcc.split(".")[:2])
    patches = toolkit_spec.patches
    changed = json.dumps(collect_digests(patches)) if patches else ""
    digest = hashlib.sha256(f"{text}{changed}".encode()).hexdigest()[:12]
    folder = f"{roots.software}/cuda-{version}-{digest}"
    # where the wheels themselves put it
    return Toolkit(f"{folder}/site/nvidia/cu{version.partition('.')[0]}", version, folder, text, nvcc, patches)
