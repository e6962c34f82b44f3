"""An operator's folder with a small environment: a real Python from the lab's channel, and real wheels of two kinds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact, Lock
from tests.hosts.support import write_inventory
from tests.stand_ins import conda_python
from tests.stand_ins.environment_source import EnvironmentSource, LabEnvironment, write_declaration

# pure Python from one locked group, machine code for this very Python from another
PURE, NATIVE = ("packaging", "pathspec"), "pyyaml"
FOLDER = "/opt/rigwright/engines"


@dataclass(frozen=True)
class EnvironmentServers:
    """The sources of hosts, and their files."""

    source: EnvironmentSource
    packages: tuple[Artefact, ...]

    @property
    def python_packages(self) -> tuple[Artefact, ...]:
        """The conda packages, the interpreter's first."""
        return self.source.python


@contextmanager
def serve_environment(lab: ThrowawayLab, folder: Path) -> Iterator[EnvironmentServers]:
    """Make the channel and keep the wheels, and serve both while the block runs."""
    locked = Lock.load([ROOT / "locks"]).groups
    rows = [row for row in locked["tools"] if row.name in PURE]
    rows += [row for row in locked["hub-client"] if row.name == NATIVE]
    with EnvironmentSource(lab.gateway, folder, conda_python.find_interpreter()) as source:
        yield EnvironmentServers(source, source.environment_rows(rows))


def write_env_inventory(
    folder: Path,
    lab: ThrowawayLab,
    host: LabHost,
    made: EnvironmentServers,
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
    given = {"envs": ["small"], "instances": {}, "mirrors": made.source.inventory_mirrors} | rig
    inventory = write_inventory(folder, lab, host, **given)
    rows = (*(made.python_packages if python is None else python), *wheels)
    write_declaration(folder, LabEnvironment("small", "packaging", tuple(modules.values()), patches, plugins), rows)
    return inventory


def environment_folder(host: LabHost) -> str:
    """Where the environment's installation lies."""
    return host.run(f"ls -d {FOLDER}/small-*").strip()
