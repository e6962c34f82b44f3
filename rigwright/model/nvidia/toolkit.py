"""A CUDA toolkit on one host."""

from __future__ import annotations

from dataclasses import dataclass

from rigwright.patches.patch import Patch, collect_digests


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
        return {f"{self.site}/{path}": digest for path, digest in collect_digests(self.patches).items()}

    @property
    def marker(self) -> str:
        """Written last: ours is whole. Has the SHA-256 of each file, by its path in the root."""
        return f"{self.folder}/files.sha256"

    @property
    def identity(self) -> str:
        """What of it counts for what is compiled with it."""
        return self.folder.rpartition("/")[2] or self.version
