"""The layers that hosts boot from, and the observations while they were made."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import engine_cache
from lab.hosts import LabHost
from tests.hosts.support import PyinfraRun


@dataclass(frozen=True)
class BlankHostPlan:
    """The observations of a plan for a blank host."""

    plan: PyinfraRun
    written: list[str]


@dataclass(frozen=True)
class CompiledEngine:
    """The observations while a blank host compiled its engine, with the controller killed in the middle."""

    job_after_kill: str
    second: PyinfraRun
    layer: str
    """All that the host wrote."""


@dataclass(frozen=True)
class ConvergedLayers:
    """The layers that converged hosts boot from."""

    layer: str
    """All that a converged host wrote."""
    engine_layer: str
    """Only its compiled engine: a blank host with it skips the compilation."""


@contextmanager
def exclusive_layer(layers: Path, name: str) -> Iterator[Path]:
    """Where a layer goes or is already: a process that needs one that another is making waits for it."""
    layers.mkdir(parents=True, exist_ok=True)
    with open(layers / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield layers / name


def assert_compilation_continued(seen: CompiledEngine) -> None:
    """Assert that the compilation went on without its controller, and that the next one watched it."""
    assert "running" in seen.job_after_kill
    assert "is already running: watching it" in seen.second.said
    assert "compiling: " in seen.second.said


def install_engine(host: LabHost, engine_layer: str) -> None:
    """Give a host that has our folders an engine, with what its compilation would have written down."""
    for engine in (Path(engine_layer) / engine_cache.ENGINES).iterdir():
        shutil.copytree(engine, host.folder / "root" / engine_cache.ENGINES / engine.name, symlinks=True)
        host.run(f"echo tree /{engine_cache.ENGINES / engine.name} >> /var/lib/rigwright/owned")
