"""Watching: what stands in its way, what a plan says of it, and what its role does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from rigwright.host.basics import Listener
from rigwright.model.facts import HostFacts
from rigwright.model.monitoring.entry import Monitoring, Receiver, Server
from rigwright.model.monitoring.found import NOWHERE, Found, State
from rigwright.model.monitoring.watched import Watched
from rigwright.model.rig import Rig
from rigwright.monitoring.service import services, unit_name
from rigwright.plan.facts import packages
from rigwright.plan.plan import plan
from rigwright.plan.preflight import refusals
from roles.operations import monitoring as operation
from tests.unit import samples
from tests.unit.samples import NOW, artefact, facts, rig
from tests.unit.states import comes_to, converged, two, wanted

AT = "10.0.0.5"
HAS = frozenset({"127.0.0.1", AT})
TELLS = Monitoring(address=AT)
ASKS = Monitoring(address=AT, server=Server(size_gb=5))
BOX = Watched(name="box", address=AT, node_port=9100, gpu_port=None, doors=(), instances=())
RIG = two()
BUILD = samples.plan()
WEIGHT = RIG.weight_path(artefact())


def declares(monitoring: Monitoring | None) -> Rig:
    """The rig, with what it declares of watching."""
    return replace(RIG, monitoring=monitoring, watched=(BOX,) if monitoring and monitoring.server else ())


def ready(state: State, **changes: Any) -> HostFacts:
    """A host with everything but what watches."""
    there = {"built_engines": frozenset({BUILD.folder}), "weight_bytes": MappingProxyType({WEIGHT: artefact().size})}
    return facts(monitoring=state, addresses=HAS, **there | changes)


def settled(made: Rig) -> State:
    """What watches, as it is declared."""
    return State({one.name: Found("active", "enabled", one.digest({})) for one in services(made)})


def changed(made: Rig, **changes: Any) -> State:
    """The same, with one of the host's own figures not as it should be."""
    state = settled(made)
    return State(dict(state.units) | {"node": replace(state.units["node"], **changes)})


def steps(made: Rig, state: State) -> list[tuple[str, str]]:
    """What a plan says, and why."""
    found = plan(comes_to(made, ready(state), BUILD), converged(wanted(RIG))).steps
    assert {one.role for one in found} <= {"monitoring"}
    return [(one.what, one.why) for one in found]


NODE = f"run node, on {AT}:9100"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (settled(declares(TELLS)), None),
        (NOWHERE, "it is not there yet"),
        (changed(declares(TELLS), active="failed"), "its unit is failed"),
        (changed(declares(TELLS), started_from="x"), "it was started with other settings"),
        (changed(declares(TELLS), replaced=True), "another version is installed than the one that runs"),
        (changed(declares(TELLS), enabled="disabled"), "it would not start at the next boot"),
        (changed(declares(TELLS), reload_needed=True), "systemd has to read its unit"),
    ],
    ids=["settled", "blank", "failed", "other settings", "upgraded", "disabled", "unread"],
)
def test_a_plan_says_what_is_run_and_why(state: State, why: str | None) -> None:
    assert steps(declares(TELLS), state) == ([(NODE, why)] if why else [])


def test_what_is_not_declared_any_more_goes_with_what_it_has_kept() -> None:
    gone = "it is not declared any more; what it has kept goes, too"
    names = ("node", "prometheus", "alertmanager", "blackbox")
    assert steps(RIG, settled(declares(ASKS))) == [(f"remove {name}", gone) for name in names]
    assert steps(declares(TELLS), settled(declares(ASKS))) != []
    assert steps(RIG, NOWHERE) == []


def test_a_token_of_no_receiver_is_taken_away() -> None:
    token = "/etc/rigwright/credentials/monitoring-old.token"
    state = replace(settled(declares(ASKS)), secrets=frozenset({token}))
    ((what, why),) = steps(declares(ASKS), state)
    assert (what, why) == ("run alertmanager, on 127.0.0.1:9093", f"{token} is of no receiver any more")


@pytest.mark.parametrize(
    ("monitoring", "changes", "essence"),
    [
        (ASKS, {}, []),
        (ASKS, {"listeners": (Listener(9090, "prometheus", "rigwright_prometheus.service"),)}, []),
        (TELLS, {"listeners": (Listener(9090, "prometheus", "prometheus.service"),)}, []),
        (
            ASKS,
            {"listeners": (Listener(9090, "prometheus", "prometheus.service"),) * 2},
            ["port 9090 of monitoring.server.port is taken by prometheus (prometheus.service): stop it"],
        ),
        (TELLS, {"addresses": frozenset({"127.0.0.1"})}, [f"it has no address {AT} to be asked at, but 127.0.0.1:"]),
    ],
    ids=["good", "ours already", "another's port that is not needed", "taken", "no such address"],
)
def test_what_stands_in_the_way_is_refused_first(
    monitoring: Monitoring, changes: dict[str, Any], essence: list[str]
) -> None:
    reasons = refusals(comes_to(rig(monitoring=monitoring), facts(**{"addresses": HAS} | changes)), NOW)
    assert len(reasons) == len(essence), reasons
    assert all(part in reason for part, reason in zip(essence, reasons, strict=True)), reasons


