"""The driver's operations on a host that is a shell of this machine, and the output for it and the operator."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rigwright.model.roots import Roots
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.packages.driver_target import DriverTarget
from rigwright.supply.bundle import LocalFile
from roles.operations import drivers, packages, reconnecting_shell
from roles.operations.drivers import LOOK, _DriverRun
from tests.unit.apt_simulation import simulation_lines
from tests.unit.channel_records import channel_lines
from tests.unit.managed_driver_samples import NAMES, NEW, OLD, managed_rig
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.ssh_host import ShellHost

COMES = [f"Inst {name} [{OLD}-1] ({NEW}-1 NVIDIA CUDA [amd64])" for name in NAMES]


class DriverOperationsHost(_DriverRun):
    """A host whose jobs do nothing but leave a test's texts, and whose driver is a test's."""

    def __init__(self, root: Path, wanted: DriverTarget, *seen: DriverFacts, consent: bool = False) -> None:
        made = replace(
            managed_rig(), roots=Roots.model_construct(**Roots().model_dump() | {"state": str(root / "state")})
        )
        super().__init__(None, ShellHost(), made, wanted, consent)
        self.seen, self.jobs_run, self.says, self.fails = list(seen), [], ["archive", *COMES], ""

    def read_facts(self) -> DriverFacts:
        return self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]

    def run_package_job(self, unit: str, script: str, files: Sequence[LocalFile] = ()) -> bool:
        self.jobs_run.append((unit, script))
        if unit == LOOK:
            done = Path(f"{self.jobs}/{LOOK}/done")
            done.parent.mkdir(parents=True, exist_ok=True)
            how, *said = self.says
            done.write_text("\n".join(channel_lines(("how", how), ("said", "\n".join(simulation_lines(said))))))
        return unit != self.fails

    @property
    def units(self) -> list[str]:
        return [unit for unit, _ in self.jobs_run]


def capture_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The operator's output; apt-mark and systemctl are stand-ins that remember."""
    lines: list[str] = []
    listener = SimpleNamespace(error=lines.append, info=lambda _: None, warning=lines.append)
    for module in (drivers, packages):
        monkeypatch.setattr(module, "logger", listener)
    monkeypatch.setattr(reconnecting_shell, "find_deploy_lock", lambda _: None)
    for name in ("apt-mark", "modprobe"):
        write_stand_in(tmp_path / "bin", name, f'echo "{name} $*" >> {tmp_path}/asked')
    write_stand_in(tmp_path / "bin", "systemctl", 'echo "${ACTIVE:-inactive}"; [ -n "$ACTIVE" ]')
    write_stand_in(tmp_path / "bin", "nvidia-modprobe", "true")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "asked").touch()
    return lines


def recorded_commands(root: Path) -> list[str]:
    """The recorded orders."""
    return (root / "asked").read_text().splitlines()
