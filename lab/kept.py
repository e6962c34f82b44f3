"""What one throwaway host has compiled, kept for the next one: a layer over the base image with nothing but engines."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from lab.hosts import Host
from lab.machine import CACHE

ENGINES = Path("opt/rigwright/engines")


def layers(release: str) -> tuple[str, ...]:
    """The layers to boot a host of this release from: the last one used, or none when nothing was kept."""
    found = [path for path in CACHE.glob(f"{release}-engines-*") if not path.suffix]
    return (str(max(found, key=lambda path: path.stat().st_mtime)),) if found else ()


def keep(host: Host) -> None:
    """Copy what the host has compiled itself. Finished folders only, without links; in one step at the end."""
    written = host.upper / ENGINES
    built = [path for path in written.glob("*") if not path.is_symlink() and (path / "build.json").exists()]
    if not built:
        return
    names = "+".join(sorted(path.name for path in built))
    # a layer that a running host stands on is never changed: other engines make another one
    layer = CACHE / f"{host.spec.release}-engines-{hashlib.sha256(names.encode()).hexdigest()[:12]}"
    if not layer.exists():
        new = layer.with_suffix(f".{os.getpid()}")
        copy(built, new)
        new.rename(layer)
    layer.touch()


def copy(engines: list[Path], layer: Path) -> None:
    """Make a layer that holds these engines."""
    for engine in engines:
        shutil.copytree(engine, layer / ENGINES / engine.name, symlinks=True)
