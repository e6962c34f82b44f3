"""The result of vllm_cpu, kept for the next host: a layer over the base image with nothing else.

It is for any release, for an environment brings all that it stands on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from lab.engine_cache import ENGINES
from lab.hosts import LabHost
from lab.machine_requirements import CACHE
from lab.network import run_program
from lab.throwaway_lab import list_labs
from rigwright.file_lock import file_lock
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact
from tests.stand_ins import conda_python

# The inputs of its making, and of its record, in addition to the packages.
SOURCES = (
    "rigwright/envs/environment.py",
    "rigwright/engines/environment_installer.py",
    "roles/envs/host/*.py",
    "templates/envs/*.j2",
)
NAME = "vllm-cpu-"
MOST = 3
"""How many are kept: each has 2.4 GB."""


def cached_channel(interpreter: conda_python.Interpreter) -> Path:
    """The folder of a conda channel with an interpreter, packed once: its bytes are others each time."""
    packed = f"{interpreter.program.resolve()} {interpreter.program.stat().st_mtime_ns}".encode()
    digest = hashlib.sha256(packed + Path(str(conda_python.__file__)).read_bytes()).hexdigest()
    folder = CACHE / f"conda-{interpreter.version}-{digest[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_name(f"{folder.name}.lock"), "packing an interpreter"):
        conda_python.write_channel(folder, interpreter)
    return folder


def cache_path(rows: Iterable[Artefact], root: Path = ROOT) -> Path:
    """Where an environment of these packages is kept.

    Args:
        rows: Conda packages and wheels.
        root: The checkout whose sources count.
    """
    listed = sorted(row.sha256 for row in rows)
    for path in (path for pattern in SOURCES for path in sorted(root.glob(pattern))):
        listed.append(f"{path.relative_to(root)} {hashlib.sha256(path.read_bytes()).hexdigest()}")
    return CACHE / (NAME + hashlib.sha256("\n".join(listed).encode()).hexdigest()[:12])


def save_environment(host: LabHost, layer: Path, name: str) -> None:
    """Copy what the host has put together itself, in one step at the end.

    Args:
        host: A host that has it whole.
        layer: Where it is kept.
        name: The environment's.
    """
    built = [path for path in (host.upper_folder / ENGINES).glob(f"{name}-*") if (path / "build.json").exists()]
    # a layer that a running host stands on is never changed
    if not built or layer.exists():
        return
    new = layer.with_name(f"{layer.name}.{os.getpid()}")
    for folder in built:
        copy = new / ENGINES / folder.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        run_program("cp", "-a", str(folder), str(copy))
    try:
        new.rename(layer)
    except OSError:
        if not layer.exists():  # of another process, which was first
            raise
        shutil.rmtree(new)
    prune_cache()


def prune_cache(most: int = MOST) -> None:
    """Remove the oldest ones that no host stands on."""
    used = {layer for lab in list_labs() for host in lab.hosts for layer in host.spec.layers}
    found = [path for path in CACHE.glob(f"{NAME}*") if path.is_dir() and not path.suffix]
    for old in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[most:]:
        if str(old) not in used:
            shutil.rmtree(old)