@pytest.mark.parametrize(("version", "wrong"), [("12", True), ("13", False)])
def test_an_address_that_is_a_secret_is_refused_where_alertmanager_reads_none(version: str, wrong: bool) -> None:
    receivers = {"ops": Receiver(url_file="ops.url"), "open": Receiver(url="http://192.0.2.1/x")}
    asking = rig(monitoring=Monitoring(address=AT, server=Server(receivers=receivers)))
    reasons = refusals(comes_to(asking, facts(addresses=HAS, os_id="debian", os_version=version)), NOW)
    said = "monitoring.server.receivers.ops.url_file needs Alertmanager 0.26.0, and debian-12 has 0.25.0: give url, "
    assert [one.startswith(said) for one in reasons] == [True] * wrong, reasons


def test_room_for_what_is_kept_is_asked_for_until_it_is_there() -> None:
    asking = rig(monitoring=Monitoring(address=AT, server=Server(size_gb=9000)))
    (reason,) = refusals(comes_to(asking, facts(addresses=HAS)), NOW)
    assert reason.startswith("/var/lib/rigwright has ")
    there = facts(addresses=HAS, monitoring=State({"prometheus": Found()}))
    assert refusals(comes_to(asking, there), NOW) == []


def test_a_box_has_the_packages_of_what_runs_there() -> None:
    assert packages(declares(TELLS))[-1:] == ("prometheus-node-exporter",)
    assert set(packages(declares(ASKS))) - set(packages(declares(TELLS))) == {
        *("prometheus", "prometheus-alertmanager", "prometheus-blackbox-exporter")
    }


def test_each_service_has_a_user_of_its_own_and_listens_where_it_is_declared() -> None:
    made = declares(ASKS)
    texts = {one.name: one.unit for one in services(made)}
    users = [line for text in texts.values() for line in text.splitlines() if line.startswith("User=")]
    assert sorted(users) == sorted(f"User={name}" for name in made.watching.values())
    assert len(set(users)) == len(users) == 4
    for one in services(made):
        assert f"--web.listen-address={one.endpoint}\n" in one.unit
        assert f"SocketBindAllow=tcp:{one.at[1]}\n" in one.unit
        assert f"\nMemoryMax={'50%' if one.name == 'prometheus' else '512M'}\n" in one.unit
        # clients are bounded, each by what its program has for it
        assert f"\nLimitNOFILE={16384 if one.name == 'prometheus' else 1024}\n" in one.unit
    assert " --web.max-connections=64 --web.read-timeout=1m " in texts["prometheus"]
    assert "--cluster.listen-address=\n" in f"{texts['alertmanager']}\n".replace(" --web", "\n--web")
    assert "IPAddressAllow=10.0.0.5/32\n" in texts["node"]


def done(monkeypatch: pytest.MonkeyPatch, made: Rig, state: State) -> tuple[list[str], list[str]]:
    """Scripts that the operation runs, and what it says where it runs none."""
    quiet: list[str] = []
    there = SimpleNamespace(get_fact=lambda *_, **__: state, noop=quiet.append)
    monkeypatch.setattr(operation, "host", there)
    inner: Callable[..., Any] = operation.watching._inner
    return [command.get_raw_value() for command in inner(rig=made)], quiet


def test_the_role_starts_what_does_not_run_as_it_should_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made = declares(ASKS)
    assert done(monkeypatch, made, settled(made))[0] == []
    ((script,), _) = done(monkeypatch, made, changed(made, started_from="x"))
    assert [line for line in script.splitlines() if "systemctl restart" in line] == [
        f"systemctl restart {unit_name('node')}"
    ]
    ((script,), _) = done(monkeypatch, made, changed(made, enabled="disabled"))
    assert "systemctl restart" not in script
    assert f"systemctl enable --quiet {unit_name('node')}" in script
    ((script,), _) = done(monkeypatch, RIG, settled(made))
    assert script.count("systemctl stop") == 4
    assert "systemctl restart" not in script
    assert done(monkeypatch, RIG, NOWHERE) == ([], ["what watches is as declared"])
