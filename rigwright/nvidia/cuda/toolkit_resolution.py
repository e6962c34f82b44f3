"""The CUDA toolkit that the engines and environments of an inventory's entry need."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.utils import canonicalize_name

from rigwright.model.resolution import Feature, Fields, RigDraft
from rigwright.model.rig import PATCHED_TOOLKIT, needs_toolkit
from rigwright.patches.patch import Patch, select_patches
from rigwright.problems import Problem
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import CUDA

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
    return {
        "cuda_root": entry.cuda_root,
        "cuda": cuda,
        "also_build_for": entry.also_build_for,
        "toolkit_patches": patches,
    }


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
