"""Kernels that no archive has modules for, cards without a supported driver, and cards that another driver keeps."""

from typing import Any

import pytest

from rigwright.host.pci_cards import PciCard
from tests.unit.driver_samples import C3090, C5090, driver_rig, driverless_host, make_driver_plan, refusal_reasons

GT710, R3090, R5090 = "10de:128b", "10de:2204", "10de:2b85"


@pytest.mark.parametrize(
    ("system", "kernel", "maker"),
    [
        ("debian-13", "6.14.8-2-pve", "proxmox-default-headers"),
        ("ubuntu-24.04", "6.16.0-061600-generic", "a mainline build"),
        ("ubuntu-24.04", "6.16.0-061600rc3-generic", "a mainline build"),
        ("ubuntu-22.04", "6.6.87.2-microsoft-standard-WSL2", "WSL"),
        ("ubuntu-22.04", "5.15.148-tegra", "Jetson"),
        ("debian-12", "6.12.9-x64v3-xanmod1", "a vendor's build"),
    ],
)
def test_a_kernel_of_another_maker_is_named_and_not_replaced(system: str, kernel: str, maker: str) -> None:
    (reason,) = refusal_reasons(
        driver_rig(C3090, managed=True), driverless_host(system, R3090, kernel=kernel, kernel_packages=())
    )
    assert maker in reason
    assert "no archive has NVIDIA modules for it" in reason
    assert "linux-image-" not in reason


def test_a_kernel_that_boots_and_that_no_metapackage_follows_is_refused_where_modules_come_built() -> None:
    newer: dict[str, Any] = {"kernel_modules": (("6.8.0-40-generic", ""), ("6.17.0-9-generic", ""))}
    (reason,) = refusal_reasons(driver_rig(C3090, managed=True), driverless_host("ubuntu-24.04", R3090, **newer))
    assert "the boot loader starts kernel 6.17.0-9-generic" in reason
    followed = (("linux-image-generic", "6.8.0-40-generic"), ("linux-image-generic-hwe-24.04", "6.17.0-9-generic"))
    make_driver_plan(
        driver_rig(C3090, managed=True), driverless_host("ubuntu-24.04", R3090, **newer, kernel_packages=followed)
    )


def test_a_card_without_a_supported_driver_does_not_decide_and_is_reported() -> None:
    plan = make_driver_plan(driver_rig(C3090, managed=True), driverless_host("ubuntu-24.04", GT710, R3090))
    assert f"{GT710} at 0000:01:00.0 (Kepler or older) has no supported driver: left unchanged" in plan.warnings
    (reason,) = refusal_reasons(driver_rig(managed=True), driverless_host("ubuntu-24.04", GT710))
    assert "(Kepler or older) has no supported driver" in reason


def test_an_unknown_device_is_not_taken_for_a_newer_card() -> None:
    plan = make_driver_plan(driver_rig(C3090, managed=True), driverless_host("ubuntu-24.04", R3090, "10de:3fff"))
    assert (
        plan.flavour
        == make_driver_plan(driver_rig(C3090, managed=True), driverless_host("ubuntu-24.04", R3090)).flavour
    )
    assert "(an unknown generation)" in plan.warnings[0]


@pytest.mark.parametrize("driver", ["vfio-pci", "pci-stub", "xen-pciback"])
def test_a_card_that_another_driver_keeps_is_reported_before_anything_is_installed(driver: str) -> None:
    kept = (PciCard("0000:01:00.0", R5090, driver), PciCard("0000:02:00.0", R3090))
    plan = make_driver_plan(driver_rig(C3090, managed=True), driverless_host("ubuntu-24.04", cards=kept))
    assert f"{R5090} at 0000:01:00.0 is bound to {driver}: left unchanged" in plan.warnings
    (reason,) = refusal_reasons(driver_rig(C5090, C3090, managed=True), driverless_host("ubuntu-24.04", cards=kept))
    assert "2 cards are declared, and a driver can have 1" in reason
    assert f"is bound to {driver}" in reason
