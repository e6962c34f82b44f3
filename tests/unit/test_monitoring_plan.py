"""Monitoring: its obstacles, its words in a plan, and the actions of its role."""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from rigwright.host.basic_facts import ListeningSocket
from rigwright.host.service_states import ServiceState
from rigwright.model.fact_types import NO_MONITORING, HostFacts, MonitoringFacts
from rigwright.model.monitoring_schema import AlertReceiver, Monitoring, MonitoringServer, ScrapeTarget
from rigwright.model.rig import Rig
from rigwright.monitoring.monitoring_units import monitoring_services, unit_name
from rigwright.plan.host_probe import required_packages
from rigwright.plan.preflight import find_refusals
from rigwright.plan.stages import plan_deploy
from roles.operations import units as operation
from tests.unit import samples
from tests.unit.host_states import converged_state, rig_target_state, target_generation, two_instance_rig
from tests.unit.samples import NOW, sample_artefact, sample_facts, sample_rig

AT = "10.0.0.5"
HAS = frozenset({"127.0.0.1", AT})
TELLS = Monitoring(address=AT)
ASKS = Monitoring(address=AT, server=MonitoringServer(size_gb=5))
BOX = ScrapeTarget(name="box", address=AT, node_port=9100, gpu_port=None, doors=(), instances=())
RIG = two_instance_rig()
BUILD = samples.sample_build()
WEIGHT = RIG.roots.weight_path(sample_artefact())


def declares(monitoring: Monitoring | None) -> Rig:
    """The rig, with what it declares of watching."""
    return replace(RIG, monitoring=monitoring, scrape_targets=(BOX,) if monitoring and monitoring.server else ())


def ready(state: MonitoringFacts, **changes: Any) -> HostFacts:
    """A host with everything but what watches."""
    there = {
        "built_engines": frozenset({BUILD.folder}),
        "weight_bytes": MappingProxyType({WEIGHT: sample_artefact().size}),
    }
    return sample_facts(monitoring=state, addresses=HAS, **there | changes)


def declared_units(made: Rig) -> MonitoringFacts:
    """The declared units of monitoring."""
    return MonitoringFacts(
        {one.name: ServiceState("active", "enabled", one.digest({})) for one in monitoring_services(made)}
    )


def changed(made: Rig, **changes: Any) -> MonitoringFacts:
    """The same, with one of the host's own figures not as it should be."""
    state = declared_units(made)
    return MonitoringFacts(dict(state.units) | {"node": replace(state.units["node"], **changes)})


def steps(made: Rig, state: MonitoringFacts) -> list[tuple[str, str]]:
    """The steps of a plan, and why."""
    found = plan_deploy(rig_target_state(made, ready(state), BUILD), converged_state(target_generation(RIG))).steps
    assert {one.role for one in found} <= {"monitoring"}
    return [(one.what, one.why) for one in found]


NODE = f"run node, on {AT}:9100"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (declared_units(declares(TELLS)), None),
        (NO_MONITORING, "it is not there yet"),
        (changed(declares(TELLS), active="failed"), "its unit is failed"),
        (changed(declares(TELLS), started_from="x"), "it was started with other settings"),
        (changed(declares(TELLS), replaced=True), "the installed version differs from the running one"),
        (changed(declares(TELLS), enabled="disabled"), "it would not start at the next boot"),
        (changed(declares(TELLS), reload_needed=True), "systemd must reload its unit"),
    ],
    ids=["settled", "blank", "failed", "other settings", "upgraded", "disabled", "unread"],
)
def test_a_plan_says_what_is_run_and_why(state: MonitoringFacts, why: str | None) -> None:
    assert steps(declares(TELLS), state) == ([(NODE, why)] if why else [])


def test_an_undeclared_service_goes_with_its_data() -> None:
    gone = "it is no longer declared; its data are removed, too"
    names = ("node", "prometheus", "alertmanager", "blackbox")
    assert steps(RIG, declared_units(declares(ASKS))) == [(f"remove {name}", gone) for name in names]
    assert steps(declares(TELLS), declared_units(declares(ASKS))) != []
    assert steps(RIG, NO_MONITORING) == []


def test_a_token_of_no_receiver_is_taken_away() -> None:
    token = "/etc/rigwright/credentials/monitoring-old.token"
    state = replace(declared_units(declares(ASKS)), secrets=frozenset({token}))
    ((what, why),) = steps(declares(ASKS), state)
    assert (what, why) == ("run alertmanager, on 127.0.0.1:9093", f"{token} is of no receiver any more")


