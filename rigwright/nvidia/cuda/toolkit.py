"""The CUDA toolkit that engines for cards are compiled with, and whose libraries they load: the lock's, or the
operator's own.

The lock's comes from NVIDIA's wheels, in a folder named by the digest of what it is made of: no toolkit of the system's
is needed or touched, and two generations can stand on two toolkits.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from rigwright.delivery.tool_environments import render_requirements
from rigwright.model.catalog import Card
from rigwright.model.feature import Feature, Fields, RigDraft
from rigwright.model.instance import PATCHED_TOOLKIT, EnvSpec, Instance, needs_toolkit
from rigwright.model.nvidia.toolkit import Toolkit
from rigwright.model.nvidia.toolkit_spec import ToolkitSpec
from rigwright.model.roots import Roots
from rigwright.patches.patch import Patch, collect_digests, select_patches
from rigwright.problems import Problem
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import CUDA

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


HEADER = re.compile("nvidia/[^/]+/include/.+")
"""Path of a header of the CUDA toolkit, from where its wheels are installed."""
UNUSABLE = "no cuda_root is set, and the locked toolkit cannot be used: "


def _resolve_toolkit(draft: RigDraft) -> Fields:
    entry, fields = draft.entry, draft.fields
    cuda: tuple[Artefact, ...] = ()
    if entry.cuda_root is None and needs_toolkit(bool(entry.cards), fields["instances"], fields["envs"]):
        cuda = draft.select_wheels(CUDA, "cuda_root", UNUSABLE)
    patches = _toolkit_patches(draft, cuda)
    draft.problems += _refuse_changed_programs(patches)
    draft.artefacts += cuda
    return {"toolkit": ToolkitSpec(entry.cuda_root, cuda, patches), "also_build_for": entry.extra_capabilities}


def _toolkit_patches(draft: RigDraft, wheels: Sequence[Artefact]) -> tuple[Patch, ...]:
    """The patches of the locked CUDA toolkit; those that are not for its wheels are refused."""
    if not wheels:
        return ()
    versions: dict[str, str] = {canonicalize_name(one.name): one.version for one in wheels}
    catalog = draft.catalog
    found, mismatches = select_patches(
        catalog.toolkit_patches, catalog.patches, None if draft.is_locking else versions, PATCHED_TOOLKIT
    )
    for line in mismatches:
        draft.refuse("cuda_root", f"{UNUSABLE}{line}")
    return found


def _refuse_changed_programs(patches: Sequence[Patch]) -> list[Problem]:
    """Refusals of patches of the CUDA toolkit that change more than its headers: root runs programs of the toolkit."""
    return [
        Problem(
            one.file,
            f"targets.{path}",
            f"a patch of the {PATCHED_TOOLKIT} may change files below nvidia/*/include/ alone: root runs its programs",
        )
        for one in patches
        for path in one.patched_digests
        if not HEADER.fullmatch(path)
    ]


CUDA_TOOLKIT = Feature("cuda_toolkit", resolve=_resolve_toolkit)
