"""A container on this machine's own card, by CDI: an instance of a small image, on a host that reaches nothing beyond.

podman is Debian's; NVIDIA's container toolkit is a stand-in over the card's own driver (lab/nvidia/nvidia-ctk), for its
archive is out of reach. By itself: `.venv/bin/pytest -s -v tests/gpu/test_container.py`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from lab import gpus
from lab.hosts import HostSpec
from lab.labs import Lab
from lab.machine import Unsupported
from lab.nvidia.keys import Key
from lab.oci import Image
from roles import survey
from tests.gpu.contained import KEPT, RELEASE, layer
from tests.gpu.machine import USED, Machine
from tests.hosts.image import LENT_DISK, REPOSITORY, Box, image
from tests.hosts.models import rigwright
from tests.hosts.support import cut_off, deploy, main_pid, red, served, until
from tests.unit.file_server import FileServer, file_server
from tests.unit.registry_server import Registry

UNIT = "rigwright-chat"
SLACK = 64  # MiB that the card's use may differ by from one time to the next
# its memory that the image takes (tests/hosts/image/server.py), MiB
HELD = 600


@dataclass
class Offline(Box):
    """A box whose registry is on this machine, for one that has no other."""

    files: FileServer = field(default_factory=FileServer)

    @property
    def registry(self) -> str:
        return self.files.url

    def push(self, one: Image, tag: str = "v1") -> None:
        Registry(self.files).push(one, tag, repository=REPOSITORY)


@pytest.fixture(scope="module")
def box(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, idle_cards: None
) -> Iterator[tuple[Offline, Machine]]:
    """A throwaway host with this machine's cards, podman and no way out."""
    if pytestconfig.getoption("--host"):
        pytest.skip("a container is shown on a throwaway host alone: its image comes from a registry that the test is")
    lab, folder = Lab("boxed"), tmp_path_factory.mktemp("contained")
    try:
        gpus.require()
        lab.down()
        lab.up([])
        below = layer(lab)
        (host,) = lab.up([HostSpec("boxed", RELEASE, (below,), gpus=True, disks=("/opt",))])
        host.run(f"mkdir -p /opt/rigwright && cp -a {KEPT}/. /opt/rigwright/")
        cut_off(host)
        found = Machine(host.connection, survey.look("boxed", host.connection, sudo=False), host)
        with file_server(address=lab.gateway) as files:
            made = Offline(lab, host, folder / "box", files=files)
            made.push(image("one"))
            made.with_toolkit(Key.make(folder / "key"))
            yield made, found
    except (Unsupported, survey.Unreachable, subprocess.CalledProcessError) as error:
        pytest.fail(str(error), pytrace=False)
    finally:
        lab.down()


@pytest.fixture(scope="module")
def inventory(box: tuple[Offline, Machine]) -> Path:
    """The host's, deployed once."""
    made, machine = box
    declared = made.carded(0, cards=machine.cards)
    locked = rigwright("lock", str(declared))
    assert locked.returncode == 0, locked.stdout + locked.stderr
    done = deploy(declared)
    assert done.status == 0, done.said[-4000:]
    return declared


def computes(made: Offline) -> bool:
    """Whether the container sees one card, and has had it compute."""
    card = made.about()["card"]
    return (card["cards"], card["computed"]) == (1, [number * number for number in range(256)])


def again(made: Offline, before: str) -> bool:
    """Whether it serves by another process than before."""
    return served(made.host) and str(main_pid(made.host)) != before


def test_the_container_computes_on_the_card_that_its_spec_names(box: tuple[Offline, Machine], inventory: Path) -> None:
    made, _ = box
    host = made.host
    said = made.about()
    print(f"\n{said['card']['name']}; device files in the container: {' '.join(said['devices'])}")
    assert computes(made)
    assert "nvidiactl" in said["devices"]
    assert [one for one in said["devices"] if one[6:].isdigit()] == ["nvidia0"]
    assert (said["uid"], said["interfaces"]) == (int(host.run(f"id -u {UNIT}")), ["lo"])
    driver = host.run("sed -nE 's/^NVRM version:.*  ([0-9]+\\.[0-9.]+)  .*/\\1/p' /proc/driver/nvidia/version").strip()
    assert f"libcuda.so.{driver}" in host.run("cat /run/cdi/nvidia.yaml")
    assert int(host.run(USED)) >= HELD
    assert red(inventory) <= LENT_DISK
    assert deploy(inventory).changed == []


def test_it_keeps_its_card_through_a_reload_and_whatever_is_killed(
    box: tuple[Offline, Machine], inventory: Path
) -> None:
    made, _ = box
    host = made.host
    host.run("systemctl daemon-reload")
    assert computes(made)
    for who in ("main", "all"):  # conmon is the main process
        before = str(main_pid(host))
        host.run(f"systemctl reset-failed {UNIT}; systemctl kill --kill-whom={who} --signal=KILL {UNIT}")
        until(partial(again, made, before), "served by another process")
        assert computes(made)
    host.run(f"systemctl stop {UNIT}")
    until(lambda: int(host.run(USED)) <= SLACK, "the card's memory back", 30)
    host.run(f"systemctl reset-failed {UNIT}; systemctl start {UNIT}")
    assert computes(made)


def test_it_has_its_card_again_after_a_boot(box: tuple[Offline, Machine], inventory: Path) -> None:
    made, _ = box
    made.host.reboot()
    made.host.run("ip route del default; ldconfig", check=False)
    until(lambda: served(made.host), "served after the boot")
    assert computes(made)
    assert deploy(inventory).changed == []
    assert red(inventory) <= LENT_DISK