@pytest.mark.parametrize(
    ("monitoring", "changes", "essence"),
    [
        (ASKS, {}, []),
        (ASKS, {"listeners": (ListeningSocket(9090, "prometheus", "rigwright_prometheus.service"),)}, []),
        (TELLS, {"listeners": (ListeningSocket(9090, "prometheus", "prometheus.service"),)}, []),
        (
            ASKS,
            {"listeners": (ListeningSocket(9090, "prometheus", "prometheus.service"),) * 2},
            ["port 9090 of monitoring.server.port is taken by prometheus (prometheus.service): stop it"],
        ),
        (TELLS, {"addresses": frozenset({"127.0.0.1"})}, [f"it has no address {AT} to be asked at, but 127.0.0.1:"]),
    ],
    ids=["good", "ours already", "another's port that is not needed", "taken", "no such address"],
)
def test_obstacles_are_refused_first(monitoring: Monitoring, changes: dict[str, Any], essence: list[str]) -> None:
    reasons = find_refusals(
        rig_target_state(sample_rig(monitoring=monitoring), sample_facts(**{"addresses": HAS} | changes)), NOW
    )
    assert len(reasons) == len(essence), reasons
    assert all(part in reason for part, reason in zip(essence, reasons, strict=True)), reasons


@pytest.mark.parametrize(("version", "wrong"), [("12", True), ("13", False)])
def test_an_address_that_is_a_secret_is_refused_where_alertmanager_reads_none(version: str, wrong: bool) -> None:
    receivers = {"ops": AlertReceiver(url_file="ops.url"), "open": AlertReceiver(url="http://192.0.2.1/x")}
    asking = sample_rig(monitoring=Monitoring(address=AT, server=MonitoringServer(receivers=receivers)))
    reasons = find_refusals(
        rig_target_state(asking, sample_facts(addresses=HAS, os_id="debian", os_version=version)), NOW
    )
    said = "monitoring.server.receivers.ops.url_file needs Alertmanager 0.26.0, and debian-12 has 0.25.0: give url, "
    assert [one.startswith(said) for one in reasons] == [True] * wrong, reasons


def test_room_for_what_is_kept_is_asked_for_until_it_is_there() -> None:
    asking = sample_rig(monitoring=Monitoring(address=AT, server=MonitoringServer(size_gb=9000)))
    (reason,) = find_refusals(rig_target_state(asking, sample_facts(addresses=HAS)), NOW)
    assert reason.startswith("/var/lib/rigwright has ")
    there = sample_facts(addresses=HAS, monitoring=MonitoringFacts({"prometheus": ServiceState()}))
    assert find_refusals(rig_target_state(asking, there), NOW) == []


def test_a_box_has_the_packages_of_what_runs_there() -> None:
    assert required_packages(declares(TELLS))[-1:] == ("prometheus-node-exporter",)
    assert set(required_packages(declares(ASKS))) - set(required_packages(declares(TELLS))) == {
        *("prometheus", "prometheus-alertmanager", "prometheus-blackbox-exporter")
    }


def test_each_service_has_a_user_of_its_own_and_listens_where_it_is_declared() -> None:
    made = declares(ASKS)
    texts = {one.name: one.unit for one in monitoring_services(made)}
    users = [line for text in texts.values() for line in text.splitlines() if line.startswith("User=")]
    assert sorted(users) == sorted(
        f"User={name}" for name in made.accounts.exporters(made.monitoring, cards=bool(made.cards)).values()
    )
    assert len(set(users)) == len(users) == 4
    for one in monitoring_services(made):
        assert f"--web.listen-address={one.endpoint}\n" in one.unit
        assert f"SocketBindAllow=tcp:{one.at[1]}\n" in one.unit
        assert f"\nMemoryMax={'50%' if one.name == 'prometheus' else '512M'}\n" in one.unit
        # clients are bounded, each by what its program has for it
        assert f"\nLimitNOFILE={16384 if one.name == 'prometheus' else 1024}\n" in one.unit
    assert " --web.max-connections=64 --web.read-timeout=1m " in texts["prometheus"]
    assert "--cluster.listen-address=\n" in f"{texts['alertmanager']}\n".replace(" --web", "\n--web")
    assert "IPAddressAllow=10.0.0.5/32\n" in texts["node"]


def run_operation(monkeypatch: pytest.MonkeyPatch, made: Rig, state: MonitoringFacts) -> tuple[list[str], list[str]]:
    """Scripts that the operation runs, and what it says where it runs none."""
    quiet: list[str] = []
    there = SimpleNamespace(get_fact=lambda *_, **__: state, noop=quiet.append)
    monkeypatch.setattr(operation, "host", there)
    inner: Callable[..., Any] = operation.ensure_monitoring._inner
    return [command.get_raw_value() for command in inner(rig=made)], quiet


def test_the_role_starts_what_does_not_run_as_it_should_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made = declares(ASKS)
    assert run_operation(monkeypatch, made, declared_units(made))[0] == []
    ((script,), _) = run_operation(monkeypatch, made, changed(made, started_from="x"))
    assert [line for line in script.splitlines() if "systemctl restart" in line] == [
        f"systemctl restart {unit_name('node')}"
    ]
    ((script,), _) = run_operation(monkeypatch, made, changed(made, enabled="disabled"))
    assert "systemctl restart" not in script
    assert f"systemctl enable --quiet {unit_name('node')}" in script
    ((script,), _) = run_operation(monkeypatch, RIG, declared_units(made))
    assert script.count("systemctl stop") == 4
    assert "systemctl restart" not in script
    assert run_operation(monkeypatch, RIG, NO_MONITORING) == ([], ["what watches is as declared"])
