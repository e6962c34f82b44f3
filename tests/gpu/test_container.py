"""A container on this machine's own card, by CDI: an instance of a small image, on a host that reaches nothing beyond.

podman is Debian's; NVIDIA's container toolkit is a stand-in over the card's own driver
(tests/stand_ins/nvidia/nvidia-ctk), for its archive is out of reach. By itself:
`.venv/bin/pytest -s -v tests/gpu/test_container.py`.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from lab import gpu_passthrough
from lab.hosts import HostSpec
from lab.machine_requirements import UnsupportedMachine
from lab.throwaway_lab import ThrowawayLab
from roles import first_contact
from tests.gpu.container_layer import CACHE_MOUNT, RELEASE, make_layer
from tests.gpu.gpu_machine import USED, GpuMachine
from tests.hosts.hub_models import run_rigwright
from tests.hosts.image import REPOSITORY, SHARED_DISK_CHECKS, ImageBox, make_server_image
from tests.hosts.support import is_serving, isolate_host, main_pid, red_checks, run_deploy, wait_until
from tests.stand_ins.nvidia.signing_keys import SigningKey
from tests.stand_ins.oci_images import OCIImage
from tests.unit.file_server import LoopbackFileServer, run_file_server
from tests.unit.registry_server import LoopbackRegistry

UNIT = "rigwright-chat"
SLACK = 64  # MiB that the card's use may differ by from one time to the next
# its memory that the image takes (tests/hosts/image/server.py), MiB
HELD = 600


@dataclass
class OfflineImageBox(ImageBox):
    """A box whose registry is on this machine, for one that has no other."""

    files: LoopbackFileServer = field(default_factory=LoopbackFileServer)

    @property
    def registry(self) -> str:
        return self.files.url

    def push_image(self, one: OCIImage, tag: str = "v1") -> None:
        LoopbackRegistry(self.files).push_image(one, tag, repository=REPOSITORY)


@pytest.fixture(scope="module")
def box(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, idle_cards: None
) -> Iterator[tuple[OfflineImageBox, GpuMachine]]:
    """A throwaway host with this machine's cards, podman and no way out."""
    if pytestconfig.getoption("--host"):
        pytest.skip("a container is shown on a throwaway host alone: its image comes from a registry that the test is")
    lab, folder = ThrowawayLab("boxed"), tmp_path_factory.mktemp("contained")
    try:
        gpu_passthrough.require_gpu()
        lab.down()
        lab.up([])
        below = make_layer(lab)
        (host,) = lab.up([HostSpec("boxed", RELEASE, (below,), gpus=True, disks=("/opt",))])
        host.run(f"mkdir -p /opt/rigwright && cp -a {CACHE_MOUNT}/. /opt/rigwright/")
        isolate_host(host)
        found = GpuMachine(
            host.inventory_keys, first_contact.survey_host("boxed", host.inventory_keys, sudo=False), host
        )
        with run_file_server(address=lab.gateway) as files:
            made = OfflineImageBox(lab, host, folder / "box", files=files)
            made.push_image(make_server_image("one"))
            made.publish_toolkit(SigningKey.generate_key(folder / "key"))
            yield made, found
    except (UnsupportedMachine, first_contact.HostKeyUnavailable, subprocess.CalledProcessError) as error:
        pytest.fail(str(error), pytrace=False)
    finally:
        lab.down()


@pytest.fixture(scope="module")
def inventory(box: tuple[OfflineImageBox, GpuMachine]) -> Path:
    """The host's, deployed once."""
    made, machine = box
    declared = made.declare_with_cards(0, cards=machine.cards)
    locked = run_rigwright("lock", str(declared))
    assert locked.returncode == 0, locked.stdout + locked.stderr
    done = run_deploy(declared)
    assert done.status == 0, done.said[-4000:]
    return declared


def computes(made: OfflineImageBox) -> bool:
    """Whether the container sees one card, and has had it compute."""
    card = made.server_facts()["card"]
    return (card["cards"], card["computed"]) == (1, [number * number for number in range(256)])


def again(made: OfflineImageBox, before: str) -> bool:
    """Whether it serves by another process than before."""
    return is_serving(made.host) and str(main_pid(made.host)) != before


def test_the_container_computes_on_the_card_that_its_spec_names(
    box: tuple[OfflineImageBox, GpuMachine], inventory: Path
) -> None:
    made, _ = box
    host = made.host
    said = made.server_facts()
    print(f"\n{said['card']['name']}; device files in the container: {' '.join(said['devices'])}")
    assert computes(made)
    assert "nvidiactl" in said["devices"]
    assert [one for one in said["devices"] if one[6:].isdigit()] == ["nvidia0"]
    assert (said["uid"], said["interfaces"]) == (int(host.run(f"id -u {UNIT}")), ["lo"])
    driver = host.run("sed -nE 's/^NVRM version:.*  ([0-9]+\\.[0-9.]+)  .*/\\1/p' /proc/driver/nvidia/version").strip()
    assert f"libcuda.so.{driver}" in host.run("cat /run/cdi/nvidia.yaml")
    assert int(host.run(USED)) >= HELD
    assert red_checks(inventory) <= SHARED_DISK_CHECKS
    assert run_deploy(inventory).changed_operations == []


def test_it_keeps_its_card_through_a_reload_and_whatever_is_killed(
    box: tuple[OfflineImageBox, GpuMachine], inventory: Path
) -> None:
    made, _ = box
    host = made.host
    host.run("systemctl daemon-reload")
    assert computes(made)
    for who in ("main", "all"):  # conmon is the main process
        before = str(main_pid(host))
        host.run(f"systemctl reset-failed {UNIT}; systemctl kill --kill-whom={who} --signal=KILL {UNIT}")
        wait_until(partial(again, made, before), "served by another process")
        assert computes(made)
    host.run(f"systemctl stop {UNIT}")
    wait_until(lambda: int(host.run(USED)) <= SLACK, "the card's memory back", 30)
    host.run(f"systemctl reset-failed {UNIT}; systemctl start {UNIT}")
    assert computes(made)


def test_it_has_its_card_again_after_a_boot(box: tuple[OfflineImageBox, GpuMachine], inventory: Path) -> None:
    made, _ = box
    made.host.reboot()
    made.host.run("ip route del default; ldconfig", check=False)
    wait_until(lambda: is_serving(made.host), "served after the boot")
    assert computes(made)
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) <= SHARED_DISK_CHECKS
