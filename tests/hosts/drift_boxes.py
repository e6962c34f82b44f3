"""The hosts that drifts happen to."""

import argparse
import sys
import time
from pathlib import Path

from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab, list_labs
from rigwright.gateway.keyring import FILE, ClientKey, ClientKeyring, dump
from tests.hosts import driver_box
from tests.hosts.containers_box import ContainersBox
from tests.hosts.drift_host import SECOND, DriftHost
from tests.hosts.drift_tables import HARMLESS, BoxName, area_names, load_drifts, load_harmless, make_batches
from tests.hosts.driver_box import KERNELS, NEW, OLD
from tests.hosts.gateway_box import DEMO, GatewayBox
from tests.hosts.monitoring_box import TOKEN, AlertWebhook, host_entry
from tests.hosts.nvidia_drifts import ANOTHER, DECLARED, ONE, OTHER, SOURCE, publish_archive
from tests.hosts.support import deploy, write_inventory
from tests.stand_ins import card_faults


def boot_serving(lab: ThrowawayLab, release: str, folder: Path, layer: str) -> DriftHost:
    """Two equal instances, a gateway with a keyless and a TLS listener that has a key, and shared weights."""
    dump(
        folder / FILE, ClientKeyring(keys={"alice": ClientKey(sha256="a" * 64, models=("gpt-4o",), made="2026-06-10")})
    )
    (host,) = lab.up([HostSpec(f"dr{release[-2:]}", release, (layer,))])
    box = GatewayBox(lab, host, folder)
    share = {"address": host.address, "allow": [str(lab.subnet)]}
    instances = {"chat": DEMO, "chat2": {**DEMO, "port": SECOND}}
    inventory = write_inventory(folder, lab, host, instances=instances, gateway=box.gateway_entry(), share=share)
    deploy(inventory)
    return DriftHost(host, inventory, shell_variables(host))


def boot_monitored(lab: ThrowawayLab, release: str, folder: Path, layer: str) -> DriftHost:
    """An instance behind a gateway, and its whole monitoring, without receivers of alerts."""
    (host,) = lab.up([HostSpec(f"dw{release[-2:]}", release, (layer,))])
    inventory = write_inventory(
        folder, lab, host, **host_entry(lab, host, AlertWebhook(port=9), heartbeat_receiver=None)
    )
    (folder / "ops.token").write_text(f"{TOKEN}\n")
    deploy(inventory)
    return DriftHost(host, inventory, shell_variables(host))


def shell_variables(host: LabHost) -> dict[str, str]:
    """The variables of the shell of a host's drifts."""
    if not host.spec.cards:
        return {}
    release = host.spec.release
    older, newer = KERNELS[release]
    versions = {"OLD": OLD[release], "NEW": NEW[release], "ANOTHER": ANOTHER[release]}
    return {"ONE": ONE, "OTHER": OTHER, "OLDER_KERNEL": older, "KERNEL": newer, "SOURCE": SOURCE, **versions}


def driver_host(box: driver_box.DriverBox) -> DriftHost:
    """Two stand-in cards and their driver, with all declared that a check can look at."""
    for card, partner in ((ONE, OTHER), (OTHER, ONE)):
        card_faults.change_card(box.host, card, bridge=partner, nvlinks=4, nvlinks_max=4)
    publish_archive(box)
    box.declare(**DECLARED)
    box.lock(OLD[box.system])
    box.run_rig("deploy", "--reboot")
    box.host.run(f"apt-get -q update -o Dir::Etc::SourceList={SOURCE} -o Dir::Etc::SourceParts=-")
    return DriftHost(box.host, box.inventory, shell_variables(box.host))


def container_host(box: ContainersBox) -> DriftHost:
    """Two stand-in cards and their driver, Docker and podman."""
    box.declare_containers(engines=("docker", "podman"), daemon={"log-driver": "journald"})
    box.run_rig("deploy", "--reboot")
    return DriftHost(box.host, box.inventory, shell_variables(box.host))


def running_host(inventory: Path) -> DriftHost:
    """A host that is up already.

    Raises:
        SystemExit: there is none, or no such inventory.
    """
    if not inventory.is_file():
        raise SystemExit(f"{inventory}: no inventory file")
    for host in (host for lab in list_labs() for host in lab.hosts):
        if f"'{host.address}'" in inventory.read_text():
            return DriftHost(host, inventory, shell_variables(host))
    raise SystemExit(f"{inventory}: no throwaway host has its address")


def box_name(ground: DriftHost) -> BoxName:
    """The box of a host, as rows of drifts name it."""
    if ground.host.name.startswith("dw"):
        return "watching"
    return "containers" if ground.host.spec.disks else "cards" if ground.host.spec.cards else "serving"


def main() -> None:
    """Have drifts on a host that is up, and say of each whether all was as it says."""
    parser = argparse.ArgumentParser(prog="python -m tests.hosts.drift_boxes")
    parser.add_argument("inventory", type=Path)
    parser.add_argument("area", nargs="?", choices=[*area_names(), HARMLESS])
    parser.add_argument("-k", metavar="WORDS", default="", help="those whose title has these words")
    given = parser.parse_args()
    ground = running_host(given.inventory)
    box = box_name(ground)
    failed: dict[str, str] = {}
    if given.area == HARMLESS:
        unminded = {name: row for name, row in load_harmless().items() if row.box == box and given.k in name}
        failed = ground.run_harmless(unminded)
        print(f"{len(unminded)} harmless changes")
    else:
        rows = load_drifts(*filter(None, [given.area]))
        wanted = {name: row for name, row in rows.items() if row.box == box and given.k in name}
        for batch in make_batches(wanted):
            began = time.monotonic()
            found = ground.run_batch(batch)
            failed |= found
            for name in batch:
                print(f"{'FAIL' if name in found else 'ok  '} {name}")
            print(f"     {len(batch)} together: {time.monotonic() - began:.0f} s", flush=True)
    for name, reason in failed.items():
        print(f"\n{name}\n{reason}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
