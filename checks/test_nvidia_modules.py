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
from rigwright.model.catalog_schema import Card
from rigwright.model.fact_types import HostFacts
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.nvidia_tables import DriverSupply, ToolkitSpec


@check(
    "N08",
    "the kernel modules, open or proprietary, fit the cards",
    severity="critical",
    why="proprietary modules do not know Blackwell cards, and some boards fail with open ones",
)
def test_flavour(
    survey: SurveyAnswers,
    declared_cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    toolkit_spec: ToolkitSpec,
    facts: HostFacts,
) -> None:
    skip_without_cards(declared_cards)
    expect_no_differences(
        module_state.find_flavour_differences(
            declared_cards,
            driver_entry,
            driver_supply,
            toolkit_spec,
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
def test_next_boot(survey: SurveyAnswers, declared_cards: tuple[Card, ...], facts: HostFacts) -> None:
    skip_without_cards(declared_cards)
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
def test_dkms(survey: SurveyAnswers, declared_cards: tuple[Card, ...]) -> None:
    skip_without_cards(declared_cards)
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
def test_signed(survey: SurveyAnswers, declared_cards: tuple[Card, ...], facts: HostFacts) -> None:
    skip_without_cards(declared_cards)
    secure = collect_driver_facts(survey, facts).secure_boot
    if secure == "unknown":
        pytest.skip("the firmware does not say whether Secure Boot is on")
    expect_no_differences(module_state.find_signature_differences(secure, driver_state(survey)))


@check(
    "N12",
    "module options and sysctl settings are the declared ones",
    severity="low",
    why="an option that is not in effect causes no message",
)
def test_settings(survey: SurveyAnswers, driver_entry: DriverEntry) -> None:
    if not driver_entry.module_options and not driver_entry.sysctl:
        pytest.skip("none are declared")
    expect_no_differences(module_state.find_option_differences(driver_entry, kernel_state(survey)))
