"""What one throwaway host has compiled, kept for the next one: a layer over the base image with nothing but engines."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lab.hosts import Host
from lab.machine import CACHE

ENGINES = Path("opt/rigwright/engines")


def layers(release: str) -> tuple[str, ...]:
    """The layers to boot a host of this release from: one, or none when nothing was kept."""
    layer = CACHE / f"{release}-engines"
    return (str(layer),) if layer.is_dir() else ()


def keep(host: Host) -> None:
    """Copy what the host has compiled itself. Finished folders only, without links; in one step at the end."""
    written = host.upper / ENGINES
    built = [path for path in written.glob("*") if not path.is_symlink() and (path / "build.json").exists()]
    if not built:
        return
    layer = CACHE / f"{host.spec.release}-engines"
    new = layer.with_suffix(f".{os.getpid()}")
    copy(built, new)
    shutil.rmtree(layer, ignore_errors=True)
    new.rename(layer)


def copy(engines: list[Path], layer: Path) -> None:
    """Make a layer that holds these engines."""
    for engine in engines:
        shutil.copytree(engine, layer / ENGINES / engine.name, symlinks=True)
