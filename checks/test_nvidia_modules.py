"""The NVIDIA driver's kernel module, now and at the next boot."""

import pytest

from checks import check
from checks.nvidia import driver_facts, kernel_modules, kernels, no, state, with_cards
from checks.survey.taken import Survey
from rigwright.model.facts import HostFacts
from rigwright.model.rig import Rig


@check(
    "N08",
    "the kernel modules, open or proprietary, fit the cards",
    severity="critical",
    why="proprietary modules do not know Blackwell cards, and some boards fail with open ones",
)
def test_flavour(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    with_cards(rig)
    no(kernel_modules.flavour(rig, driver_facts(survey, facts), state(survey)))


@check(
    "N09",
    "the loaded module is installed for this kernel and the next",
    severity="high",
    why="a new kernel without the driver's module boots into a box without cards",
)
def test_next_boot(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    with_cards(rig)
    driver, there = driver_facts(survey, facts), state(survey)
    if not there.boots:
        pytest.skip("no kernel boots from this system's own disk")
    library = driver.library
    no(kernel_modules.on_disk(driver.module, there, library.driver if library else ""))


@check(
    "N10",
    "DKMS has built the module for this kernel and the next",
    severity="high",
    why="the packages report success after a skipped or failed build, and the next boot has no cards",
)
def test_dkms(survey: Survey, rig: Rig) -> None:
    with_cards(rig)
    there = state(survey)
    if not there.dkms:
        pytest.skip("DKMS has no module of the driver")
    no(kernel_modules.dkms(there))


@check(
    "N11",
    "the module is signed where Secure Boot is on",
    severity="high",
    why="the kernel refuses unsigned modules",
)
def test_signed(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    with_cards(rig)
    secure = driver_facts(survey, facts).secure_boot
    if secure == "unknown":
        pytest.skip("the firmware does not say whether Secure Boot is on")
    no(kernel_modules.signed(secure, state(survey)))


@check(
    "N12",
    "module options and sysctl settings are the declared ones",
    severity="low",
    why="an option that is not in force has no effect, and nobody notices",
)
def test_settings(survey: Survey, rig: Rig) -> None:
    if not rig.driver.module_options and not rig.driver.sysctl:
        pytest.skip("none are declared")
    no(kernel_modules.settings(rig, kernels(survey)))
