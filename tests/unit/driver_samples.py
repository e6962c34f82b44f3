"""Rigs and hosts that the tests of a driver's choice begin from."""

from dataclasses import replace
from typing import Any

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.host.pci_cards import PciCard
from rigwright.model.catalog_schema import Card
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_facts import DriverFacts, InstalledPackage
from rigwright.nvidia.driver.driver_plan import DriverPlan, DriverRefusal, plan_driver
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact
from tests.unit.samples import changed_rig, sample_artefact, sample_rig

CARDS = load_catalog([ROOT / "catalog"]).cards
C2080, C22G, C3090, C5090 = (CARDS[f"rtx-{name}"] for name in ("2080-ti", "2080-ti-22g", "3090", "5090"))
PASCAL = "10de:1b06"
LOCKED = {"12": "580.178.04-1", "13": "595.71.05-1"}
KERNELS = {
    "ubuntu-22.04": ("6.8.0-40-generic", "generic-hwe-22.04"),
    "ubuntu-24.04": ("6.8.0-40-generic", "generic"),
    "ubuntu-26.04": ("7.0.0-34-generic", "generic"),
    "debian-12": ("6.1.0-40-amd64", "amd64"),
    "debian-13": ("6.12.94+deb13-amd64", "amd64"),
}


def driverless_host(system: str = "ubuntu-24.04", *pci_ids: str, **changes: Any) -> DriverFacts:
    """A host without a driver, on which modules can be built."""
    name, version = system.split("-")
    kernel, flavour = KERNELS.get(system, KERNELS["debian-12"])
    made = DriverFacts(
        name,
        version,
        "x86_64",
        kernel,
        ((f"linux-image-{flavour}", kernel),),
        headers=frozenset({f"linux-headers-{flavour}"}),
        cards=tuple(PciCard(f"0000:0{slot}:00.0", pci_id) for slot, pci_id in enumerate(pci_ids, 1)),
    )
    return replace(made, **changes)


def driver_rig(*cards: Card, **keys: Any) -> Rig:
    """A rig; one whose driver is managed has one that is locked, for Debian."""
    made = sample_rig(cards=cards, driver=DriverEntry.model_construct(**DriverEntry().model_dump() | keys))
    return with_locked_drivers(made) if made.driver.managed else made


def with_locked_drivers(one: Rig) -> Rig:
    """The rig with a driver that is locked for each Debian."""
    rows = {f"debian-{release}": (driver_deb("libcuda1", version),) for release, version in LOCKED.items()}
    keyed = dict.fromkeys(rows, "-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    return changed_rig(one, driver_packages=rows, driver_keys=keyed)


def driver_deb(name: str, version: str) -> Artefact:
    """A row of the lock."""
    return sample_artefact(
        kind="deb", name=name, version=version, file=f"{name}_{version}_amd64.deb", sources=[f"nvidia:x/{name}.deb"]
    )


def make_driver_plan(one: Rig, facts: DriverFacts) -> DriverPlan:
    found = plan_driver(one.cards, one.driver, one.driver_supply, one.toolkit, facts)
    assert isinstance(found, DriverPlan), found
    return found


def refusal_reasons(one: Rig, facts: DriverFacts) -> tuple[str, ...]:
    found = plan_driver(one.cards, one.driver, one.driver_supply, one.toolkit, facts)
    assert isinstance(found, DriverRefusal), found
    return found.reasons


def ubuntu_packages(kernel: str, branch: int = 580, flavour: str = "-open") -> tuple[str, ...]:
    return (
        f"linux-modules-nvidia-{branch}-server{flavour}-{kernel}",
        f"nvidia-headless-no-dkms-{branch}-server{flavour}",
        f"nvidia-utils-{branch}-server",
        f"nvidia-compute-utils-{branch}-server",
    )


def debian_packages(flavour: str = "-open") -> tuple[str, ...]:
    return (f"nvidia-kernel{flavour}-dkms", "nvidia-driver-cuda", "nvidia-persistenced")


def installed_facts(origin: str, version: str, *names: str) -> dict[str, Any]:
    return {"packages": tuple(InstalledPackage(name, version, origin) for name in sorted(names))}


DESKTOP = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-driver-580-open", "nvidia-utils-580")
SERVER = ("libnvidia-compute-580-server", *ubuntu_packages("generic"))
LOADED = {"module": "580.159.03", "module_open": True}
UBUNTU = "580.159.03-0ubuntu0.24.04.1"
