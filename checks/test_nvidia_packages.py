"""The NVIDIA driver's packages, and what may change them."""

import pytest
from testinfra.host import Host

from checks import Drift, check
from checks.nvidia import managed, no, with_cards
from rigwright.declaration.rig import Rig
from rigwright.nvidia.cards.files import settings
from rigwright.nvidia.difference import Difference
from rigwright.nvidia.driver import lying as nvidia_files
from rigwright.nvidia.driver import record as nvidia_record
from rigwright.nvidia.driver.choice import DriverPlan, driver_plan
from rigwright.nvidia.driver.files import settings_of
from rigwright.nvidia.driver.found import SOURCE, DriverFacts
from rigwright.nvidia.driver.record import Record
from rigwright.nvidia.driver.state import State
from rigwright.nvidia.packages import verdicts as nvidia_packages
from rigwright.nvidia.packages.locked import locked
from rigwright.render import render
from rigwright.supply.network import network


@pytest.fixture(scope="session")
def plan(rig: Rig, driver_facts: DriverFacts) -> DriverPlan:
    """The driver that deploys bring."""
    managed(rig)
    return planned(rig, driver_facts)


def planned(rig: Rig, facts: DriverFacts) -> DriverPlan:
    """The driver that deploys bring.

    Raises:
        Drift: the next one would refuse the host; what lies there of the driver is then not judged, and not in order.
    """
    made = driver_plan(rig, facts)
    if not isinstance(made, DriverPlan):
        raise Drift("a host that a deploy accepts", "; ".join(made.reasons), "do what each sentence says")
    return made


@check(
    "N13",
    "the driver's packages are of one version and one stack",
    severity="high",
    why="libraries beside a module of another version end every program on a card; a name alone is no driver",
)
def test_one_piece(driver_facts: DriverFacts) -> None:
    if not driver_facts.driver_packages:
        pytest.skip("no package has brought the driver")
    no(nvidia_packages.one_piece(driver_facts))


@check(
    "N14",
    "the driver is the locked one",
    severity="high",
    why="what a box was tested with is what it has to run, and what it can be rebuilt with",
)
def test_locked(rig: Rig, driver_facts: DriverFacts) -> None:
    managed(rig)
    lock = locked(rig, driver_facts.system)
    if lock is None:
        pytest.skip("no driver is locked: the distribution's archive says which one of the branch")
    packages = {name: artefact.version for name, artefact in lock.packages.items()}
    no(nvidia_packages.of_lock(driver_facts, lock.version, packages))


@check(
    "N15",
    "the driver is held, from unattended upgrades too",
    severity="high",
    why="an upgrade at night without a reboot leaves a box on which no new process can use a card",
)
def test_held(driver_facts: DriverFacts, state: State, plan: DriverPlan) -> None:
    no(nvidia_packages.held(state, driver_facts, plan.holds))


@check(
    "N16",
    "apt offers the driver's own branch alone",
    severity="low",
    why="whoever upgrades by hand gets a branch that nobody chose, or a half of it",
)
def test_in_branch(rig: Rig, driver_facts: DriverFacts, state: State) -> None:
    managed(rig)
    no(nvidia_packages.in_branch(state, driver_facts))


@check(
    "N17",
    "apt can verify NVIDIA's archive",
    severity="high",
    why="with a key that apt no longer takes, no driver can be installed or repaired from there",
)
def test_archive(host: Host, rig: Rig, plan: DriverPlan, driver_facts: DriverFacts) -> None:
    if plan.source != "nvidia":
        pytest.skip("the driver is from the distribution's archive")
    # an operator's own stands in for ours
    sources = [SOURCE] if host.file(SOURCE).exists else [file for _, file in driver_facts.nvidia_sources]
    if not sources:
        no([Difference(f"the source {SOURCE}", "none", "deploy again")])
    script = render("probe/archive.sh.j2", source=sources[0], network=network(rig))
    unknown, differences = nvidia_packages.archive([host.check_output("sh -c %s", script)])
    if unknown:
        pytest.skip(unknown)
    no(differences)


@check("N18", "no reboot is pending", severity="low", why="what was installed last has not been seen to boot")
def test_reboot(rig: Rig, state: State) -> None:
    with_cards(rig)
    no(nvidia_packages.reboot(state))


@check(
    "N19",
    "the held kernel misses no security updates for long",
    severity="low",
    why="a kernel is kept for the sake of modules that no newer one has, and its holes stay open meanwhile",
)
def test_security(state: State, driver_facts: DriverFacts, plan: DriverPlan) -> None:
    no(nvidia_packages.security(state, driver_facts, plan.holds))


@check(
    "N20",
    "kernel and driver are those of the last deploy",
    severity="low",
    why="what changed under the services is the first thing to know when they are slow or wrong",
)
def test_drift(rig: Rig, driver_facts: DriverFacts, record: Record | None) -> None:
    managed(rig)
    packages = {one.name: one.version for one in driver_facts.packages}
    no(nvidia_record.drift(record, driver_facts.kernel, driver_facts.module, packages))


@check(
    "N28",
    "the driver's settings lie there as rendered, and its units start at boot",
    severity="high",
    why="a pin, a limit or a blacklist that is not there any more shows weeks later, at an upgrade or a boot",
)
def test_settings_files(host: Host, rig: Rig, request: pytest.FixtureRequest) -> None:
    """Of an operator's own driver those of cards and kernel alone."""
    files = settings(rig)
    old: tuple[str, ...] = ()
    if rig.driver.managed:
        facts: DriverFacts = request.getfixturevalue("driver_facts")
        files, old = settings_of(rig, request.getfixturevalue("plan"), facts), facts.old_initrds
    if not files:
        pytest.skip("none are declared")
    found = nvidia_files.parse([host.check_output("sh -c %s", nvidia_files.script(rig))])
    no(nvidia_files.as_rendered(rig, files, found) + nvidia_files.packed(old))
