"""The arguments of checks: the host, its rig, and each instance, engine and weight file of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from testinfra.host import Host

from checks import SEVERITIES
from checks.change_review.accepted_comparison import HostReview
from checks.check_items import describe_part, parse_identifiers
from checks.fleet_report import FleetReporter
from checks.pytest_frame import ChecksPlugin
from checks.report import ChecksReporter, JsonReporter
from checks.runner import StartedRunPlugin
from checks.survey.answers import SurveyAnswers
from checks.survey.fingerprint import FINGERPRINT
from checks.survey.section import SurveyScope
from checks.survey_run import SurveyedHost, SurveyRun
from checks.testinfra_backend import UnknownHost
from rigwright.engines import kind_of
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.envs.environment import Environment
from rigwright.gateway.served_models import offers_of
from rigwright.host_selection import is_many
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.container_supply import ContainerSupply
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.fact_types import HostFacts
from rigwright.model.fleet_schema import FleetLinks, FrontPair
from rigwright.model.gateway_schema import Gateway
from rigwright.model.installation import Installation
from rigwright.model.instance import EnvSpec, Instance, loaded_weights, standalone_engines
from rigwright.model.inventory_schema import DriverEntry, ShareEntry
from rigwright.model.monitoring_schema import Monitoring, ScrapeTarget
from rigwright.model.network import DownloadNetwork
from rigwright.model.nvidia_tables import DriverSupply, ToolkitSpec
from rigwright.model.rig import Rig, account_names
from rigwright.model.roots import Roots
from rigwright.monitoring.monitoring_units import MonitoringService, monitoring_services
from rigwright.plan.plan_inputs import TargetState
from rigwright.serving.generation import Generation
from rigwright.supply.lock import Lock


def _fleet_links(rig: Rig) -> list[FleetLinks]:
    """The connections of a rig with other boxes."""
    links = rig.gateway.fleet if rig.gateway else FleetLinks()
    return [] if links == FleetLinks() else [links]


PARTS: dict[str, Callable[[Rig], Sequence[object]]] = {
    "contained": lambda rig: [one for one in rig.instances if kind_of(one).container_engine],
    "instance": lambda rig: rig.instances,
    "engine_name": lambda rig: [*standalone_engines(rig.instances), *(env.name for env in rig.envs)],
    "env": lambda rig: rig.envs,
    "weight": lambda rig: loaded_weights(rig.instances),
    "share": lambda rig: [rig.share] if rig.share else [],
    "pull": lambda rig: [rig.pull] if rig.pull else [],
    "containers": lambda rig: [("containers", rig.containers)] if rig.containers else [],
    "gateway": lambda rig: [("gateway", rig.gateway)] if rig.gateway else [],
    "fleet": lambda rig: [("fleet", one) for one in _fleet_links(rig)],
    "fleet_port": lambda rig: [("fleet", one.listener) for one in _fleet_links(rig) if one.listener],
    "front_pair": lambda rig: [("fleet", one.pair) for one in _fleet_links(rig) if one.pair],
    "offered": lambda rig: list(
        {one.name: one for offer in offers_of(rig.instances, rig.gateway) for one in offer.instances}.values()
    ),
    "watching": lambda rig: monitoring_services(rig),
    "listener": lambda rig: sorted(rig.gateway.listeners.items()) if rig.gateway else [],
}
"""The parts of a rig that a check may be about -> the list of those."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the checks."""
    parser.addoption("--inventory", help="inventory whose hosts are checked")
    parser.addoption("--limit", help="hosts and groups of it, comma-separated")
    parser.addoption("--deep", action="store_true", help="read every byte of weights and environments")
    parser.addoption("--only", action="append", default=[], metavar="IDS", help="only these checks")
    parser.addoption("--severity", choices=SEVERITIES, help="only checks of this severity or above")
    parser.addoption("--json", action="store_true", help="print a JSON report instead of lines")
    parser.addoption("--strict-changes", action="store_true", help="changes of all classes count, also unreviewed ones")
    parser.addoption("--ignore-class", action="append", default=[], metavar="CLASSES", help="leave these classes out")
    with suppress(ValueError):  # testinfra's plugin, where it is loaded, has it
        parser.addoption("--hosts", help="the same as --limit")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Connect before anything is collected, and print a line a check."""
    config.addinivalue_line("markers", "check(identifier, title, severity, why, blind): a conformance check")
    inventory = config.getoption("--inventory")
    if not inventory:
        raise pytest.UsageError("checks need --inventory FILE")
    begun = next((one for one in config.pluginmanager.get_plugins() if isinstance(one, StartedRunPlugin)), None)
    look = begun.look if begun else _start_survey(config, inventory)
    look.yield_to_hosts()
    config.stash[LOOK] = look
    frame = ChecksPlugin(config, look)
    config.pluginmanager.register(frame, "rigwright-frame")
    config.pluginmanager.register(UserChecksHooks(), "rigwright-elsewhere")
    standard = config.pluginmanager.get_plugin("terminalreporter")
    if standard is not None:
        config.pluginmanager.unregister(standard)
        by_host = FleetReporter if is_many(look.hosts) else ChecksReporter
        reporter = JsonReporter if config.getoption("--json") else by_host
        config.pluginmanager.register(reporter(config, frame), "terminalreporter")


def _start_survey(config: pytest.Config, inventory: str) -> SurveyRun:
    try:
        return SurveyRun(
            inventory, config.getoption("--limit") or config.getoption("--hosts"), config.getoption("--deep")
        )
    except (UnknownHost, SystemExit) as error:
        raise pytest.UsageError(str(error)) from None


# the host of checks that no rig here has anything for; the frame drops them
NOBODY = ""
LOOK = pytest.StashKey[SurveyRun]()


class UserChecksHooks:
    """For checks of a user's own, which lie in another folder than these hooks."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """As for ours."""
        if not metafunc.definition.path.is_relative_to(Path(__file__).parent):
            pytest_generate_tests(metafunc)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a host, or one a host and instance, engine or weight file."""
    hosts = metafunc.config.stash[LOOK].hosts
    wanted = [name for name in PARTS if name in metafunc.fixturenames]
    if not wanted:
        metafunc.parametrize("target_name", list(hosts), scope="session")
        return
    pairs = [(name, part) for name, seen in hosts.items() for part in PARTS[wanted[0]](seen.rig)]
    labels = [f"{name}/{describe_part(part)}" for name, part in pairs]
    if pairs:
        metafunc.parametrize(("target_name", wanted[0]), pairs, ids=labels, scope="session")
    else:
        metafunc.parametrize(("target_name", wanted[0]), [(NOBODY, None)], scope="session")


@pytest.fixture(scope="session")
def surveyed_host(pytestconfig: pytest.Config, target_name: str) -> SurveyedHost:
    """The host as it was looked at."""
    return pytestconfig.stash[LOOK].hosts[target_name]


@pytest.fixture(scope="session", autouse=True)
def each_host(target_name: str) -> None:
    """A check is about a host, also one that asks for nothing of it."""


@pytest.fixture(scope="session")
def survey(surveyed_host: SurveyedHost) -> SurveyAnswers:
    """The observed host, all of it seen at one time."""
    return surveyed_host.survey or SurveyAnswers({}, "the connection was lost")


@pytest.fixture
def partner(pytestconfig: pytest.Config, front_pair: tuple[str, FrontPair]) -> SurveyedHost:
    """The host of the gateway that shares an address with the host's own."""
    look, name = pytestconfig.stash[LOOK], front_pair[1].partner
    if name not in look.hosts:
        pytest.skip(f"{name}, which shares the address, is not checked: leave --limit out")
    if look.is_out_of_reach(name):
        pytest.skip(f"{name}, which shares the address, was not reached")
    return look.hosts[name]


