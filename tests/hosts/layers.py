"""What hosts boot from, and what was seen while it was made."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import kept
from lab.hosts import Host
from tests.hosts.support import Run


@dataclass(frozen=True)
class BlankPlan:
    """What was seen of a plan for a blank host."""

    plan: Run
    written: list[str]


@dataclass(frozen=True)
class Compiled:
    """What was seen while a blank host compiled its engine, with the controller killed in the middle."""

    job_after_kill: str
    second: Run
    layer: str
    """All that the host wrote."""


@dataclass(frozen=True)
class FirstRun:
    """What converged hosts boot from."""

    layer: str
    """All that a converged host wrote."""
    engine_layer: str
    """Only its compiled engine: a blank host with it skips the compilation."""


@contextmanager
def alone(layers: Path, name: str) -> Iterator[Path]:
    """Where a layer goes or is already: a process that needs one that another is making waits for it."""
    layers.mkdir(parents=True, exist_ok=True)
    with open(layers / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield layers / name


def watched(seen: Compiled) -> None:
    """Assert that the compilation went on without its controller, and that the next one watched it."""
    assert "running" in seen.job_after_kill
    assert "is already running: watching it" in seen.second.said
    assert "compiling: " in seen.second.said


def put_engine(host: Host, engine_layer: str) -> None:
    """Give a host that has our folders an engine, with what its compilation would have written down."""
    for engine in (Path(engine_layer) / kept.ENGINES).iterdir():
        shutil.copytree(engine, host.folder / "root" / kept.ENGINES / engine.name, symlinks=True)
        host.run(f"echo tree /{kept.ENGINES / engine.name} >> /var/lib/rigwright/owned")
