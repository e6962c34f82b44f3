"""The CUDA toolkit that engines for cards are compiled with, and whose libraries they load: the lock's, or the
operator's own.

The lock's comes from NVIDIA's wheels, in a folder named by the digest of what it is made of: no toolkit of the system's
is needed or touched, and two generations can stand on two toolkits.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rigwright.delivery.tools import requirements
from rigwright.model.rig import Rig
from rigwright.patches.patch import Patch, becomes

if TYPE_CHECKING:
    from rigwright.plan.facts import HostFacts

COMPILER = "nvidia-cuda-nvcc"
# Measured: wheels of 530 MB, unpacked without what the build does not need.
DISK_KIB = 2 * 1024 * 1024


@dataclass(frozen=True)
class Toolkit:
    """A toolkit on one host."""

    root: str
    """CUDAToolkit_ROOT: has bin/nvcc, include and lib64."""
    version: str
    """Such as "13.0"; empty where the operator's is not there."""
    folder: str = ""
    """Where ours is installed; empty for the operator's own."""
    requirements: str = ""
    """Of ours: the text of its hashed requirements."""
    nvcc: str = ""
    """Its compiler's own version, such as "13.0.88"; empty where the operator's does not say."""
    patches: tuple[Patch, ...] = ()
    """Of ours: the patches of its wheels' files."""

    @property
    def site(self) -> str:
        """The folder of the wheels of ours: paths in patches start there."""
        return f"{self.folder}/site"

    @property
    def patched_files(self) -> dict[str, str]:
        """The absolute path of every file that patches change, and its SHA-256."""
        return {f"{self.site}/{path}": digest for path, digest in becomes(self.patches).items()}

    @property
    def marker(self) -> str:
        """Written last: ours is whole. Has the SHA-256 of each file, by its path in the root."""
        return f"{self.folder}/files.sha256"

    @property
    def identity(self) -> str:
        """What of it counts for what is compiled with it."""
        return self.folder.rpartition("/")[2] or self.version


def toolkit(rig: Rig, facts: HostFacts) -> Toolkit | None:
    """The toolkit of a rig; None where no engine is made with one."""
    if not rig.needs_toolkit:
        return None
    if rig.cuda_root is not None:
        return Toolkit(rig.cuda_root, facts.cuda_version, nvcc=facts.nvcc)
    text = requirements(rig.cuda)
    nvcc = next(wheel.version for wheel in rig.cuda if wheel.name == COMPILER)
    version = ".".join(nvcc.split(".")[:2])
    patches = rig.toolkit_patches
    changed = json.dumps(becomes(patches)) if patches else ""
    digest = hashlib.sha256(f"{text}{changed}".encode()).hexdigest()[:12]
    folder = f"{rig.roots.software}/cuda-{version}-{digest}"
    # where the wheels themselves put it
    return Toolkit(f"{folder}/site/nvidia/cu{version.partition('.')[0]}", version, folder, text, nvcc, patches)
