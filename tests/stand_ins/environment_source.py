"""The sources of environments, from this machine only: kept wheels in an index, and a channel with a real Python.

with Source(lab.gateway, folder) as source:
    packages = source.offer(rows)
    declare(inventory.parent, Env("some", source.python, packages, "vllm", ("vllm",)))
    rig = {"envs": ["some"], "mirrors": source.mirrors}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from packaging.markers import Marker
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact, Lock, render_lock
from tests.stand_ins import conda_python, wheel_cache
from tests.stand_ins.package_servers import StandInCondaChannel, StandInIndex
from tests.stand_ins.wheel_cache import PLATFORMS, CachedWheel

CHANNEL = "lab"
"""The name of the mirrors of the channel."""
INTERPRETER, PACKAGES = "lab-python", "lab-packages"
"""The groups of their rows."""
# the product's own packages on hosts come from the same index
LAB_PACKAGES = ("tools", "installers")


@dataclass(frozen=True)
class LabEnvironment:
    """One environment, as a catalogue has it."""

    name: str
    distribution: str
    imports: tuple[str, ...]
    patches: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    cuda: bool = False
    """Whether its programs compile for cards."""

    @property
    def catalogue_text(self) -> str:
        """The catalogue's text."""
        values: dict[str, object] = {"python": INTERPRETER, "packages": PACKAGES, "distribution": self.distribution}
        values |= {"patches": self.patches} if self.patches else {}
        values |= {"plugins": self.plugins} if self.plugins else {}
        values |= {"cuda": self.cuda} if self.cuda else {}
        lines = [f"{key} = {json.dumps(value)}" for key, value in {**values, "imports": self.imports}.items()]
        return "\n".join([f"[envs.{json.dumps(self.name)}]", *lines]) + "\n"


class EnvironmentSource:
    """An index and a channel, while the block runs or until `close`.

    Args:
        address: Of this machine, to listen on.
        folder: Where the channel is made.
        interpreter: The interpreter that it packs.
    """

    def __init__(self, address: str, folder: Path, interpreter: conda_python.Interpreter) -> None:
        self.interpreter = interpreter
        made = conda_python.write_channel(folder, interpreter)
        self.python = tuple(package_row(package) for package in (made.python, made.note))
        """The rows of what the channel has."""
        self.channel, self.index = StandInCondaChannel(address, folder), StandInIndex(address, ())
        groups = Lock.load([ROOT / "locks"]).groups
        self.add_wheels([row for group in LAB_PACKAGES for row in groups.get(group, ())])

    def __enter__(self) -> EnvironmentSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End both."""
        self.channel.close()
        self.index.close()

    @property
    def inventory_mirrors(self) -> dict[str, list[str]]:
        """An inventory's, for a rig that has nothing from elsewhere."""
        return {"index": [self.index.url], CHANNEL: [self.channel.url]}

    @property
    def sent_bytes(self) -> int:
        """Of files, over both."""
        return self.channel.sent_bytes + self.index.sent_bytes

    def add_wheels(self, rows: Iterable[Artefact]) -> None:
        """Have wheels in the index, each fetched once on this machine."""
        found = [CachedWheel(row.name, row.version, row.file, row.sha256, row.size) for row in rows]
        wheel_cache.fetch_wheels(found, self.interpreter.series)
        self.index.add_wheels(found)

    def environment_rows(self, rows: Iterable[Artefact]) -> tuple[Artefact, ...]:
        """Those of locked wheels that are for the interpreter, as rows of an environment's; the index has them then."""
        found = [
            row.model_copy(update=self._wheel_fields(row)) for row in rows if is_for_interpreter(row, self.interpreter)
        ]
        self.add_wheels(found)
        return tuple(found)

    def _wheel_fields(self, row: Artefact) -> dict[str, object]:
        # resolved for another release of the same series, which takes the same wheels
        release = {"python": self.interpreter.version} if row.python else {}
        return {"group": PACKAGES, "marker": None, **release}


def is_for_interpreter(row: Artefact, interpreter: conda_python.Interpreter) -> bool:
    """Whether a wheel is for an interpreter."""
    series = tuple(int(part) for part in interpreter.series.split("."))
    tags = {*cpython_tags(series, platforms=PLATFORMS), *compatible_tags(series, platforms=PLATFORMS)}
    around = {"python_version": interpreter.series, "python_full_version": interpreter.version}
    marked = row.marker is None or Marker(row.marker).evaluate({**around})
    return marked and not tags.isdisjoint(parse_wheel_filename(row.file)[3])


def write_declaration(folder: Path, env: LabEnvironment, rows: Sequence[Artefact]) -> None:
    """Write catalogue and lock of an environment beside an inventory in this folder.

    Args:
        folder: The inventory's.
        env: The catalogue's table.
        rows: Of its interpreter and its packages.
    """
    for name in ("catalog", "locks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "catalog" / "lab.toml").write_text(env.catalogue_text)
    (folder / "locks" / "lab.lock.toml").write_text(render_lock(rows, "catalog/lab.toml"))


def package_row(path: Path) -> Artefact:
    """The row of a package of the lab's channel."""
    said = json.loads((path.parent / "repodata.json").read_text())["packages.conda"][path.name]
    own = {key: said[key] for key in ("name", "version", "build", "sha256", "size")}
    source = f"{CHANNEL}:{path.parent.name}/{path.name}"
    # the lab chose it, and no input of a catalogue
    row = {"kind": "conda", "group": INTERPRETER, "selection": "0" * 12, "file": path.name, "sources": [source], **own}
    return Artefact.model_validate(row)
