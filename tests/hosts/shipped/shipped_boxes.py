"""The means of the operator of a shipped inventory: its file with addresses, hosts, and the sources of all of it."""

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab import tiny_model
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.engines.llama_cpp.build import Build
from rigwright.inventory import load_for, load_rig
from rigwright.model.nvidia_tables import SHIPPED, load_driver_tables
from rigwright.model.rig import Rig
from rigwright.plan.plan_inputs import build_target_state
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock, render_lock
from tests.hosts.driver_box import KERNELS, OLD
from tests.hosts.shipped import stand_in_engine
from tests.hosts.shipped.stand_in_wheels import stand_in_rows, wheels_of_rows
from tests.stand_ins import card_faults, conda_python, tiny_projector, wheel_cache
from tests.stand_ins.environment_source import LAB_PACKAGES, is_for_interpreter
from tests.stand_ins.hub import StandInHub
from tests.stand_ins.nvidia import apt_archive, kernel_packages, nvidia_driver_packages
from tests.stand_ins.nvidia.card_models import bus_addresses
from tests.stand_ins.nvidia.kernel_layer import prepare_kernel_host
from tests.stand_ins.nvidia.signing_keys import SigningKey
from tests.stand_ins.package_servers import StandInCondaChannel, StandInIndex
from tests.stand_ins.wheel_cache import CachedWheel
from tests.unit.checkpoints import CHECKPOINT_PATHS, safetensors_bytes
from tests.unit.samples import sample_facts
from tests.unit.shipped_inventories import CHECKPOINTS, FILES

RELEASE = "debian-13"
SERIES = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""Pythons that wheels of Rigwright's own tools are locked for; a host fetches those of every one."""
PYTHON = "3.10.20"
"""The catalogue's, which the channel says that its own is."""
USER = "ops"
"""The login user of inventories: may become root without a password."""
INPUTS = """
[inputs.driver-{system}]
kind = "deb"
version = "{version}"
sources = ["nvidia:{path}"]
"""
ACCOUNT = f"""
set -e
useradd --create-home {USER}
cp -r /root/.ssh /home/{USER}/
chown -R {USER}: /home/{USER}/.ssh
echo '{USER} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/{USER}
"""


@dataclass
class ShippedServers:
    """The servers of all hosts while the block of `ground` runs."""

    lab: ThrowawayLab
    key: SigningKey
    index: StandInIndex
    hub: StandInHub
    channel: StandInCondaChannel

    @property
    def inventory_mirrors(self) -> dict[str, list[str]]:
        """An inventory's."""
        shelf = self.lab.shelf_url
        return {
            "hub": [self.hub.url],
            "index": [self.index.url],
            "conda-forge": [self.channel.url],
            "nvidia": [f"{shelf}/nvidia"],
        }


@contextmanager
def serve_shipped(lab: ThrowawayLab, key: SigningKey, folder: Path) -> Iterator[ShippedServers]:
    """Have all of it, of a lab that is up; a machine without the Python that packages are locked for skips."""
    interpreter = conda_python.find_interpreter()
    if not interpreter.wanted:
        pytest.skip(
            f"{interpreter} is here alone, and environments are locked for CPython {conda_python.DEFAULT_SERIES}"
        )
    conda_python.write_channel(folder, interpreter, PYTHON)
    with (
        StandInIndex(lab.gateway, _index_wheels()) as index,
        StandInHub(lab.gateway) as hub,
        StandInCondaChannel(lab.gateway, folder) as channel,
    ):
        _publish_models(hub, folder)
        _publish_drivers(lab, key)
        yield ShippedServers(lab, key, index, hub, channel)


