"""The NVIDIA driver's kernel module, now and at the next boot."""

import pytest

from checks import check
from checks.nvidia import (
    collect_driver_facts,
    driver_state,
    expect_no_differences,
    kernel_state,
    module_state,
    skip_without_cards,
)
from checks.survey.answers import SurveyAnswers
from rigwright.model.facts import HostFacts
from rigwright.model.rig import Rig


@check(
    "N08",
    "the kernel modules, open or proprietary, fit the cards",
    severity="critical",
    why="proprietary modules do not know Blackwell cards, and some boards fail with open ones",
)
def test_flavour(survey: SurveyAnswers, rig: Rig, facts: HostFacts) -> None:
    skip_without_cards(rig.cards)
    expect_no_differences(
        module_state.find_flavour_differences(
            rig.cards,
            rig.driver,
            rig.driver_supply,
            rig.toolkit,
            collect_driver_facts(survey, facts),
            driver_state(survey),
        )
    )


@check(
    "N09",
    "the loaded module is installed for this kernel and the next",
    severity="high",
    why="a new kernel without the driver's module boots into a box without cards",
)
def test_next_boot(survey: SurveyAnswers, rig: Rig, facts: HostFacts) -> None:
    skip_without_cards(rig.cards)
    driver, there = collect_driver_facts(survey, facts), driver_state(survey)
    if not there.has_own_kernel:
        pytest.skip("no kernel boots from this system's own disk")
    library = driver.library
    expect_no_differences(module_state.find_disk_differences(driver.module, there, library.driver if library else ""))


@check(
    "N10",
    "DKMS has built the module for this kernel and the next",
    severity="high",
    why="the packages report success after a skipped or failed build, and the next boot has no cards",
)
def test_dkms(survey: SurveyAnswers, rig: Rig) -> None:
    skip_without_cards(rig.cards)
    there = driver_state(survey)
    if not there.dkms:
        pytest.skip("DKMS has no module of the driver")
    expect_no_differences(module_state.find_dkms_differences(there))


@check(
    "N11",
    "the module is signed where Secure Boot is on",
    severity="high",
    why="the kernel refuses unsigned modules",
)
def test_signed(survey: SurveyAnswers, rig: Rig, facts: HostFacts) -> None:
    skip_without_cards(rig.cards)
    secure = collect_driver_facts(survey, facts).secure_boot
    if secure == "unknown":
        pytest.skip("the firmware does not say whether Secure Boot is on")
    expect_no_differences(module_state.find_signature_differences(secure, driver_state(survey)))


@check(
    "N12",
    "module options and sysctl settings are the declared ones",
    severity="low",
    why="an option that is not in force has no effect, and nobody notices",
)
def test_settings(survey: SurveyAnswers, rig: Rig) -> None:
    if not rig.driver.module_options and not rig.driver.sysctl:
        pytest.skip("none are declared")
    expect_no_differences(module_state.find_option_differences(rig.driver, kernel_state(survey)))
