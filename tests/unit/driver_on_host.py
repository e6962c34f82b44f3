"""The driver's operations on a host that is a shell of this machine, and what it and the operator are told."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rigwright.model.entry import Roots
from rigwright.nvidia.driver.found import DriverFacts
from rigwright.nvidia.packages.wanted import Wanted
from roles.operations import drivers, shell, working
from roles.operations.drivers import LOOK, _Host
from tests.unit.apt_lines import simulated
from tests.unit.driver_ours import NAMES, NEW, OLD
from tests.unit.driver_ours import rig as managed
from tests.unit.scripts import stand_in
from tests.unit.ssh_host import Host
from tests.unit.telling import telling

COMES = [f"Inst {name} [{OLD}-1] ({NEW}-1 NVIDIA CUDA [amd64])" for name in NAMES]


class OnHost(_Host):
    """A host whose jobs do nothing but leave what a test says, and whose driver is what a test says."""

    def __init__(self, root: Path, wanted: Wanted, *seen: DriverFacts, consent: bool = False) -> None:
        made = replace(managed(), roots=Roots.model_construct(**Roots().model_dump() | {"state": str(root / "state")}))
        super().__init__(None, Host(), made, wanted, consent)
        self.seen, self.jobs_run, self.says, self.fails = list(seen), [], ["archive", *COMES], ""

    def look(self) -> DriverFacts:
        return self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]

    def job(self, unit: str, script: str) -> bool:
        self.jobs_run.append((unit, script))
        if unit == LOOK:
            done = Path(f"{self.jobs}/{LOOK}/done")
            done.parent.mkdir(parents=True, exist_ok=True)
            how, *said = self.says
            done.write_text("\n".join(telling(("how", how), ("said", "\n".join(simulated(said))))))
        return unit != self.fails

    @property
    def units(self) -> list[str]:
        return [unit for unit, _ in self.jobs_run]


def listen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the operator is told; apt-mark and systemctl are stand-ins that remember."""
    lines: list[str] = []
    listener = SimpleNamespace(error=lines.append, info=lambda _: None, warning=lines.append)
    for module in (drivers, working):
        monkeypatch.setattr(module, "logger", listener)
    monkeypatch.setattr(shell, "deploy_lock_of", lambda _: None)
    for name in ("apt-mark", "modprobe"):
        stand_in(tmp_path / "bin", name, f'echo "{name} $*" >> {tmp_path}/asked')
    stand_in(tmp_path / "bin", "systemctl", 'echo "${ACTIVE:-inactive}"; [ -n "$ACTIVE" ]')
    stand_in(tmp_path / "bin", "nvidia-modprobe", "true")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "asked").touch()
    return lines


def told(root: Path) -> list[str]:
    """What they were asked."""
    return (root / "asked").read_text().splitlines()