def _index_wheels() -> list[CachedWheel]:
    """The wheels that boxes need of an index, the stand-ins among them: all that is locked, for every Python."""
    groups = Lock.load([ROOT / "locks"]).groups
    own = [row for group in (*LAB_PACKAGES, "hub-client") for row in groups[group]]
    found: dict[str, CachedWheel] = {}
    for series in SERIES:
        suiting = wheels_of_rows(
            row for row in own if is_for_interpreter(row, conda_python.Interpreter(Path(), f"{series}.0", Path()))
        )
        wheel_cache.fetch_wheels(suiting, series)
        found |= {one.file: one for one in suiting}
    assert found.keys() == {row.file for row in own}
    return [*found.values(), *wheels_of_rows(stand_in_rows())]


def _publish_models(hub: StandInHub, folder: Path) -> None:
    """Publish models of the right names, in small."""
    gguf, eye = folder / "tiny.gguf", folder / "eye.gguf"
    tiny_model.write_model(gguf)
    tiny_projector.write_projector(eye)
    made: dict[str, dict[str, bytes]] = {
        name: {path: (eye if "mmproj" in path else gguf).read_bytes() for path in paths}
        for name, paths in FILES.items()
    }
    for name, config in CHECKPOINTS.items():
        content = {"config.json": json.dumps(config).encode(), "model.safetensors": safetensors_bytes(4096)}
        made[name] = {path: content.get(path, b"{}") for path in CHECKPOINT_PATHS}
    inputs = load_catalog([ROOT / "catalog"]).inputs
    for name, files in made.items():
        hub.add_commit(str(inputs[name].repository), files, licence="apache-2.0")


def _publish_drivers(lab: ThrowawayLab, key: SigningKey) -> None:
    """Have NVIDIA's archive hold a driver, and the kernels' headers beside it."""
    known = load_driver_tables(ROOT).archive(RELEASE)
    debs = nvidia_driver_packages.nvidia_debian_debs(OLD[RELEASE])
    debs += [deb for deb in kernel_packages.kernel_packages(KERNELS[RELEASE], "amd64") if "headers" in deb.name]
    apt_archive.write_archive(lab.shelf_folder / "nvidia" / known.path, debs, key, apt_archive.FlatLayout(known.key))


