"""The NVIDIA driver's packages, and what may change them."""

import pytest

from checks import DEPLOY, Drift, check
from checks.nvidia import (
    collect_driver_facts,
    driver_drift,
    driver_state,
    expect_no_differences,
    expected_driver_plan,
    read_driver_record,
    skip_unless_managed,
    skip_without_cards,
)
from checks.nvidia.driver_drift import SettingFileFacts, SettingsFacts, find_settings_differences
from checks.nvidia.package_state import (
    find_archive_differences,
    find_branch_differences,
    find_hold_differences,
    find_lock_differences,
    find_missed_security,
    find_mixed_packages,
    find_pending_reboot,
)
from checks.survey.answers import SurveyAnswers
from checks.survey.boot_settings import SETTINGS
from checks.survey.packages import ARCHIVE
from rigwright.model.catalog_schema import Card
from rigwright.model.fact_types import HostFacts
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.network import DownloadNetwork
from rigwright.model.nvidia_tables import DriverSupply, ToolkitSpec
from rigwright.model.roots import Roots
from rigwright.nvidia.cards.card_setting_files import render_card_settings
from rigwright.nvidia.driver.driver_facts import SOURCE
from rigwright.nvidia.driver.driver_files import render_locked_settings, store_folder
from rigwright.nvidia.packages.locked_driver import find_locked_driver


@check(
    "N13",
    "the driver's packages have one version and one packager",
    severity="high",
    why="libraries of another version than the module's break every program on a card",
)
def test_one_piece(survey: SurveyAnswers, declared_cards: tuple[Card, ...], facts: HostFacts) -> None:
    skip_without_cards(declared_cards)
    driver = collect_driver_facts(survey, facts)
    if not driver.driver_packages:
        pytest.skip("the driver is not from a package")
    expect_no_differences(find_mixed_packages(driver))


@check(
    "N14",
    "the driver is the locked version",
    severity="high",
    why="only the locked version is tested, and can be installed again",
)
def test_locked(
    survey: SurveyAnswers,
    declared_cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    facts: HostFacts,
) -> None:
    skip_unless_managed(declared_cards, driver_entry)
    driver = collect_driver_facts(survey, facts)
    lock = find_locked_driver(driver_supply, driver.system)
    if lock is None:
        pytest.skip("no driver is locked: the distribution's archive decides the version within the branch")
    packages = {name: artefact.version for name, artefact in lock.packages.items()}
    expect_no_differences(find_lock_differences(driver, lock.version, packages))


@check(
    "N15",
    "the driver is held, and excluded from unattended upgrades",
    severity="high",
    why="an unattended upgrade without a reboot leaves a box on which no new process can use a card",
)
def test_held(
    survey: SurveyAnswers,
    declared_cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    toolkit_spec: ToolkitSpec,
    facts: HostFacts,
) -> None:
    skip_unless_managed(declared_cards, driver_entry)
    driver = collect_driver_facts(survey, facts)
    expect_no_differences(
        find_hold_differences(
            driver_state(survey),
            driver,
            expected_driver_plan(declared_cards, driver_entry, driver_supply, toolkit_spec, driver).holds,
        )
    )


@check(
    "N16",
    "apt offers only the driver's own branch",
    severity="low",
    why="a manual upgrade installs an undeclared branch, or half of it",
)
def test_in_branch(
    survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_entry: DriverEntry, facts: HostFacts
) -> None:
    skip_unless_managed(declared_cards, driver_entry)
    expect_no_differences(find_branch_differences(driver_state(survey), collect_driver_facts(survey, facts)))


