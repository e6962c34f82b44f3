"""The NVIDIA driver's kernel module, now and at the next boot."""

import pytest

from checks import check
from checks.nvidia import driver_facts, kernels, no, state, with_cards
from checks.survey.taken import Survey
from rigwright.declaration.rig import Rig
from rigwright.host.facts import HostFacts
from rigwright.nvidia.modules import kernels as nvidia_modules


@check(
    "N08",
    "the kernel module is of the flavour that the cards need",
    severity="critical",
    why="a Blackwell card does not exist for proprietary modules, and some boards fail with open ones",
)
def test_flavour(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    with_cards(rig)
    no(nvidia_modules.flavour(rig, driver_facts(survey, facts), state(survey)))


@check(
    "N09",
    "the module that is loaded lies there for this kernel and for the next",
    severity="high",
    why="a new kernel without a module of the driver boots into a box without cards",
)
def test_next_boot(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    with_cards(rig)
    driver, there = driver_facts(survey, facts), state(survey)
    if not there.boots:
        pytest.skip("no kernel boots from this system's own disk")
    library = driver.library
    no(nvidia_modules.on_disk(driver.module, there, library.driver if library else ""))


@check(
    "N10",
    "DKMS has built the module for this kernel and for the next",
    severity="high",
    why="its packages call a build that was left out or failed a success, and the next boot has no cards",
)
def test_dkms(survey: Survey, rig: Rig) -> None:
    with_cards(rig)
    there = state(survey)
    if not there.dkms:
        pytest.skip("DKMS has no module of the driver")
    no(nvidia_modules.dkms(there))


@check(
    "N11",
    "where Secure Boot is on, the module is signed",
    severity="high",
    why="the kernel refuses a module without a signature",
)
def test_signed(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    with_cards(rig)
    secure = driver_facts(survey, facts).secure_boot
    if secure == "unknown":
        pytest.skip("the firmware does not say whether Secure Boot is on")
    no(nvidia_modules.signed(secure, state(survey)))


@check(
    "N12",
    "module options and kernel settings are the declared ones",
    severity="low",
    why="an option that is not in force does nothing, and nobody notices",
)
def test_settings(survey: Survey, rig: Rig) -> None:
    if not rig.driver.module_options and not rig.driver.sysctl:
        pytest.skip("none are declared")
    no(nvidia_modules.settings(rig, kernels(survey)))
