"""The CUDA toolkit: its packages, folder and the cards that it compiles for.

The lock's comes from NVIDIA's wheels, in a folder named by the digest of what it is made of: no toolkit of the system's
is needed or touched, and two generations can stand on two toolkits.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from rigwright.fetch_job_spec import render_requirements
from rigwright.host.script_output import HostOutput, one_of, optional, version
from rigwright.model.catalog_schema import Card
from rigwright.model.fact_types import NOWHERE
from rigwright.model.instance import PATCHED_TOOLKIT, EnvSpec, Instance, needs_toolkit
from rigwright.model.inventory_feature import FactSource, Feature, Fields, RigDraft
from rigwright.model.nvidia_tables import Toolkit, ToolkitSpec
from rigwright.model.roots import Roots
from rigwright.patches.patch import Patch, collect_digests, select_patches
from rigwright.problems import Problem
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import CUDA

if TYPE_CHECKING:
    from rigwright.model.fact_types import HostFacts

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
            f"a patch of the {PATCHED_TOOLKIT} may only change files below nvidia/*/include/, because root runs its "
            f"programs",
        )
        for one in patches
        for path in one.patched_digests
        if not HEADER.fullmatch(path)
    ]


CUDA_TOOLKIT = Feature("cuda_toolkit", resolve=_resolve_toolkit)


# nvcc of 13.2.0 and 13.2.1 miscompiles the unpacking of low-bit quants; 13.2.86, of 13.2.2, does not
# (https://github.com/ggml-org/llama.cpp/issues/28581, https://github.com/unslothai/unsloth/issues/4849)
BROKEN = ((13, 2, 0), (13, 2, 86))
# The first toolkit that knows compute capability 12.0 (NVIDIA, release notes of CUDA 12.8)
BLACKWELL_MINIMUM = (12, 8)
# Toolkits from 13.0 on know none below 7.5 (NVIDIA, release notes of CUDA 13.0)
CAPABILITY_MINIMUM = (7, 5)
# Function -> the first glibc that declares it with an exception specification (NEWS of glibc 2.41 and 2.42). nvcc
# refuses every file if its own header declares the function without one.
SPECIFIED_SINCE = {"sinpi": (2, 41), "rsqrt": (2, 42)}
# Function -> the first nvcc whose header has that specification. Measured: crt/math_functions.h of the wheels 12.4.131
# to 13.5.37.
CORRECT_SINCE = {"sinpi": (13, 0), "rsqrt": (13, 2)}
MATH_HEADER = "crt/math_functions.h"


def dotted_numbers(version: str) -> tuple[int, ...]:
    """The numbers of a dotted version."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def toolkit_refusals(cards: tuple[Card, ...], toolkit_spec: ToolkitSpec, nvcc: str) -> list[str]:
    """The objections to a toolkit by its compiler's own version, such as 13.2.78; empty where there are none.

    Args:
        cards: The declared cards by GPU index.
        toolkit_spec: The CUDA toolkit to compile with.
        nvcc: That version.
    """
    version = dotted_numbers(nvcc)
    if not version:
        return []
    name = f"nvcc {nvcc} at {toolkit_spec.own_root}" if toolkit_spec.own_root else f"the lock's nvcc {nvcc}"
    found = []
    if BROKEN[0] <= version < BROKEN[1]:
        found.append(
            f"{name} miscompiles low-bit quants, as 13.2.0 and 13.2.1 do: use a toolkit up to 13.1, or 13.2.2 and later"
        )
    capabilities = sorted({dotted_numbers(card.capability) for card in cards})
    if any(one >= (10, 0) for one in capabilities) and version < BLACKWELL_MINIMUM:
        found.append(f"{name} does not support Blackwell cards: use toolkit 12.8 or later")
    if any(one < CAPABILITY_MINIMUM for one in capabilities) and version >= (13, 0):
        found.append(f"{name} does not support cards older than Turing: use a toolkit 12.x")
    return found


def glibc_refusals(toolkit: Toolkit, facts: HostFacts) -> list[str]:
    """Why a toolkit compiles nothing with a host's C library; empty if it does.

    Args:
        toolkit: An operator's is judged by the header on its host, the lock's by its version and patches.
        facts: The host.
    """
    if toolkit.folder:
        patched = any(path.endswith(f"/{MATH_HEADER}") for path in toolkit.patched_files)
        version = dotted_numbers(toolkit.nvcc)
        bare = {name for name, since in CORRECT_SINCE.items() if version < since and not patched}
        name = f"the lock's nvcc {toolkit.nvcc}"
        remediation = "lock nvcc 13.2.86 or later, or add a patch of that header to input cuda"
    else:
        bare = set(facts.bare_functions)
        name = f"nvcc {toolkit.nvcc} at {toolkit.root}"
        remediation = "use a toolkit 13.2.2 or later, or omit cuda_root to install a patched one"
    glibc = dotted_numbers(facts.glibc)
    conflicts = sorted(name for name in bare if glibc >= SPECIFIED_SINCE[name])
    if not conflicts:
        return []
    return [
        f"{name} cannot compile with glibc {facts.glibc}: its {MATH_HEADER} declares {' and '.join(conflicts)} "
        f"without the exception specification of glibc: {remediation}"
    ]


def _read_toolkit_facts(output: HostOutput) -> Mapping[str, object]:
    return {
        "cuda_version": output.one("cuda_version"),
        "nvcc": output.one("nvcc"),
        "bare_functions": frozenset(output.all("bare_function")),
        "glibc": output.one("glibc"),
    }


TOOLKIT_FACTS = FactSource(
    "cuda_toolkit",
    "cuda_toolkit/probe.sh.j2",
    lambda rig: {"cuda_root": rig.toolkit.own_root or NOWHERE, "mathematical": sorted(SPECIFIED_SINCE)},
    {
        "cuda_version": (optional(version),),
        "nvcc": (optional(version),),
        "bare_function": (one_of(*SPECIFIED_SINCE),),
        "glibc": (optional(version),),
    },
    _read_toolkit_facts,
)