@check(
    "N17",
    "apt can verify NVIDIA's archive",
    severity="high",
    why="with a key that apt no longer accepts, no driver can be installed or repaired from there",
)
def test_archive(
    survey: SurveyAnswers,
    declared_cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    toolkit_spec: ToolkitSpec,
    facts: HostFacts,
) -> None:
    skip_unless_managed(declared_cards, driver_entry)
    if driver_supply.bundled:
        pytest.skip("the driver is from the bundle")
    if (
        expected_driver_plan(
            declared_cards, driver_entry, driver_supply, toolkit_spec, collect_driver_facts(survey, facts)
        ).source
        != "nvidia"
    ):
        pytest.skip("the driver is from the distribution's archive")
    said = survey.read(ARCHIVE)
    if not said.source:
        raise Drift(f"the source {SOURCE}", "none", DEPLOY)
    unknown, drifts = find_archive_differences(said.status, said.said)
    if unknown:
        pytest.skip(unknown)
    expect_no_differences(drifts)


@check("N18", "no reboot is pending", severity="low", why="the latest installs have never been booted")
def test_reboot(survey: SurveyAnswers, declared_cards: tuple[Card, ...]) -> None:
    skip_without_cards(declared_cards)
    expect_no_differences(find_pending_reboot(driver_state(survey)))


@check(
    "N19",
    "the held kernel does not miss security updates for long",
    severity="low",
    why="a kernel is held because no newer one has the modules, and its vulnerabilities stay open meanwhile",
)
def test_security(
    survey: SurveyAnswers,
    declared_cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    toolkit_spec: ToolkitSpec,
    facts: HostFacts,
) -> None:
    skip_unless_managed(declared_cards, driver_entry)
    driver = collect_driver_facts(survey, facts)
    expect_no_differences(
        find_missed_security(
            driver_state(survey),
            driver,
            expected_driver_plan(declared_cards, driver_entry, driver_supply, toolkit_spec, driver).holds,
        )
    )


@check(
    "N20",
    "kernel and driver are those of the last deploy",
    severity="low",
    why="a changed kernel or driver is the first suspect when services are slow or wrong",
)
def test_drift(
    survey: SurveyAnswers, roots: Roots, declared_cards: tuple[Card, ...], driver_entry: DriverEntry, facts: HostFacts
) -> None:
    skip_unless_managed(declared_cards, driver_entry)
    driver = collect_driver_facts(survey, facts)
    packages = {one.name: one.version for one in driver.packages}
    there = read_driver_record(survey)
    expect_no_differences(driver_drift.find_driver_drift(there, driver.kernel, driver.module, packages))
    if there and (not driver.recorded or set(driver.recorded) - set(there.packages.items())):
        raise Drift(f"packages of the last deploy in {store_folder(roots)}/installed", "others, or none", DEPLOY)


@check(
    "N28",
    "the driver's configuration files are as deployed, and its units start at boot",
    severity="high",
    why="a missing pin, limit or blacklist shows only weeks later, at an upgrade or a boot",
)
def test_settings_files(
    survey: SurveyAnswers,
    roots: Roots,
    declared_cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    download_network: DownloadNetwork,
    toolkit_spec: ToolkitSpec,
    facts: HostFacts,
) -> None:
    """Of an operator's own driver those of cards and kernel alone."""
    files = render_card_settings(roots, declared_cards, driver_entry)
    if driver_entry.managed:
        driver = collect_driver_facts(survey, facts)
        files = render_locked_settings(
            roots,
            declared_cards,
            driver_entry,
            driver_supply,
            download_network,
            expected_driver_plan(declared_cards, driver_entry, driver_supply, toolkit_spec, driver),
            driver,
        )
    if not files:
        pytest.skip("none are declared")
    seen = survey.read(SETTINGS)
    there = {
        one.path: SettingFileFacts(
            one.kind, one.mode, "root:root" if (one.uid, one.gid) == (0, 0) else f"{one.uid}:{one.gid}", one.sha256
        )
        for one in seen.files
    }
    enabled = {name: unit.get("UnitFileState") or "nothing" for name, unit in seen.units.items()}
    expect_no_differences(find_settings_differences(roots, driver_entry, files, SettingsFacts(there, enabled)))
