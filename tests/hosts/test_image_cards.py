"""An instance of an image with a card: podman, and stand-ins for cards, driver and NVIDIA's container toolkit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.throwaway_lab import ThrowawayLab
from tests.hosts import driver_box
from tests.hosts.hub_models import run_rigwright
from tests.hosts.image import SHARED_DISK_CHECKS, ImageBox, make_server_image
from tests.hosts.support import deploy, is_serving, red_checks, run_deploy, wait_until
from tests.stand_ins.nvidia.card_models import bus_addresses
from tests.stand_ins.nvidia.signing_keys import SigningKey

# tests/gpu/test_container.py shows the same with a real card
pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
OF_ALL = ["nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"]


@pytest.fixture
def box(
    lab: ThrowawayLab, release: str, key: SigningKey, tmp_path: Path, driven_layer: str, undriven_layer: str
) -> Iterator[tuple[ImageBox, list[str]]]:
    """A host with two cards whose driver is its operator's, and a registry; the names of its cards."""
    made = driver_box.boot_driver_box(
        lab, release, tmp_path / "driven", key, driven_layer, undriven_layer, disks=("/opt",)
    )
    # where the host's packages came from is this lab's, whichever lab the host's layers were made in
    made.publish(driver_box.OLD[release])
    made.host.run(f"sed -i 's|http://[0-9.]*:[0-9]*/|{lab.shelf_url}/|' /etc/apt/sources.list.d/rigwright*")
    one = ImageBox(lab, made.host, tmp_path / "image")
    one.install_registry()
    one.push_image(make_server_image("one"))
    one.publish_toolkit(key)
    # as the installer of a driver does; ours goes with the deploy that does not manage it
    one.host.run("echo 'blacklist nouveau' > /etc/modprobe.d/operators.conf; update-initramfs -u")
    yield one, [driver_box.NAMES[card] for card in made.host.spec.cards]
    made.host.destroy()


def computing(one: ImageBox, index: int) -> None:
    """Have the stand-in of the driver say that the engine computes on that card and on no other, as it holds it."""
    first, second = bus_addresses(one.host.spec.cards)
    card, other = (second, first) if index else (first, second)
    pid = "$(pgrep -o -f '^python3 -I /run/rigwright')"
    one.host.run(f"rm -f /run/lab/cards/{other}.apps; echo {pid} 1000 > /run/lab/cards/{card}.apps")


def test_it_has_the_card_that_it_was_given_through_reloads_and_boots(
    box: tuple[ImageBox, list[str]], release: str
) -> None:
    one, cards = box
    inventory = one.declare_with_cards(1, cards=cards)
    locked = run_rigwright("lock", str(inventory))
    assert locked.returncode == 0, locked.stdout + locked.stderr
    done = run_deploy(inventory)
    assert done.status == 0, done.said[-3000:]
    said = one.server_facts()
    assert said["devices"] == sorted(["nvidia1", *OF_ALL])
    assert said["card"]["cards"] == 1
    assert (said["uid"], said["interfaces"]) == (int(one.host.run("id -u rigwright-chat")), ["lo"])
    computing(one, 1)
    assert red_checks(inventory) == SHARED_DISK_CHECKS
    assert run_deploy(inventory).changed_operations == []

    one.host.run("systemctl daemon-reload")
    assert one.server_facts()["devices"] == said["devices"]
    one.host.reboot()
    wait_until(lambda: is_serving(one.host), "served after a boot")
    assert one.server_facts()["devices"] == said["devices"]

    other = one.declare_with_cards(0, cards=cards)
    deploy(other)
    assert one.server_facts()["devices"] == sorted(["nvidia0", *OF_ALL])
    computing(one, 0)
    assert red_checks(other) == SHARED_DISK_CHECKS
