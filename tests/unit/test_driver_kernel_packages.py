"""The packages that follow a host's kernels: modules that are made for each, and headers to build others with."""

from dataclasses import replace
from typing import Any

import pytest

from rigwright.nvidia.driver.driver_summary import describe_driver_plan
from tests.unit.driver_samples import (
    C3090,
    DESKTOP,
    KERNELS,
    SERVER,
    UBUNTU,
    debian_packages,
    driver_rig,
    driverless_host,
    installed_facts,
    make_driver_plan,
)

HWE = "6.14.0-27-generic"
BOTH_KERNELS = (("linux-image-generic", KERNELS["ubuntu-24.04"][0]), ("linux-image-generic-hwe-24.04", HWE))


@pytest.mark.parametrize("runs", [KERNELS["ubuntu-24.04"][0], HWE])
@pytest.mark.parametrize("action", ["install", "adopt"])
def test_modules_follow_the_kernel_that_runs_and_the_one_that_boots_next(runs: str, action: str) -> None:
    there: dict[str, Any] = installed_facts("Ubuntu", UBUNTU, *SERVER) if action == "adopt" else {}
    has = "580.159.03" if there else ""
    modules = tuple((kernel, has if kernel != HWE else "") for _, kernel in BOTH_KERNELS)
    facts = driverless_host(kernel=runs, kernel_packages=BOTH_KERNELS, kernel_modules=modules, **there)
    plan = make_driver_plan(driver_rig(C3090), facts)
    assert plan.action == action
    lrm = "linux-modules-nvidia-580-server-open-"
    followed = [name.removeprefix(lrm) for name in plan.packages if name.startswith(lrm)]
    wanted = {"generic-hwe-24.04"} | ({"generic"} if there or runs != HWE else set())
    assert (set(followed), len(followed)) == (wanted, len(wanted))
    kernels = [name for name in plan.holds if name.startswith("linux-image-")]
    # the one that boots next is the one that moves with its modules
    assert kernels[0] == "linux-image-generic-hwe-24.04"
    assert ("linux-image-generic" in kernels) is (runs != HWE)


def test_modules_of_one_kernel_alone_do_not_follow_it_and_get_what_does() -> None:
    names = (*SERVER[:1], *SERVER[2:], f"linux-modules-nvidia-580-server-open-{KERNELS['ubuntu-24.04'][0]}")
    plan = make_driver_plan(driver_rig(C3090), driverless_host(**installed_facts("Ubuntu", UBUNTU, *names)))
    assert (plan.action, plan.dkms) == ("adopt", False)
    assert "linux-modules-nvidia-580-server-open-generic" in plan.packages
    assert "linux-image-generic" in plan.holds
    facts = driverless_host(**installed_facts("Ubuntu", UBUNTU, *names))
    box_rig = driver_rig(C3090)
    assert "packages: linux-modules-nvidia-580-server-open-generic" in describe_driver_plan(
        box_rig.driver, box_rig.driver_supply, facts, plan
    )
    # without what brings kernels there is nothing to follow, and nothing to build either
    bare = make_driver_plan(driver_rig(C3090), replace(facts, kernel_packages=()))
    assert (bare.dkms, [name for name in bare.holds if name.startswith("linux-image-")]) == (False, [])
    # left over from another branch beside a driver that is built here
    built = make_driver_plan(
        driver_rig(C3090),
        driverless_host(**installed_facts("Ubuntu", UBUNTU, *DESKTOP, "linux-modules-nvidia-535-generic")),
    )
    assert (built.dkms, [name for name in built.packages if name.endswith("580-open-generic")]) == (True, [])


NVIDIAS = installed_facts("NVIDIA", "580.95.05-1", "libcuda1", *debian_packages()) | {"module": "580.95.05"}
DESKTOPS = installed_facts("Ubuntu", UBUNTU, "libnvidia-compute-580", "nvidia-dkms-580")


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        (driverless_host("debian-12", **NVIDIAS), ()),
        (driverless_host("debian-12", **NVIDIAS, headers=frozenset()), ("linux-headers-amd64",)),
        (
            driverless_host("debian-12", **NVIDIAS, headers=frozenset({"linux-headers-6.1.0-41-amd64"})),
            ("linux-headers-amd64",),
        ),
        (driverless_host("debian-12", **NVIDIAS, headers=frozenset(), kernel_packages=()), ()),
        (driverless_host("debian-12", **NVIDIAS, headers=frozenset(), held=frozenset({"linux-image-amd64"})), ()),
        (driverless_host(**DESKTOPS, headers=frozenset()), ("linux-headers-generic",)),
        (driverless_host(**installed_facts("Ubuntu", UBUNTU, *SERVER), headers=frozenset()), ()),
    ],
    ids=["there", "none", "of one kernel", "no metapackage", "a kernel that is held", "Ubuntu's own", "prebuilt"],
)
def test_headers_of_the_next_kernel_come_to_a_driver_that_builds_its_modules(facts, first):
    assert make_driver_plan(driver_rig(C3090, managed=True), facts).before == first


def test_a_driver_whose_modules_follow_by_another_name_is_left_alone() -> None:
    """There is no linux-modules-nvidia-...-virtual: images of clouds have that kernel, and modules for generic."""
    kernel = KERNELS["ubuntu-24.04"][0]
    facts = driverless_host(
        kernel_packages=(("linux-image-virtual", kernel),),
        kernel_modules=((kernel, "580.159.03"),),
        **installed_facts("Ubuntu", UBUNTU, *SERVER),
    )
    plan = make_driver_plan(driver_rig(C3090), facts)
    assert set(plan.packages) == {one.name for one in facts.packages}
    assert (plan.dkms, "linux-image-virtual" in plan.holds) == (False, True)
