"""An instance of an image with a card: podman, and stand-ins for cards, driver and NVIDIA's container toolkit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.labs import Lab
from lab.nvidia.keys import Key
from lab.nvidia.models import addresses
from tests.hosts import drivers
from tests.hosts.image import LENT_DISK, Box, image
from tests.hosts.models import rigwright
from tests.hosts.support import deploy, red, served, until

# tests/gpu/test_container.py shows the same with a real card
pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
OF_ALL = ["nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"]


@pytest.fixture
def box(
    lab: Lab, release: str, key: Key, tmp_path: Path, driven_layer: str, undriven_layer: str
) -> Iterator[tuple[Box, list[str]]]:
    """A host with two cards whose driver is its operator's, and a registry; the names of its cards."""
    made = drivers.boot(lab, release, tmp_path / "driven", key, driven_layer, undriven_layer, disks=("/opt",))
    # where the host's packages came from is this lab's, whichever lab the host's layers were made in
    made.publish(drivers.OLD[release])
    made.host.run(f"sed -i 's|http://[0-9.]*:[0-9]*/|{lab.shelf_url}/|' /etc/apt/sources.list.d/rigwright*")
    one = Box(lab, made.host, tmp_path / "image")
    one.with_registry()
    one.push(image("one"))
    one.with_toolkit(key)
    # as whoever installs a driver does; ours goes with the deploy that does not manage it
    one.host.run("echo 'blacklist nouveau' > /etc/modprobe.d/operators.conf; update-initramfs -u")
    yield one, [drivers.NAMES[card] for card in made.host.spec.cards]
    made.host.destroy()


def computing(one: Box, index: int) -> None:
    """Have the stand-in of the driver say that the engine computes on that card and on no other, as it holds it."""
    first, second = addresses(one.host.spec.cards)
    card, other = (second, first) if index else (first, second)
    pid = "$(pgrep -o -f '^python3 -I /run/rigwright')"
    one.host.run(f"rm -f /run/lab/cards/{other}.apps; echo {pid} 1000 > /run/lab/cards/{card}.apps")


def test_it_has_the_card_that_it_was_given_through_reloads_and_boots(box: tuple[Box, list[str]], release: str) -> None:
    one, cards = box
    inventory = one.carded(1, cards=cards)
    locked = rigwright("lock", str(inventory))
    assert locked.returncode == 0, locked.stdout + locked.stderr
    done = deploy(inventory)
    assert done.status == 0, done.said[-3000:]
    said = one.about()
    assert said["devices"] == sorted(["nvidia1", *OF_ALL])
    assert said["card"]["cards"] == 1
    assert (said["uid"], said["interfaces"]) == (int(one.host.run("id -u rigwright-chat")), ["lo"])
    computing(one, 1)
    assert red(inventory) == LENT_DISK
    assert deploy(inventory).changed == []

    one.host.run("systemctl daemon-reload")
    assert one.about()["devices"] == said["devices"]
    one.host.reboot()
    until(lambda: served(one.host), "served after a boot")
    assert one.about()["devices"] == said["devices"]

    other = one.carded(0, cards=cards)
    assert deploy(other).status == 0
    assert one.about()["devices"] == sorted(["nvidia0", *OF_ALL])
    computing(one, 0)
    assert red(other) == LENT_DISK
