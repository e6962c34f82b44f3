"""The NVIDIA driver's packages, and what may change them."""

import pytest

from checks import Drift, check
from checks.nvidia import deploy_record, driver_facts, managed, no, planned, record, state, with_cards
from checks.nvidia.found_files import Found, FoundFile, as_rendered
from checks.nvidia.packages import archive, held, in_branch, of_lock, one_piece, reboot, security
from checks.survey.packages import ARCHIVE
from checks.survey.settings import SETTINGS
from checks.survey.taken import Survey
from rigwright.model.facts import HostFacts
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.files import settings
from rigwright.nvidia.driver.files import settings_of, store
from rigwright.nvidia.driver.found import SOURCE
from rigwright.nvidia.packages.locked import locked


@check(
    "N13",
    "the driver's packages have one version and one packager",
    severity="high",
    why="libraries that differ from the module's version break every program on a card; a name alone is no driver",
)
def test_one_piece(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    with_cards(rig)
    driver = driver_facts(survey, facts)
    if not driver.driver_packages:
        pytest.skip("the driver is not from a package")
    no(one_piece(driver))


@check(
    "N14",
    "the driver is the locked version",
    severity="high",
    why="a box has to run what it was tested with, and can be rebuilt with",
)
def test_locked(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    managed(rig)
    driver = driver_facts(survey, facts)
    lock = locked(rig, driver.system)
    if lock is None:
        pytest.skip("no driver is locked: the distribution's archive decides the version within the branch")
    packages = {name: artefact.version for name, artefact in lock.packages.items()}
    no(of_lock(driver, lock.version, packages))


@check(
    "N15",
    "the driver is held, and excluded from unattended upgrades",
    severity="high",
    why="an unattended upgrade without a reboot leaves a box on which no new process can use a card",
)
def test_held(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    managed(rig)
    driver = driver_facts(survey, facts)
    no(held(state(survey), driver, planned(rig, driver).holds))


@check(
    "N16",
    "apt offers only the driver's own branch",
    severity="low",
    why="a manual upgrade installs a branch that nobody chose, or half of it",
)
def test_in_branch(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    managed(rig)
    no(in_branch(state(survey), driver_facts(survey, facts)))


@check(
    "N17",
    "apt can verify NVIDIA's archive",
    severity="high",
    why="with a key that apt no longer accepts, no driver can be installed or repaired from there",
)
def test_archive(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    managed(rig)
    if planned(rig, driver_facts(survey, facts)).source != "nvidia":
        pytest.skip("the driver is from the distribution's archive")
    said = survey.read(ARCHIVE)
    if not said.source:
        raise Drift(f"the source {SOURCE}", "none", "re-run deploy")
    unknown, drifts = archive(said.status, said.said)
    if unknown:
        pytest.skip(unknown)
    no(drifts)


@check("N18", "no reboot is pending", severity="low", why="the latest installs have never been booted")
def test_reboot(survey: Survey, rig: Rig) -> None:
    with_cards(rig)
    no(reboot(state(survey)))


@check(
    "N19",
    "the held kernel does not miss security updates for long",
    severity="low",
    why="a kernel is held because no newer one has the modules, and its vulnerabilities stay open meanwhile",
)
def test_security(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    managed(rig)
    driver = driver_facts(survey, facts)
    no(security(state(survey), driver, planned(rig, driver).holds))


@check(
    "N20",
    "kernel and driver are those of the last deploy",
    severity="low",
    why="a change beneath the services is the first thing to know when they are slow or wrong",
)
def test_drift(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    managed(rig)
    driver = driver_facts(survey, facts)
    packages = {one.name: one.version for one in driver.packages}
    there = record(survey)
    no(deploy_record.drift(there, driver.kernel, driver.module, packages))
    if there and (not driver.recorded or set(driver.recorded) - set(there.packages.items())):
        raise Drift(f"packages of the last deploy in {store(rig)}/installed", "others, or none", "re-run deploy")


@check(
    "N28",
    "the driver's configuration files are as deployed, and its units start at boot",
    severity="high",
    why="a missing pin, limit or blacklist only shows weeks later, at an upgrade or a boot",
)
def test_settings_files(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    """Of an operator's own driver those of cards and kernel alone."""
    files = settings(rig)
    if rig.driver.managed:
        driver = driver_facts(survey, facts)
        files = settings_of(rig, planned(rig, driver), driver)
    if not files:
        pytest.skip("none are declared")
    seen = survey.read(SETTINGS)
    there = {
        one.path: FoundFile(
            one.kind, one.mode, "root:root" if (one.uid, one.gid) == (0, 0) else f"{one.uid}:{one.gid}", one.sha256
        )
        for one in seen.files
    }
    enabled = {name: unit.get("UnitFileState") or "nothing" for name, unit in seen.units.items()}
    no(as_rendered(rig, files, Found(there, enabled)))
