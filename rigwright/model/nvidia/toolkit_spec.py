"""The CUDA toolkit of a rig."""

from __future__ import annotations

from dataclasses import dataclass

from rigwright.patches.patch import Patch
from rigwright.supply.lock import Artefact


@dataclass(frozen=True)
class ToolkitSpec:
    """The CUDA toolkit that engines are compiled with: the operator's own, or the locked one."""

    own_root: str | None = None
    """The operator's own toolkit on the host; None for the locked one."""
    wheels: tuple[Artefact, ...] = ()
    """The wheels of the locked one; empty where no instance needs it."""
    patches: tuple[Patch, ...] = ()
    """Patches of the locked one."""
