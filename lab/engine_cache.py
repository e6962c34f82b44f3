"""The build of one throwaway host, kept for the next one: a layer over the base image with nothing but engines.

A layer's name has the digest of all that an engine is compiled from, so that no other one's is taken for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from lab import base_images
from lab.hosts import LabHost
from lab.machine_requirements import CACHE
from rigwright.project_root import ROOT

ENGINES = Path("opt/rigwright/engines")
# The inputs of a build, in addition to the base image. More than an engine's own digest knows: that one is of
# inputs, and a build script that was changed makes something else of the same ones.
SOURCES = (
    "catalog/engines.toml",
    "locks/engines.lock.toml",
    "locks/tools.lock.toml",
    "rigwright/engines/unprivileged_steps.py",
    "rigwright/engines/llama_cpp/build.py",
    "templates/engines/apart.sh.j2",
    "templates/llama_cpp/*.j2",
)


def cache_path(release: str, root: Path = ROOT) -> Path:
    """Where the engines of this release are kept that are compiled from what is there now.

    Args:
        release: Of Debian's, as lab.base_images.RELEASES names it.
        root: The checkout whose sources count.
    """
    found = [path for pattern in SOURCES for path in sorted(root.glob(pattern))]
    listed = [base_images.tree_path(base_images.RELEASES[release]).name]
    listed += [f"{path.relative_to(root)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in found]
    digest = hashlib.sha256("\n".join(listed).encode()).hexdigest()
    return CACHE / f"{release}-engines-{digest[:12]}"


def cached_layers(release: str) -> tuple[str, ...]:
    """The layers to boot a host of this release from: the last one used, or none when nothing was kept.

    Its engines may be of other sources: the role compiles what it finds to be lacking.
    """
    if (now := cache_path(release)).exists():
        return (str(now),)
    found = [path for path in CACHE.glob(f"{release}-engines-*") if not path.suffix]
    return (str(max(found, key=lambda path: path.stat().st_mtime)),) if found else ()


def save_engines(host: LabHost) -> None:
    """Copy what the host has compiled itself. Finished folders only, without links; in one step at the end."""
    written = host.upper_folder / ENGINES
    built = [path for path in written.glob("*") if not path.is_symlink() and (path / "build.json").exists()]
    layer = cache_path(host.spec.release)
    # a layer that a running host stands on is never changed
    if not built or layer.exists():
        return
    new = layer.with_suffix(f".{os.getpid()}")
    for engine in built:
        shutil.copytree(engine, new / ENGINES / engine.name, symlinks=True)
    try:
        new.rename(layer)
    except OSError:
        if not layer.exists():  # of another process, which was first
            raise
        shutil.rmtree(new)
