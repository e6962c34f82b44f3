"""An operator's folder with a small environment: a real Python from the lab's channel, and real wheels of two kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import conda
from lab.envs import Env, Source, declare
from lab.hosts import Host
from lab.labs import Lab
from rigwright.paths import ROOT
from rigwright.supply.lock import Artefact, Lock
from tests.hosts.support import write_inventory

# pure Python from one locked group, machine code for this very Python from another
PURE, NATIVE = ("packaging", "pathspec"), "pyyaml"
FOLDER = "/opt/rigwright/engines"


@dataclass(frozen=True)
class Ground:
    """What hosts fetch from, and what there is."""

    source: Source
    packages: tuple[Artefact, ...]

    @property
    def python(self) -> tuple[Artefact, ...]:
        """The conda packages, the interpreter's first."""
        return self.source.python


@contextmanager
def ground(lab: Lab, folder: Path) -> Iterator[Ground]:
    """Make the channel and keep the wheels, and serve both while the block runs."""
    locked = Lock.load([ROOT / "locks"]).groups
    rows = [row for row in locked["tools"] if row.name in PURE]
    rows += [row for row in locked["hub-client"] if row.name == NATIVE]
    with Source(lab.gateway, folder, conda.find()) as source:
        yield Ground(source, source.packages(rows))


def write(
    folder: Path,
    lab: Lab,
    host: Host,
    made: Ground,
    *,
    packages: Sequence[Artefact] | None = None,
    python: Sequence[Artefact] | None = None,
    patches: tuple[str, ...] = (),
    plugins: tuple[str, ...] = (),
    **rig: Any,
) -> Path:
    """An inventory of one host with the environment, and catalogue and lock beside it."""
    wheels = made.packages if packages is None else packages
    modules = {row.name: "yaml" if row.name == NATIVE else row.name for row in wheels}
    given = {"envs": ["small"], "instances": {}, "mirrors": made.source.mirrors} | rig
    inventory = write_inventory(folder, lab, host, **given)
    rows = (*(made.python if python is None else python), *wheels)
    declare(folder, Env("small", "packaging", tuple(modules.values()), patches, plugins), rows)
    return inventory


def folder_of(host: Host) -> str:
    """Where the environment's installation lies."""
    return host.run(f"ls -d {FOLDER}/small-*").strip()
