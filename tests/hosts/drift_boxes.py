"""The hosts that drifts happen to."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from lab import world
from lab.hosts import Host, HostSpec
from lab.labs import Lab, all_labs
from rigwright.gateway.keyring import FILE, Key, Keyring, dump
from tests.hosts import drivers
from tests.hosts.containers_box import ContainersBox
from tests.hosts.drift_ground import SECOND, Ground
from tests.hosts.drifts import HARMLESS, areas, batches, drifts, harmless
from tests.hosts.drivers import KERNELS, NEW, OLD
from tests.hosts.gateway_box import DEMO, Box
from tests.hosts.monitoring_box import TOKEN, Told, declared
from tests.hosts.nvidia_drifts import ANOTHER, DECLARED, ONE, OTHER, SOURCE, publish
from tests.hosts.support import deploy, write_inventory


def serving(lab: Lab, release: str, folder: Path, layer: str) -> Ground:
    """Two equal instances, a gateway with a keyless and a TLS listener, for which somebody has a key, and shared
    weights.
    """
    dump(folder / FILE, Keyring(keys={"alice": Key(sha256="a" * 64, models=("gpt-4o",), made="2026-06-10")}))
    (host,) = lab.up([HostSpec(f"dr{release[-2:]}", release, (layer,))])
    box = Box(lab, host, folder)
    share = {"address": host.address, "allow": [str(lab.subnet)]}
    instances = {"chat": DEMO, "chat2": {**DEMO, "port": SECOND}}
    inventory = write_inventory(folder, lab, host, instances=instances, gateway=box.gateway(), share=share)
    run = deploy(inventory)
    assert run.status == 0, run.said
    return Ground(host, inventory, words(host))


def watching(lab: Lab, release: str, folder: Path, layer: str) -> Ground:
    """An instance behind a gateway, and all that watches them; nobody is told of alerts."""
    (host,) = lab.up([HostSpec(f"dw{release[-2:]}", release, (layer,))])
    inventory = write_inventory(folder, lab, host, **declared(lab, host, Told(port=9), dead_man=None))
    (folder / "ops.token").write_text(f"{TOKEN}\n")
    run = deploy(inventory)
    assert run.status == 0, run.said
    return Ground(host, inventory, words(host))


def words(host: Host) -> dict[str, str]:
    """What the shell of a host's drifts calls things by."""
    if not host.spec.cards:
        return {}
    release = host.spec.release
    older, newer = KERNELS[release]
    versions = {"OLD": OLD[release], "NEW": NEW[release], "ANOTHER": ANOTHER[release]}
    return {"ONE": ONE, "OTHER": OTHER, "OLDER_KERNEL": older, "KERNEL": newer, "SOURCE": SOURCE, **versions}


def driven(box: drivers.Box) -> Ground:
    """Two stand-in cards and their driver, with all declared that a check can look at."""
    for card, partner in ((ONE, OTHER), (OTHER, ONE)):
        world.change(box.host, card, bridge=partner, nvlinks=4, nvlinks_max=4)
    publish(box)
    box.declare(**DECLARED)
    box.lock(OLD[box.system])
    box.rig("deploy", "--reboot")
    box.host.run(f"apt-get -q update -o Dir::Etc::SourceList={SOURCE} -o Dir::Etc::SourceParts=-")
    return Ground(box.host, box.inventory, words(box.host))


def containing(box: ContainersBox) -> Ground:
    """Two stand-in cards and their driver, Docker and podman."""
    box.contains(engines=("docker", "podman"), daemon={"log-driver": "journald"})
    box.rig("deploy", "--reboot")
    return Ground(box.host, box.inventory, words(box.host))


def there(inventory: Path) -> Ground:
    """A host that is up already.

    Raises:
        SystemExit: there is none, or no such inventory.
    """
    if not inventory.is_file():
        raise SystemExit(f"{inventory}: no inventory file")
    for host in (host for lab in all_labs() for host in lab.hosts):
        if f"'{host.address}'" in inventory.read_text():
            return Ground(host, inventory, words(host))
    raise SystemExit(f"{inventory}: no throwaway host has its address")


def main() -> None:
    """Have drifts on a host that is up, and say of each whether all was as it says."""
    parser = argparse.ArgumentParser(prog="python -m tests.hosts.drift_boxes")
    parser.add_argument("inventory", type=Path)
    parser.add_argument("area", nargs="?", choices=[*areas(), HARMLESS])
    parser.add_argument("-k", metavar="WORDS", default="", help="those whose title has these words")
    given = parser.parse_args()
    ground = there(given.inventory)
    box = "containers" if ground.host.spec.disks else "cards" if ground.host.spec.cards else "serving"
    box = "watching" if ground.host.name.startswith("dw") else box
    failed: dict[str, str] = {}
    if given.area == HARMLESS:
        unminded = {name: row for name, row in harmless().items() if row.box == box and given.k in name}
        failed = ground.unminded(unminded)
        print(f"{len(unminded)} harmless changes")
    else:
        rows = drifts(*filter(None, [given.area]))
        wanted = {name: row for name, row in rows.items() if row.box == box and given.k in name}
        for batch in batches(wanted):
            began = time.monotonic()
            found = ground.all(batch)
            failed |= found
            for name in batch:
                print(f"{'FAIL' if name in found else 'ok  '} {name}")
            print(f"     {len(batch)} together: {time.monotonic() - began:.0f} s", flush=True)
    for name, reason in failed.items():
        print(f"\n{name}\n{reason}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