@pytest.fixture(scope="session")
def verdicts(pytestconfig: pytest.Config, target_name: str) -> dict[str, str]:
    """Check -> the worst verdict on the host so far: checks of earlier files."""
    frame = pytestconfig.pluginmanager.get_plugin("rigwright-frame")
    found: dict[str, str] = {}
    for one in frame.results.get(target_name, []) if isinstance(frame, ChecksPlugin) else []:
        order = ("fail", "waived", "changed", "ok", "skip")
        found[one.id] = min(one.verdict, found.get(one.id, "skip"), key=order.index)
    return found


@pytest.fixture(scope="session")
def host_review(pytestconfig: pytest.Config, surveyed_host: SurveyedHost, survey: SurveyAnswers) -> HostReview:
    """The accepted entries of the host, and what differs from them."""
    survey.read(FINGERPRINT)
    ignored = parse_identifiers(pytestconfig.getoption("--ignore-class"))
    return surveyed_host.review.with_options(strict=pytestconfig.getoption("--strict-changes"), ignored=ignored)


@pytest.fixture(scope="session")
def target(surveyed_host: SurveyedHost) -> Any:
    """The connected pyinfra host."""
    return surveyed_host.target


@pytest.fixture(scope="session")
def host(surveyed_host: SurveyedHost) -> Host:
    """The testinfra host."""
    return surveyed_host.host


@pytest.fixture(scope="session")
def rig(surveyed_host: SurveyedHost) -> Rig:
    """The target state of the host."""
    return surveyed_host.rig


