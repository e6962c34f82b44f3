"""Starting point of tests of containers: a stand-in for the toolkit's archive next to the driver's, and a host."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from lab.throwaway_lab import ThrowawayLab
from rigwright.model.containers import archive_tables
from tests.hosts import driver_box
from tests.hosts.driver_box import OLD, DriverBox
from tests.stand_ins.nvidia import container_packages
from tests.stand_ins.nvidia.signing_keys import SigningKey

TOOLKIT, NEWER = "1.19.1", "1.20.0"
FOUR = {
    "libnvidia-container1",
    "libnvidia-container-tools",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
}
BUNDLE = "the bundle"
DISKS = ("/var/lib/docker", "/var/lib/containers")
BOTH: dict[str, Any] = {"engines": ("docker", "podman"), "daemon": {"log-driver": "journald"}}
DEVICES = {"nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"}
# A file system with a shell, for containers of the operator's own: of the host's own programs.
IMAGE = """
cd "$(mktemp -d)"
mkdir -p usr/bin usr/lib/x86_64-linux-gnu usr/lib64 etc
ln -s usr/bin bin && ln -s usr/lib lib && ln -s usr/lib64 lib64
cp -L /bin/sleep /bin/ls usr/bin/
for file in $(ldd /bin/sleep /bin/ls | grep -o '/lib[^ ]*' | sort -u); do cp -L "$file" "usr$file"; done
tar -c . > /root/image.tar
"""
INPUT = """
[inputs.container-toolkit]
kind = "deb"
version = "{}"
sources = ["container-toolkit:stable/deb/amd64"]
"""


DOCKER = """
[inputs.docker-{}]
kind = "deb"
version = "{}"
sources = ["docker:debian"]
"""


@dataclass
class ContainersBox(DriverBox):
    """A host with cards and a driver, and the archives that both and the toolkit come from."""

    def publish_toolkit(self, *versions: str) -> None:
        """Have the toolkit's archive hold these versions."""
        debs = [deb for version in versions for deb in container_packages.toolkit_packages(version)]
        container_packages.write_toolkit(self.lab.shelf_folder, debs, self.key)

    def declare_containers(
        self, driver: str = "", version: str = TOOLKIT, own_docker: str = "", bundle: bool = False, **containers: Any
    ) -> None:
        """Declare containers, and lock driver and toolkit, and Docker's own packages where their version is given.

        Args:
            driver: Its version; by default the one that the host has.
            version: The toolkit's.
            own_docker: That of Docker's own packages; none without it.
            bundle: Whether the rig gets what it lacks from a bundle, which is made.
            containers: Keys of the inventory.
        """
        self.write_container_tables()
        also: dict[str, Any] = {"containers": containers} if containers else {}
        # a managed driver from a bundle takes a bundle of twice the size: it has tests of its own
        also |= {"bundle": BUNDLE, "driver": {}} if bundle else {}
        self.declare({**also, "mirrors": self.mirrors})
        inputs = INPUT.format(version) + (DOCKER.format(self.system, own_docker) if own_docker else "")
        self.lock(driver or OLD[self.system], inputs)
        if bundle:
            self.run_rig("bundle", "--system", self.system)

    def write_container_tables(self) -> None:
        """Write tables that know the stand-ins' key."""
        known = archive_tables.load_container_tables(archive_tables.SHIPPED.parents[2])
        own = self.folder / archive_tables.PLACE
        own.parent.mkdir(parents=True, exist_ok=True)
        text = archive_tables.SHIPPED.read_text()
        for one in known.archives.values():
            text = text.replace(one.fingerprint, self.key.fingerprint)
        own.write_text(text)

    @property
    def mirrors(self) -> dict[str, list[str]]:
        """The addresses of the stand-ins."""
        folders = {"nvidia": "nvidia", "container-toolkit": container_packages.TOOLKIT}
        folders["docker"] = container_packages.DOCKER
        return {name: [f"{self.lab.shelf_url}/{folder}"] for name, folder in folders.items()}

    @property
    def toolkit_versions(self) -> set[str]:
        """The versions that its packages have."""
        said = self.host.run(f"dpkg-query -W -f '${{Version}} ' {' '.join(sorted(FOUR))}", check=False)
        return {one.partition("-")[0] for one in said.split()}

    @property
    def docker_options(self) -> dict[str, Any]:
        """Docker's."""
        found: dict[str, Any] = json.loads(self.host.run("cat /etc/docker/daemon.json"))
        return found

    def docker_info(self, name: str) -> str:
        """The report of Docker's daemon."""
        return self.host.run(f"docker info -f '{{{{.{name}}}}}'").strip()

    @property
    def spec_driver(self) -> str:
        """The driver that the spec of the cards is of."""
        said = self.host.run("grep -oE 'libcuda.so.[0-9.]+$' /run/cdi/nvidia.yaml | sort -u", check=False)
        return said.strip().removeprefix("libcuda.so.")


@pytest.fixture(scope="module")
def containers_box(
    lab: ThrowawayLab,
    release: str,
    key: SigningKey,
    tmp_path_factory: pytest.TempPathFactory,
    undriven_layer: str,
    driven_layer: str,
) -> Callable[[], ContainersBox]:
    """Boots a host whose older driver runs, for containers to come to; the toolkit's archive has two versions."""

    def boot() -> ContainersBox:
        folder = tmp_path_factory.mktemp("containers") / "box"
        layers = (driven_layer, undriven_layer)
        made = driver_box.boot_driver_box(lab, release, folder, key, *layers, disks=DISKS)
        one = ContainersBox(made.lab, made.host, made.folder, made.key)
        one.publish(driver_box.OLD[release], driver_box.NEW[release])
        one.publish_toolkit(TOOLKIT, NEWER)
        return one

    return boot
