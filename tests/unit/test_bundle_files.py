"""Packages of a bundle are compared with its index before a host changes, where the host would be sent some."""

import pytest

from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_facts import InstalledPackage
from rigwright.nvidia.driver.driver_plan import DriverPlan, plan_driver
from rigwright.plan.plan_inputs import TargetState, build_target_state
from rigwright.supply.bundle import Bundle
from roles.bundle_files import find_changed_packages
from tests.unit.bundle_world import BundleFixture, SignedAptArchive
from tests.unit.driver_bundle import GROUP, KERNEL, NEEDS, SYSTEM, DriverBundle
from tests.unit.driver_samples import driverless_host
from tests.unit.samples import sample_facts
from tests.unit.test_bundled_driver import bundled_rig, host, planned


@pytest.fixture
def bundle(maker: BundleFixture, archive: SignedAptArchive) -> Bundle:
    DriverBundle(maker, archive)
    return maker.make_bundle("--kernel", KERNEL)


def target_state(rig: Rig, *missing: str, driver: bool = False) -> TargetState:
    facts, plan = host(), planned(rig, host())
    assert isinstance(plan, DriverPlan)
    return build_target_state(rig, sample_facts(missing_packages=missing), (facts, plan) if driver else None)


def flip_byte(bundle: Bundle, pattern: str) -> str:
    (path,) = bundle.folder.glob(pattern)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    return str(path)


def test_each_changed_package_is_named_if_the_host_lacks_some(bundle: Bundle) -> None:
    rig = bundled_rig(bundle)
    deb = flip_byte(bundle, f"debs/{GROUP}/libcuda1_*.deb")
    other = flip_byte(bundle, "packages/debian-12/0/pool/dkms_*.deb")
    assert find_changed_packages(target_state(rig)) == []
    (line,) = find_changed_packages(target_state(rig, "curl"))
    assert line.startswith(f"{other} has SHA-256 ")
    assert line.endswith("recreate it with `rigwright bundle`")
    lines = find_changed_packages(target_state(rig, driver=True))
    assert [one.partition(" has SHA-256 ")[0] for one in lines] == [deb, other]


def test_a_file_that_is_gone_is_named(bundle: Bundle) -> None:
    (path,) = bundle.folder.glob("packages/debian-12/0/pool/make_*.deb")
    path.unlink()
    assert find_changed_packages(target_state(bundled_rig(bundle), "curl")) == [f"{path}: No such file or directory"]


def test_an_upgrade_of_the_driver_is_compared_too(bundle: Bundle) -> None:
    # a driver that hangs together and is older than the locked one
    rig = bundled_rig(bundle)
    deb = flip_byte(bundle, f"debs/{GROUP}/libcuda1_*.deb")
    names = [name for name in NEEDS if name != "nvidia-kernel-dkms"]
    packages = tuple(InstalledPackage(name, "580.90.01-1", "NVIDIA") for name in sorted(names))
    modules = ((KERNEL, "580.90.01"),)
    facts = driverless_host(SYSTEM, "10de:2204", packages=packages, kernel_modules=modules, module="580.90.01")
    plan = plan_driver(rig.cards, rig.driver, rig.driver_supply, rig.toolkit, facts, upgrading=True)
    assert isinstance(plan, DriverPlan), plan
    target = build_target_state(rig, sample_facts(missing_packages=()), (facts, plan))
    assert find_changed_packages(target) == []
    (line, *_) = find_changed_packages(target, upgrading=True)
    assert line.startswith(f"{deb} has SHA-256 ")
