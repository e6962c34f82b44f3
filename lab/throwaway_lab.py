"""A lab: N throwaway hosts on one bridge, and the shelf they fetch from."""

from __future__ import annotations

import ipaddress
import json
import shutil
from base64 import b32encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from lab import base_images, cgroups, file_server, machine_requirements, network
from lab.hosts import HostSpec, LabHost
from rigwright.file_lock import file_lock
from rigwright.project_root import ROOT

FIRST_HOST = 10  # the last octet of h1 is one more


class ThrowawayLab:
    """A named set of hosts of one checkout. Labs do not see each other: each has its bridge, subnet, key and folder."""

    def __init__(self, name: str = "lab", checkout: Path | None = ROOT) -> None:
        """Name a lab, existing or not.

        Args:
            name: 1 to 6 small letters and digits.
            checkout: The folder that it belongs to: each checkout has a lab of each name. None: a lab from before
                labs belonged to checkouts.
        """
        if not (1 <= len(name) <= 6 and name.isascii() and name.isalnum() and name.islower()):
            raise ValueError(f"lab name {name!r}: 1 to 6 lowercase letters and digits, starting with a letter")
        self.name = name
        self.checkout = checkout
        # names of interfaces have 15 characters, and a host's is this one, a dash and up to 6 of its own
        digest = b32encode(sha256(f"{checkout}\0{name}".encode()).digest()).decode().lower()[:6]
        self.bridge = f"rw{digest if checkout else name}"
        self.folder = machine_requirements.STATE / (f"{name}-{digest}" if checkout else name)
        self.key = self.folder / "key"

    @property
    def exists(self) -> bool:
        """Whether this lab is up, or left over."""
        return (self.folder / "lab.json").exists()

    @cached_property
    def subnet(self) -> ipaddress.IPv4Network:
        """The hosts' network; its first address is this machine's."""
        return ipaddress.IPv4Network(json.loads((self.folder / "lab.json").read_text())["subnet"])

    @property
    def gateway(self) -> str:
        """This machine's address in the hosts' network."""
        return str(self.subnet[1])

    @property
    def cgroup(self) -> str:
        """The cgroup of what serves the hosts from this machine."""
        return f"{self.bridge}-shelf"

    @property
    def shelf_folder(self) -> Path:
        """Files here are served to the hosts at `shelf_url`; the tiny model is among them."""
        return self.folder / "shelf"

    @property
    def shelf_url(self) -> str:
        """Where hosts fetch from the shelf."""
        return f"http://{self.gateway}:{file_server.PORT}"

    @property
    def hosts(self) -> list[LabHost]:
        """The hosts of this lab by name, running or left over."""
        found = []
        for record in sorted(self.folder.glob("hosts/*/host.json")):
            data = json.loads(record.read_text())
            # JSON has no tuples; the lab of another checkout may have keys of another version
            declared: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in data["spec"].items()
                if key in HostSpec.__dataclass_fields__
            }
            spec = HostSpec(**declared)
            found.append(LabHost(spec, record.parent, data["namespace"], data["address"], self.key))
        return found

    def host(self, name: str) -> LabHost:
        """One host by name.

        Raises:
            KeyError: there is none of that name.
        """
        for host in self.hosts:
            if host.name == name:
                return host
        raise KeyError(name)

    def up(self, specs: Sequence[HostSpec]) -> list[LabHost]:
        """Boot hosts, making the lab where it does not exist, and wait until all answer.

        Raises:
            lab.machine_requirements.UnsupportedMachine: this machine cannot run one.
            TimeoutError: a host does not answer.
            RuntimeError: a program fails that makes the lab; its words are the text.
            ValueError: a host of that name is there already.
        """
        machine_requirements.require_lab()
        for spec in specs:
            base_images.build_base(base_images.RELEASES[spec.release])
        machine_requirements.STATE.mkdir(parents=True, exist_ok=True)
        # two at once would choose the same subnet or address
        with file_lock(machine_requirements.STATE / ".lock", "booting hosts of a lab"):
            made = self._boot_specs(specs)
        # which others need not wait for
        with _destroy_on_error(made):
            for host in made:
                host.wait()
        return made

    def _boot_specs(self, specs: Sequence[HostSpec]) -> list[LabHost]:
        if self.exists and not network.is_up(self.bridge):
            self.down()  # this machine was restarted since
        if not self.exists:
            self._create_lab()
        taken = {host.name: host.address for host in self.hosts}
        if again := sorted(set(taken) & {spec.name for spec in specs}):
            raise ValueError(f"already up: {', '.join(again)}")
        free = (
            str(address) for address in list(self.subnet)[FIRST_HOST + 1 : -1] if str(address) not in taken.values()
        )
        folder = self.folder / "hosts"
        made = [LabHost(s, folder / s.name, f"{self.bridge}-{s.name}", next(free), self.key) for s in specs]
        with _destroy_on_error(made):
            for host in made:
                host.boot(self.bridge, self.subnet)
        return made

    def _create_lab(self) -> None:
        subnet = network.free_subnet()
        shutil.rmtree(self.folder, ignore_errors=True)  # remains of an interrupt
        self.folder.mkdir(parents=True)
        record = {"subnet": str(subnet), "name": self.name, "checkout": str(self.checkout)}
        (self.folder / "lab.json").write_text(json.dumps(record))
        network.run_program(
            "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"rigwright-{self.name}", "-f", str(self.key)
        )
        network.create_bridge(self.bridge, subnet)
        file_server.start_shelf(self.shelf_folder, self.gateway, self.cgroup, self.folder / "shelf.log")

    def down(self) -> None:
        """End every host and take the lab away, also what a crash has left. Without a lab, nothing is done."""
        if not self.exists:
            return
        for host in self.hosts:
            host.destroy()
        cgroups.kill_cgroup(self.cgroup)
        network.remove_bridge(self.bridge)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def _destroy_on_error(hosts: Sequence[LabHost]) -> Iterator[None]:
    """Leave no host behind where something in the block fails."""
    try:
        yield
    except BaseException:
        for host in hosts:
            host.destroy()
        raise


def list_labs() -> list[ThrowawayLab]:
    """Every lab of this machine, of each checkout, running or left over."""
    labs = []
    for path in sorted(machine_requirements.STATE.glob("*/lab.json")):
        record = json.loads(path.read_text())
        labs.append(
            ThrowawayLab(record["name"], Path(record["checkout"]))
            if "name" in record
            else ThrowawayLab(path.parent.name, None)
        )
    return labs
