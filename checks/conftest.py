"""What checks are given: the host, its rig, and each instance, engine and weight file of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, cast

import pytest
from testinfra.host import Host

from checks.backend import UnknownHost, connect, testinfra_host
from checks.report import Reporter, label
from checks.survey.section import Scene
from checks.survey.take import take
from checks.survey.taken import Survey
from rigwright.declaration.rig import DeclaredEnv, Instance, Rig
from rigwright.engines.kind import Installation, Service
from rigwright.envs.env import Environment
from rigwright.host import facts as host_facts
from rigwright.host.facts import HostFacts
from rigwright.host.plan import Desired
from rigwright.host.plan import desired as desired_of
from rigwright.inventory import load
from rigwright.render import render
from rigwright.serving import live as served
from rigwright.serving.generation import Generation
from rigwright.serving.live import Served, state_script
from rigwright.weights import stored as weights_stored
from rigwright.weights.records import hash_scripts, parse_hashes, recorded
from rigwright.weights.stored import Stored


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the checks."""
    parser.addoption("--inventory", help="the inventory whose hosts are checked")
    parser.addoption("--limit", help="one host or group of it")
    parser.addoption("--deep", action="store_true", help="read all bytes of weights and environments")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Connect before anything is collected, and print a line a check."""
    config.addinivalue_line("markers", "check(identifier, title, severity, why): a conformance check")
    inventory = config.getoption("--inventory")
    if not inventory:
        raise pytest.UsageError("checks need --inventory FILE")
    try:
        config.stash[TARGETS], gone = connect(inventory, config.getoption("--limit"))
    except (UnknownHost, SystemExit) as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[GONE] = gone
    if not config.stash[TARGETS]:
        raise pytest.UsageError(f"cannot connect to {', '.join(gone)}")
    standard = config.pluginmanager.get_plugin("terminalreporter")
    if standard is not None:
        config.pluginmanager.unregister(standard)
        config.pluginmanager.register(Reporter(config, gone), "terminalreporter")


# the host of checks that no rig here has anything for; the reporter drops them
NOBODY = ""
GONE = pytest.StashKey[list[str]]()
TARGETS = pytest.StashKey[dict[str, Any]]()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A host out of reach is not one that conforms."""
    if session.config.stash[GONE]:
        session.exitstatus = pytest.ExitCode.INTERRUPTED


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a host, or one a host and instance, engine or weight file."""
    targets = metafunc.config.stash[TARGETS]
    parts: dict[str, Callable[[Rig], Sequence[object]]] = {
        "instance": lambda rig: rig.instances,
        "engine_name": lambda rig: [*rig.engines, *(env.name for env in rig.envs)],
        "env": lambda rig: rig.envs,
        "weight": lambda rig: rig.weights,
        "share": lambda rig: [rig.share] if rig.share else [],
        "gateway": lambda rig: [("gateway", rig.gateway)] if rig.gateway else [],
        "offered": lambda rig: list({one.name: one for offer in rig.offers for one in offer.instances}.values()),
        "listener": lambda rig: sorted(rig.gateway.listeners.items()) if rig.gateway else [],
    }
    wanted = [name for name in parts if name in metafunc.fixturenames]
    if not wanted:
        metafunc.parametrize("target_name", list(targets), scope="session")
        return
    pairs = [(name, part) for name, target in targets.items() for part in parts[wanted[0]](_rig(target))]
    labels = [f"{name}/{label(part)}" for name, part in pairs]
    if pairs:
        metafunc.parametrize(("target_name", wanted[0]), pairs, ids=labels, scope="session")
    else:
        metafunc.parametrize(("target_name", wanted[0]), [(NOBODY, None)], scope="session")


@cache
def _rig(target: Any) -> Rig:
    return load(target.data.get("rig"))


@cache
def _host(target: Any) -> Host:
    return testinfra_host(target)


@cache
def _facts(target: Any) -> HostFacts:
    script = render("probe/probe.sh.j2", **host_facts.questions(_rig(target)))
    return host_facts.parse(_host(target).check_output("sh -c %s", script).splitlines())


@cache
def _survey(target: Any, deep: bool) -> Survey:
    try:
        scene = Scene(_rig(target), desired_of(_rig(target), _facts(target)), deep)
        return take(target, scene)
    except (ValueError, OSError) as error:
        return Survey({}, str(error))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look at all hosts at once, before the first check asks for what was found."""
    deep = session.config.getoption("--deep")
    with ThreadPoolExecutor(max_workers=16) as pool:
        list(pool.map(lambda target: _survey(target, deep), session.config.stash[TARGETS].values()))


@pytest.fixture(scope="session")
def survey(target: Any, pytestconfig: pytest.Config) -> Survey:
    """What the host is, all of it seen at one time."""
    return _survey(target, pytestconfig.getoption("--deep"))


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config, target_name: str) -> Any:
    """The connected pyinfra host."""
    return pytestconfig.stash[TARGETS][target_name]


@pytest.fixture(scope="session")
def host(target: Any) -> Host:
    """The testinfra host."""
    return _host(target)


@pytest.fixture(scope="session")
def rig(target: Any) -> Rig:
    """What the host should be."""
    return _rig(target)


@pytest.fixture(scope="session")
def facts(target: Any) -> HostFacts:
    """What a probe finds on the host now."""
    return _facts(target)


@pytest.fixture(scope="session")
def desired(rig: Rig, facts: HostFacts) -> Desired:
    """What the rig comes to on the host."""
    return desired_of(rig, facts)


@pytest.fixture(scope="session")
def installation(desired: Desired, engine_name: str) -> Installation:
    """An engine, or an environment, as it should be installed."""
    return desired.installations[engine_name]


@pytest.fixture(scope="session")
def environment(desired: Desired, env: DeclaredEnv) -> Environment:
    """An environment as it should be there."""
    return cast(Environment, desired.installations[env.name])


@pytest.fixture(scope="session")
def service(rig: Rig, desired: Desired, instance: Instance) -> Service:
    """How an instance should be run."""
    return instance.kind.service(rig, instance, desired.installations[instance.installed_as])


@pytest.fixture(scope="session")
def wanted(desired: Desired) -> Generation:
    """The generation that should be served."""
    return desired.generation


@pytest.fixture(scope="session")
def found(host: Host, rig: Rig) -> Served:
    """What the host serves now."""
    script = state_script(rig.roots.config, rig.roots.software, rig.starts)
    return served.parse(host.check_output("sh -c %s", script).splitlines())


@pytest.fixture(scope="session")
def stored(host: Host, rig: Rig) -> Stored:
    """Which weights lie on the host, and what is known of them."""
    return weights_stored.parse(rig, host.check_output("sh -c %s", weights_stored.script(rig)).splitlines())


@pytest.fixture(scope="session")
def bytes_now(pytestconfig: pytest.Config, host: Host, rig: Rig) -> dict[str, str] | None:
    """Path -> SHA-256 of every weight, all read now; None where that is not asked for."""
    if not pytestconfig.getoption("--deep"):
        return None
    files = [recorded(rig, weight) for weight in rig.weights]
    found: dict[str, str] = {}
    for script in hash_scripts(files):
        found |= parse_hashes(host.check_output("sh -c %s", script).splitlines())
    return found
