"""The starting point of the tests of the driver's role: a stand-in for NVIDIA's archive, a rig next to its lock, a
host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.model.nvidia_tables import SHIPPED, load_driver_tables
from rigwright.project_root import ROOT
from tests.hosts.support import deploy_command, red_checks, run_deploy, run_plan, wait_until
from tests.stand_ins.nvidia import apt_archive, kernel_packages, nvidia_driver_packages
from tests.stand_ins.nvidia.debian_packages import StandInDeb
from tests.stand_ins.nvidia.kernel_layer import prepare_kernel_host
from tests.stand_ins.nvidia.signing_keys import SigningKey

KERNELS = {
    "debian-12": ("6.1.0-40-amd64", "6.1.0-41-amd64"),
    "debian-13": ("6.12.94+deb13-amd64", "6.12.107+deb13-amd64"),
}
OLD, NEW = {"debian-12": "580.159.03", "debian-13": "595.58.03"}, {"debian-12": "580.178.04", "debian-13": "595.71.05"}
C2080, C22G, C3090, C5090 = "10de:1e04", "10de:1e07", "10de:2204", "10de:2b85"
NAMES = {C2080: "rtx-2080-ti", C22G: "rtx-2080-ti-22g", C3090: "rtx-3090", C5090: "rtx-5090"}


def single_release_mark(release: str) -> pytest.MarkDecorator:
    """Where releases do not differ, one is enough: a host with a driver takes most of a minute."""
    return pytest.mark.parametrize("release", [release], indirect=True)


def boot_driver_box(
    lab: ThrowawayLab,
    release: str,
    folder: Path,
    key: SigningKey,
    *layers: str,
    cards: tuple[str, ...] = (C3090, C3090),
    disks: tuple[str, ...] = (),
    kernels: tuple[str, ...] = (),
    image_version: str = "",
) -> DriverBox:
    """A host with kernels and cards. Its name is always the same, and with it the cards' numbers: one at a time."""
    folder.mkdir(parents=True)
    spec = prepare_kernel_host("driven", release, kernels or KERNELS[release], cards, layers, disks, image_version)
    (host,) = lab.up([spec])
    return DriverBox(lab, host, folder, key)


@dataclass
class DriverBox:
    """One host with cards, its inventory, and the archive that its driver comes from."""

    lab: ThrowawayLab
    host: LabHost
    folder: Path
    key: SigningKey

    @property
    def system(self) -> str:
        return self.host.spec.release

    @property
    def inventory(self) -> Path:
        return self.folder / "rig.py"

    def publish(
        self, *versions: str, key: SigningKey | None = None, also: tuple[StandInDeb, ...] = (), **more: Any
    ) -> None:
        """Have NVIDIA's archive hold these drivers, and the host's kernels' headers beside them."""
        own = load_driver_tables(ROOT).archive(self.system)
        debs = [deb for version in versions for deb in nvidia_driver_packages.nvidia_debian_debs(version, **more)]
        debs += [deb for deb in kernel_packages.kernel_packages(KERNELS[self.system], "amd64") if "headers" in deb.name]
        place = self.lab.shelf_folder / "nvidia" / own.path
        apt_archive.write_archive(place, [*debs, *also], key or self.key, apt_archive.FlatLayout(own.key))

    def declare(self, also: dict[str, Any] | None = None, **driver: Any) -> None:
        """Write the inventory, with tables that know the stand-in's key.

        Args:
            also: Keys of the rig's beside those of its driver.
            driver: Those.
        """
        tabled = self.folder / "catalog/driver/driver.toml"
        tabled.parent.mkdir(parents=True, exist_ok=True)
        own = load_driver_tables(ROOT).archive(self.system)
        tabled.write_text(SHIPPED.read_text().replace(own.fingerprint, self.key.fingerprint))
        rig = {
            **self.host.inventory_keys,
            "cards": [NAMES[card] for card in self.host.spec.cards],
            "driver": {"managed": True, **driver},
            "mirrors": {"nvidia": [f"{self.lab.shelf_url}/nvidia"]},
            "allow": [f"locks.driver-{self.system}", "locks.container-toolkit", f"locks.docker-{self.system}"],
            **(also or {}),
        }
        self.inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {rig!r}}})\n")

    def lock(self, version: str, also: str = "") -> str:
        """Ask for a driver, and for other inputs, and lock them."""
        path = load_driver_tables(ROOT).archive(self.system).path
        (self.folder / "catalog/inputs.toml").write_text(
            f'[inputs."driver-{self.system}"]\nkind = "deb"\nversion = "{version}"\nsources = ["nvidia:{path}"]\n{also}'
        )
        return self.run_rig("lock")

    def run_rig(self, verb: str, *options: str, status: int = 0) -> str:
        """Run a verb of ours over the inventory, as its user does."""
        words = [sys.executable, "-m", "cli", verb, str(self.inventory), *options]
        done = subprocess.run(words, capture_output=True, text=True, cwd="/")
        assert done.returncode == status, f"{verb} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def red_checks(self) -> set[str]:
        """The checks that do not hold."""
        return red_checks(self.inventory)

    def assert_unchanged(self) -> None:
        """Assert that a plan and a deploy find nothing to do."""
        assert run_plan(self.inventory).planned_operations == []
        assert run_deploy(self.inventory).changed_operations == []

    @property
    def installed_driver(self) -> str:
        """The driver whose libraries are there."""
        listed = self.host.run("dpkg-query -W -f '${db:Status-Status} ${Version}\n' libcuda1", check=False).split()
        return listed[1].partition("-")[0] if listed[:1] == ["installed"] else ""

    @property
    def loaded_module(self) -> str:
        """The module that runs."""
        return self.host.run("cat /sys/module/nvidia/version 2>/dev/null", check=False).strip()

    @property
    def power_limits(self) -> list[float]:
        """The cards' power limits, W."""
        said = self.host.run("nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits")
        return [float(limit) for limit in said.split()]

    @property
    def held_packages(self) -> set[str]:
        """The packages that apt holds."""
        return set(self.host.run("apt-mark showhold").split())

    def interrupt(self, what: str, step: str, job: str = "rw-job-driver") -> None:
        """Deploy until a job of the host's says a step, and end the controller there, or the host too."""
        log = f"/var/lib/rigwright/jobs/{job}/log"
        with subprocess.Popen(
            deploy_command(self.inventory, "--yes"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as controller:
            wait_until(lambda: step in self.host.run(f"cat {log} 2>/dev/null", check=False), step, 300)
            if what == "powered off":
                self.host.kill()
            os.killpg(controller.pid, signal.SIGKILL)
        if what == "powered off":
            self.host.start()
            self.host.wait()