@pytest.fixture(scope="session")
def facts(surveyed_host: SurveyedHost) -> HostFacts:
    """The findings of a probe on the host now."""
    return surveyed_host.facts


@pytest.fixture(scope="session")
def desired(surveyed_host: SurveyedHost) -> TargetState:
    """The target state of the rig on the host."""
    return surveyed_host.desired


@pytest.fixture(scope="session")
def roots(rig: Rig) -> Roots:
    """The directories of the rig on its host."""
    return rig.roots


@pytest.fixture(scope="session")
def service_accounts(rig: Rig) -> ServiceAccounts:
    """Names of the services' system users."""
    return rig.accounts


@pytest.fixture(scope="session")
def service_users(rig: Rig) -> tuple[str, ...]:
    """The system users of all declared services."""
    return account_names(rig)


@pytest.fixture(scope="session")
def declared_cards(rig: Rig) -> tuple[Card, ...]:
    """The declared cards, by GPU index."""
    return rig.cards


@pytest.fixture(scope="session")
def reserved_gpus(rig: Rig) -> tuple[int, ...]:
    """GPU indexes of cards that other work has."""
    return rig.reserved_gpus


@pytest.fixture(scope="session")
def declared_instances(rig: Rig) -> tuple[Instance, ...]:
    """All declared instances."""
    return rig.instances


@pytest.fixture(scope="session")
def driver_entry(rig: Rig) -> DriverEntry:
    """The declared driver and card settings."""
    return rig.driver


@pytest.fixture(scope="session")
def driver_supply(rig: Rig) -> DriverSupply:
    """The known drivers and the locked one."""
    return rig.driver_supply


@pytest.fixture(scope="session")
def toolkit_spec(rig: Rig) -> ToolkitSpec:
    """The CUDA toolkit that engines are compiled with."""
    return rig.toolkit


@pytest.fixture(scope="session")
def container_supply(rig: Rig) -> ContainerSupply:
    """Archives and locked packages of containers."""
    return rig.container_supply


@pytest.fixture(scope="session")
def containers_entry(rig: Rig) -> ContainersEntry | None:
    """The declared container engines."""
    return rig.containers


@pytest.fixture(scope="session")
def download_network(rig: Rig) -> DownloadNetwork:
    """Sources and proxies of downloads."""
    return rig.network


@pytest.fixture(scope="session")
def gateway_entry(rig: Rig) -> Gateway | None:
    """The declared gateway, if any."""
    return rig.gateway


@pytest.fixture(scope="session")
def monitoring_entry(rig: Rig) -> Monitoring | None:
    """The declared monitoring, if any."""
    return rig.monitoring


@pytest.fixture(scope="session")
def share_entry(rig: Rig) -> ShareEntry | None:
    """The declared sharing of weights, if any."""
    return rig.share


@pytest.fixture(scope="session")
def scrape_targets(rig: Rig) -> tuple[ScrapeTarget, ...]:
    """The boxes that Prometheus scrapes."""
    return rig.scrape_targets


@pytest.fixture(scope="session")
def watched_services(rig: Rig) -> tuple[MonitoringService, ...]:
    """The declared services of the monitoring."""
    return monitoring_services(rig)


@pytest.fixture(scope="session")
def inventory_file(rig: Rig) -> str:
    """The path of the inventory."""
    return rig.inventory


@pytest.fixture(scope="session")
def rig_name(rig: Rig) -> str:
    """The name of the rig."""
    return rig.name


@pytest.fixture(scope="session")
def lock(rig: Rig) -> Lock:
    """The lock of the inventory."""
    return rig.lock


@pytest.fixture(scope="session")
def lock_digest(rig: Rig) -> str:
    """The digest of lock and bundle."""
    return rig.digest


@pytest.fixture(scope="session")
def box_name(rig: Rig) -> str:
    """The name of the rig."""
    return rig.name


@pytest.fixture(scope="session")
def scope(rig: Rig, desired: TargetState) -> SurveyScope:
    """The rig, with its target state."""
    return SurveyScope(rig, desired)


@pytest.fixture(scope="session")
def installation(desired: TargetState, engine_name: str) -> Installation:
    """An engine, or an environment, as it should be installed."""
    return desired.installations[engine_name]


@pytest.fixture(scope="session")
def environment(desired: TargetState, env: EnvSpec) -> Environment:
    """An environment as it should be there."""
    return cast("Environment", desired.installations[env.name])


@pytest.fixture(scope="session")
def service(rig: Rig, desired: TargetState, instance: Instance) -> ServiceSpec:
    """How an instance should be run."""
    return kind_of(instance).service(rig, instance, desired.installations[instance.installed_as])


@pytest.fixture(scope="session")
def target_generation(desired: TargetState) -> Generation:
    """The generation that should be served."""
    return desired.generation
