"""An operator's folder with a small environment: a real Python from the lab's channel, and real wheels of two kinds."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import conda, wheels
from lab.hosts import Host
from lab.index import Channel, Index
from lab.labs import Lab
from lab.wheels import Wheel
from rigwright.inventory import ROOT
from rigwright.supply.lock import Artefact, Lock, text
from tests.hosts.support import write_inventory

CHANNEL = "labchannel"
# pure Python from one locked group, machine code for this very Python from another
PURE, NATIVE = ("packaging", "pathspec"), "pyyaml"
IMPORTS = ("packaging", "pathspec", "yaml")
FOLDER = "/opt/rigwright/engines"


@dataclass(frozen=True)
class Ground:
    """What hosts fetch from, and what there is."""

    index: Index
    channel: Channel
    python: tuple[Artefact, ...]
    packages: tuple[Artefact, ...]

    @property
    def mirrors(self) -> dict[str, list[str]]:
        """An inventory's."""
        return {CHANNEL: [self.channel.url], "index": [self.index.url]}


def ground(lab: Lab, folder: Path) -> Ground:
    """Make the channel and keep the wheels, and serve both."""
    interpreter = conda.find()
    made = conda.write(folder, interpreter)
    locked = Lock.load([ROOT / "locks"]).groups
    tag = f"cp{interpreter.series.replace('.', '')}"
    pure = [row for row in locked["tools"] if row.name in PURE]
    native = [row for row in locked["hub-client"] if row.name == NATIVE and f"-{tag}-" in row.file]
    packages = tuple(row.model_copy(update={"group": "packages", "marker": None}) for row in (*pure, *native))
    installers = locked["installers"]
    # what hosts need beside them, whatever Python they have
    tools = [row for row in locked["tools"] if row.file.endswith("-none-any.whl") and row.name not in PURE]
    kept = (*packages, *installers, *tools)
    offered = [Wheel(row.name, row.version, row.file, row.sha256, row.size) for row in kept]
    wheels.keep(offered, interpreter.series)
    channel = Channel(lab.gateway, folder)
    python = tuple(_package(path) for path in (made.python, made.note))
    return Ground(Index(lab.gateway, offered), channel, python, packages)


def _package(path: Path) -> Artefact:
    name, version, build = path.name.removesuffix(".conda").rsplit("-", 2)
    content = path.read_bytes()
    return Artefact.model_validate(
        {
            "kind": "conda",
            "name": name,
            "version": version,
            "build": build,
            "group": "interpreter",
            "selection": "0" * 12,
            "file": path.name,
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
            "sources": [f"{CHANNEL}:{path.parent.name}/{path.name}"],
        }
    )


def write(
    folder: Path,
    lab: Lab,
    host: Host,
    made: Ground,
    *,
    packages: Sequence[Artefact] | None = None,
    python: Sequence[Artefact] | None = None,
    **rig: Any,
) -> Path:
    """An inventory of one host with the environment, and catalogue and lock beside it."""
    (folder / "catalog").mkdir(parents=True, exist_ok=True)
    (folder / "locks").mkdir(exist_ok=True)
    imports = ", ".join(f'"{name}"' for name in IMPORTS)
    (folder / "catalog" / "env.toml").write_text(
        '[envs.small]\npython = "interpreter"\npackages = "packages"\ndistribution = "packaging"\n'
        f"imports = [{imports}]\n"
    )
    rows = [*(made.python if python is None else python), *(made.packages if packages is None else packages)]
    by_hand = text(rows, "a test").replace("# Written by `rigwright lock`", "# Written by a test, not", 1)
    (folder / "locks" / "env.lock.toml").write_text(by_hand)
    given = {"envs": ["small"], "instances": {}, "mirrors": made.mirrors} | rig
    return write_inventory(folder, lab, host, **given)


def changed(row: Artefact, **changes: object) -> Artefact:
    """A row that says something else."""
    return row.model_copy(update=changes)


def folder_of(host: Host) -> str:
    """Where the environment's installation lies."""
    return host.run(f"ls -d {FOLDER}/small-*").strip()


def settle(host: Host) -> None:
    """Root's record anew: what a drift did to times of change is no drift any more."""
    folder = shlex.quote(folder_of(host))
    host.run(
        f"cd {folder} && sha256sum --check --quiet files.sha256 && LC_ALL=C find env -printf "
        r"'%p\t%y\t%i\t%s\t%C@\t%m\t%U:%G\t%l\n' | LC_ALL=C sort > tree"
    )
