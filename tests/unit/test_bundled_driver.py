"""A driver from a bundle on a host: refused before any change where the bundle lacks what the host needs."""

from dataclasses import replace
from typing import Any

import pytest

from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.driver.driver_files import render_locked_settings
from rigwright.nvidia.driver.driver_plan import DriverPlan, DriverRefusal, plan_driver
from rigwright.nvidia.packages.bundled_driver import require_bundled_driver
from rigwright.supply.bundle import Bundle
from tests.unit.bundle_world import BundleFixture, SignedAptArchive
from tests.unit.driver_bundle import GROUP, KERNEL, OTHER_KERNEL, SYSTEM, DriverBundle, driver_rows
from tests.unit.driver_samples import C3090, driver_rig, driverless_host
from tests.unit.samples import KEY_TEXT, changed_rig

AGAIN = "recreate it with `rigwright bundle`"


@pytest.fixture
def bundle(maker: BundleFixture, archive: SignedAptArchive) -> Bundle:
    DriverBundle(maker, archive)
    return maker.make_bundle("--kernel", KERNEL)


def bundled_rig(bundle: Bundle, **keys: Any) -> Rig:
    rig = driver_rig(C3090, managed=True, **keys)
    supply = replace(rig.driver_supply, packages={SYSTEM: tuple(driver_rows())}, keys={SYSTEM: KEY_TEXT}, bundled=True)
    return changed_rig(rig, driver_supply=supply, bundle=bundle)


def host(system: str = SYSTEM, **changes: Any) -> DriverFacts:
    """A host without a driver and without headers, whose kernel runs and boots next."""
    found = driverless_host(system, "10de:2204", headers=frozenset())
    return replace(found, **{"kernel_modules": ((found.kernel, ""),), **changes})


def planned(rig: Rig, facts: DriverFacts) -> DriverPlan | DriverRefusal:
    plan = plan_driver(rig.cards, rig.driver, rig.driver_supply, rig.toolkit, facts)
    return require_bundled_driver(rig.bundle, rig.driver_supply, facts, plan)


def reason(rig: Rig, facts: DriverFacts) -> str:
    found = planned(rig, facts)
    assert isinstance(found, DriverRefusal), found
    (text,) = found.reasons
    return text


def test_a_host_whose_kernel_is_in_the_bundle_gets_the_driver_and_no_source(bundle: Bundle) -> None:
    rig, facts = bundled_rig(bundle), host()
    plan = planned(rig, facts)
    assert isinstance(plan, DriverPlan)
    assert plan.component == ""
    files = render_locked_settings(rig.roots, rig.cards, rig.driver, rig.driver_supply, rig.network, plan, facts)
    assert not [one.path for one in files if "sources.list.d" in one.path]


def test_headers_that_the_bundle_lacks_are_named_with_the_command(bundle: Bundle) -> None:
    other = "6.1.0-39-amd64"
    facts = host(kernel=other, kernel_modules=((other, ""),), kernel_packages=(("linux-image-amd64", other),))
    assert reason(bundled_rig(bundle), facts) == (
        f"{bundle.folder} has no kernel headers of {other}, which the driver's modules are built with: {AGAIN} and "
        f"--kernel {other}"
    )
    # the next kernel's are there
    facts = replace(facts, kernel_modules=((other, ""), (OTHER_KERNEL, "")))
    assert reason(bundled_rig(bundle), facts).endswith(f"--kernel {other}, or boot {OTHER_KERNEL}")
    # the host has them itself
    facts = replace(facts, headers=frozenset({f"linux-headers-{other}"}))
    assert isinstance(planned(bundled_rig(bundle), facts), DriverPlan)


def test_a_bundle_of_another_system_or_driver_is_refused(bundle: Bundle) -> None:
    without = replace(bundle, suites=())
    assert reason(bundled_rig(without), host()) == f"{bundle.folder} has no {GROUP}: {AGAIN}, with --system {SYSTEM}"
    fewer = replace(bundle, rows=tuple(row for row in bundle.rows if not row.path.endswith("/Packages")))
    assert "has no list of the packages of" in reason(bundled_rig(fewer), host())
    (bundle.folder / f"debs/{GROUP}/Packages").write_text("Package: evil\n")
    assert "Packages is not the listed file" in reason(bundled_rig(bundle), host())


def test_the_distributions_own_driver_is_refused(bundle: Bundle) -> None:
    facts = host("ubuntu-24.04", cards=host().cards)
    said = reason(bundled_rig(bundle), facts)
    assert said.startswith(
        "a bundle has no driver of ubuntu-24.04's own archive, because its modules come with one kernel"
    )