@dataclass
class ShippedBoxes:
    """The hosts of one shipped inventory, and the operator's folder."""

    made: ShippedServers
    name: str
    folder: Path
    hosts: dict[str, LabHost] = field(default_factory=dict)

    @property
    def inventory(self) -> Path:
        """Its file, as its operator has it."""
        return self.folder / f"{self.name}.py"

    @property
    def rigs(self) -> dict[str, Rig]:
        """Its rigs, by name; once it is locked."""
        group: Any = runpy.run_path(str(self.inventory))["rigs"]
        return {name: load_rig(data["rig"]) for name, data in group}

    def boot(self, *layers: str) -> None:
        """Boot a host a rig, with its cards as the inventory declares them."""
        with load_for("lock"):
            group: Any = runpy.run_path(str(ROOT / "inventory" / f"{self.name}.py"))["rigs"]
            rigs = {name: (load_rig(data["rig"]), str(data["ssh_hostname"])) for name, data in group}
        specs = [
            prepare_kernel_host(
                f"s{number}", RELEASE, KERNELS[RELEASE], tuple(card.pci_ids[0] for card in rig.cards), layers
            )
            for number, (rig, _) in enumerate(rigs.values())
        ]
        up = self.made.lab.up(specs)
        self.hosts = dict(zip(rigs, up, strict=True))
        for name, (rig, _) in rigs.items():
            _describe_cards(self.hosts[name], rig)
            self.hosts[name].run(ACCOUNT)
            self.hosts[name].reboot()
        self._write({address: self.hosts[name].address for name, (_, address) in rigs.items()})

    def _write(self, moved: dict[str, str]) -> None:
        """Write the inventory with its operator's addresses, catalogue and what is locked without `rigwright lock`."""
        shipped = (ROOT / "inventory" / f"{self.name}.py").read_text()
        words = re.sub(r'"(192\.0\.2\.[0-9]+)"', lambda found: json.dumps(moved[found[1]]), shipped)
        words = words.replace("192.0.2.0/24", str(self.made.lab.subnet))
        host = next(iter(self.hosts.values()))
        known = self.folder / "known_hosts"
        shared = {
            "mirrors": self.made.inventory_mirrors,
            "allow": [f"locks.driver-{RELEASE}", "locks.cuda"],
            "redirects": [self.made.hub.cdn_url],
            "ssh_key": str(host.key),
            "ssh_known_hosts_file": str(known),
        }
        given = "".join(f"    {name}={value!r},\n" for name, value in shared.items())
        words = f"{words.rstrip().removesuffix(')').rstrip().rstrip(',')},\n{given})\n"
        for noun in ("catalog/driver", "locks"):
            (self.folder / noun).mkdir(parents=True)
        self.inventory.write_text(words)
        known.write_text("".join(one.known_hosts.read_text() for one in self.hosts.values()))
        archived = load_driver_tables(ROOT).archive(RELEASE)
        tabled = SHIPPED.read_text().replace(archived.fingerprint, self.made.key.fingerprint)
        (self.folder / "catalog/driver/driver.toml").write_text(tabled)
        asked = INPUTS.format(system=RELEASE, version=OLD[RELEASE], path=archived.path)
        (self.folder / "catalog/nvidia.toml").write_text(asked)

    def lock(self) -> str:
        """Lock it as its operator does, and put stand-ins in the place of wheels; returns the output."""
        rows = stand_in_rows()
        given = self.folder / "locks/stand-ins.lock.toml"
        given.write_text(render_lock(rows, "tests/hosts/shipped"))
        said = self.rigwright("lock")
        # no catalogue asks for it, so it was taken away
        given.write_text(render_lock(rows, "tests/hosts/shipped"))
        return said

    def rigwright(self, verb: str, *options: str) -> str:
        """Run a verb over the inventory, as its operator does; returns what it said."""
        environment = os.environ | {"PIP_INDEX_URL": self.made.index.url}
        words = [sys.executable, "-m", "cli", verb, str(self.inventory), *options]
        done = subprocess.run(words, capture_output=True, text=True, cwd="/", env=environment)
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{verb} ended with {done.returncode}: {said[-6000:]}"
        return said

    def install_engines(self, engine_layer: str) -> None:
        """Give boxes that serve by llama.cpp what they would compile."""
        for name, rig in self.rigs.items():
            cards = tuple(zip(bus_addresses(rig.cards), [card.pci_ids[0] for card in rig.cards], strict=True))  # type: ignore[arg-type]
            wanted = build_target_state(rig, sample_facts(os_version=RELEASE.partition("-")[2], pci_cards=cards))
            for made in wanted.installations.values():
                if isinstance(made, Build):
                    self.hosts[name].run("mkdir -p /opt/rigwright/engines")
                    stand_in_engine.install_stand_in(self.hosts[name], engine_layer, made)

    def report_computing(self) -> None:
        """Have the driver say that instances compute on their cards, as their processes hold them."""
        for name, rig in self.rigs.items():
            host, cards = self.hosts[name], bus_addresses(rig.cards)  # type: ignore[arg-type] # one for each
            for one in rig.instances:
                pid = host.run(f"systemctl show --property=MainPID --value {one.unit}").strip()
                for index in one.cards:
                    host.run(f"echo {pid} 1000 > /run/lab/cards/{cards[index]}.apps")

    def destroy(self) -> None:
        """Take the hosts away."""
        for host in self.hosts.values():
            host.destroy()


def _describe_cards(host: LabHost, rig: Rig) -> None:
    """Say of a host's cards what the inventory says of them: lanes, bridges and memory."""
    where = bus_addresses(host.spec.cards)
    for index, card in enumerate(rig.cards):
        said: dict[str, object] = {"vram_mib": card.vram_mib}
        if rig.driver.pcie_link_width:
            said["lanes"] = rig.driver.pcie_link_width[index]
        for pair in rig.driver.nvlinks:
            if index in pair:
                (other,) = set(pair) - {index}
                said |= {"bridge": where[other], "nvlinks": 2, "nvlinks_max": 2}
        card_faults.change_card(host, where[index], **said)
