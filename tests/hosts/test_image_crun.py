"""An engine that comes as an image where podman is too old: Debian 12's own crun, beside its own Docker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hosts import HostSpec
from lab.labs import Lab
from tests.hosts.image import Box, image
from tests.hosts.models import rigwright
from tests.hosts.support import deploy, main_pid, plan, red, served, until

pytestmark = pytest.mark.parametrize("release", ["debian-12"], indirect=True)
# A throwaway host is an overlay, in which nobody can make another one: what is installed lies on this machine's disk.
LENT_DISK = {"F03", "M05"}
UNIT = "rigwright-chat.service"
FOLDER = "/run/rigwright/containers"
ENGINE = "pgrep -o -f '^python3 -I /run/rigwright'"
# of more layers than a mount has room for by their names
TWO = image("two", layers=60)


@pytest.fixture(scope="module")
def box(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A host that serves an image from a registry, and has a Docker of its operator's."""
    (host,) = lab.up([HostSpec("crun", "debian-12", disks=("/opt", "/var/lib/docker"))])
    made = Box(lab, host, tmp_path_factory.mktemp("image"))
    made.with_registry()
    host.run("DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends docker.io")
    made.push(image("one"))
    locked = rigwright("lock", str(made.declare()))
    assert locked.returncode == 0, locked.stdout + locked.stderr
    yield made
    host.destroy()


@pytest.fixture(scope="module")
def inventory(box: Box) -> Path:
    """Deployed once, and declared anew by each test."""
    declared = box.declare()
    assert {"Engines | Fetch layers of vllm-image", "Engines | Install vllm-image"} <= set(plan(declared).planned)
    done = deploy(declared)
    assert done.status == 0, done.said[-3000:]
    return declared


def left(box: Box) -> list[str]:
    """What there is of containers on the host."""
    return box.host.run(f"ls {FOLDER}; grep -c {FOLDER}/ /proc/mounts", check=False).split()


def test_an_image_is_served_as_its_own_user_without_a_network(box: Box, inventory: Path, release: str) -> None:
    said = box.about()
    assert said["mark"] == "one"
    assert said["environ"]["IMAGE_SAYS"] == "hello"
    assert said["uid"] == int(box.host.run("id -u rigwright-chat"))
    assert said["interfaces"] == ["lo"]
    assert said["cwd"] == "/work"
    assert said["temporary"] == "/tmp"
    assert deploy(inventory).changed == []
    assert red(inventory) == LENT_DISK
    assert "podman" not in box.host.run("dpkg-query -W -f '${Package} ' podman", check=False)
    assert box.host.run("docker images -q; docker ps -aq") == ""
    # the process that systemd knows is the engine's own, in the unit's own group
    assert main_pid(box.host) == int(box.host.run(ENGINE))

    box.host.run("systemctl daemon-reload")
    assert box.about()["mark"] == "one"
    box.host.reboot()
    until(lambda: served(box.host), "served after a boot")
    assert deploy(inventory).changed == []
    assert red(inventory) == LENT_DISK
