"""Two gateways with one address: keys of the inventory, settings of each box, and verbs that deal with both."""

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from cli.key_sync import load_targets
from cli.status import _gateway_state
from rigwright.gateway.gateway_units import GatewayFiles, gateway_services, listener_sockets, render_gateway
from rigwright.gateway.served_models import describe_access
from rigwright.inventory import load_rig
from rigwright.model.rig import Rig
from rigwright.operate.client_target import listener_endpoint
from rigwright.plan.host_probe import required_packages
from rigwright.rollout.batch_plan import BatchLimits, RolloutBox, plan_batches
from rigwright.serving.serving_state import ObservedServing
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry

SHARED = "192.0.2.100"
CONF = "gateway/keepalived.conf"


def gateway_entry(number: int, other: str, **changes: object) -> dict[str, Any]:
    """The entry of one of both boxes, with some of its virtual_address changed."""
    shared = {"address": f"{SHARED}/24", "source": f"192.0.2.{number}", "interface": "eth0", "priority": number}
    return sample_entry(
        ssh_hostname=f"192.0.2.{number}",
        instances=chat_instances(),
        fleet={"address": f"192.0.2.{number}"},
        gateway={
            "listeners": {"lan": {"address": SHARED, "port": 8443, "tls": True}},
            "models": {"m": {"instances": ["chat", f"{other}/chat"]}},
            "virtual_address": shared | changes,
        },
    )


def both_entries(**changes: object) -> dict[str, Any]:
    """Both boxes, with some of the second's virtual_address changed."""
    return {"one": gateway_entry(7, "two"), "two": gateway_entry(8, "one", **changes)}


def load_rigs(box: OperatorFolder, entries: dict[str, Any]) -> dict[str, Rig]:
    return {name: load_rig(data["rig"]) for name, data in box.load_group(entries)}


def rendered(rig: Rig) -> GatewayFiles:
    return render_gateway(rig.roots, rig.accounts, rig.instances, rig.gateway, rig.monitoring, "# ours")


def test_each_gateway_speaks_to_the_other_one_alone(box: OperatorFolder) -> None:
    rigs = load_rigs(box, both_entries())
    confs = {name: rendered(rig).files[CONF] for name, rig in rigs.items()}
    for name, own, other in (("one", "192.0.2.7", "192.0.2.8"), ("two", "192.0.2.8", "192.0.2.7")):
        lines = [" ".join(line.split()) for line in confs[name].splitlines()]
        peers = lines[lines.index("unicast_peer {") + 1 : lines.index("virtual_ipaddress {") - 1]
        assert f"unicast_src_ip {own}" in lines
        assert peers == [other]
        assert lines[lines.index("virtual_ipaddress {") + 1] == f"{SHARED}/24 dev eth0"
        assert {"nopreempt", "state BACKUP", "enable_script_security"} <= {*lines}
        unit = rendered(rigs[name]).files["units/rigwright_keepalived.service"]
        assert f"IPAddressAllow={other}\n" in unit
        assert "IPAddressDeny=any\n" in unit
        assert "keepalived" in required_packages(rigs[name])
        assert "rigwright_keepalived.service" in gateway_services(rigs[name].gateway)
    # both are of one virtual router, and differ in priority
    routers, priorities = (
        {line.split()[1] for conf in confs.values() for line in conf.splitlines() if line.strip().startswith(word)}
        for word in ("virtual_router_id", "priority")
    )
    assert len(routers) == 1
    assert priorities == {"7", "8"}


def test_health_is_asked_without_privileges_and_decides(box: OperatorFolder) -> None:
    made = rendered(load_rigs(box, both_entries())["one"])
    asks, holds = (made.files[f"units/rigwright_{name}.service"] for name in ("health", "keepalived"))
    assert "User=rigwright_gateway\n" in asks
    assert "CapabilityBoundingSet=CAP" not in asks
    # both lose a model's instances at once: then clients get 503, and no move of the address helps them
    assert asks.count("/run/rigwright/router/light.sock /state 4\n") == 1
    assert "/health 30" not in asks
    assert "\nBindPaths=/run/rigwright_health\n" in holds
    conf = " ".join(made.files[CONF].split())
    assert 'track_file health { file "/run/rigwright_health/state" weight 0 }' in conf
    assert "track_file { health }" in conf
    assert [one.unit for one in made.unit_states][-2:] == ["rigwright_health.service", "rigwright_keepalived.service"]


def test_another_address_starts_the_unit_again_and_nothing_else_changes(box: OperatorFolder) -> None:
    changed = both_entries(priority=200)
    before, after = (rendered(load_rigs(box, entries)["two"]) for entries in (both_entries(), changed))
    different = {path for path in before.files if before.files[path] != after.files[path]}
    assert different == {CONF, "units/rigwright_keepalived.service"}


def test_listeners_of_the_address_are_reached_at_the_own_address_as_well(box: OperatorFolder) -> None:
    gateway = load_rigs(box, both_entries())["two"].gateway
    assert gateway
    sockets = {one.unit: one.addresses for one in listener_sockets(gateway)}
    assert sockets["rigwright_gateway-8443.socket"] == {f"{SHARED}:8443", "192.0.2.8:8443"}
    # the survey of a box asks its own gateway, also while the other one has the address
    assert listener_endpoint(gateway.listeners["lan"]) == "192.0.2.8:8443"


def test_plan_and_status_name_the_other_gateway(box: OperatorFolder) -> None:
    one = load_rigs(box, both_entries())["one"]
    assert (
        f"{SHARED} is shared with two at 192.0.2.8; VRRP from 192.0.2.7 on eth0, priority 7, without authentication"
        in describe_access(one.instances, one.gateway)
    )
    found = ObservedServing((), None, "", activating=False, job=False, loaded="", enabled=False, reload_needed=False)
    assert _gateway_state(one.gateway, found, [SHARED]).endswith(f"; has {SHARED}, shared with two")
    assert _gateway_state(one.gateway, found, ["192.0.2.7"]).endswith(f"; has not {SHARED}, shared with two")


def test_boxes_without_such_an_address_have_no_keepalived(box: OperatorFolder) -> None:
    entries = both_entries()
    for name in entries:
        entries[name]["gateway"].pop("virtual_address")
        entries[name]["gateway"]["listeners"]["lan"]["address"] = "0.0.0.0"
        entries[name]["gateway"]["listeners"]["lan"]["names"] = ["llm.example.org"]
    rig = load_rigs(box, entries)["one"]
    assert not any("keepalived" in path for path in rendered(rig).files)
    assert "keepalived" not in required_packages(rig)


ADDRESS = "must be an IPv4 address with the prefix length of its network, such as 192.0.2.100/24"


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ({"address": "192.0.2.100"}, "two.gateway.virtual_address.address", ADDRESS),
        ({"address": "192.0.2.100/31"}, "two.gateway.virtual_address.address", ADDRESS),
        ({"address": "192.0.2.0/24"}, "two.gateway.virtual_address.address", "192.0.2.0 is no address of a host in"),
        ({"address": "2001:db8::1/64"}, "two.gateway.virtual_address.address", ADDRESS),
        ({"address": f"{SHARED}/25"}, "one.gateway.virtual_address.address", "use one prefix length"),
        ({"source": "192.0.3.8"}, "two.gateway.virtual_address", "a source in 192.0.2.0/24, the network of"),
        ({"source": SHARED}, "two.gateway.virtual_address", f"a source other than {SHARED}, which both gateways share"),
        ({"source": "2001:db8::8"}, "two.gateway.virtual_address.source", "must be an IPv4 address of this box"),
        ({"source": "127.0.0.1"}, "two.gateway.virtual_address.source", "must be an IPv4 address of this box"),
        ({"source": "192.0.2.7"}, "one.gateway.virtual_address.source", "192.0.2.7 is also the source of two"),
        ({"priority": 7}, "one.gateway.virtual_address.priority", "7 is also the priority of two"),
        ({"priority": 255}, "two.gateway.virtual_address.priority", "must be at most 254"),
        ({"interface": "eth 0"}, "two.gateway.virtual_address.interface", "must be the name of a network interface"),
        ({"peer": "one"}, "two.gateway.virtual_address.peer", ""),
    ],
)
def test_bad_values_get_one_error(box: OperatorFolder, changes: dict[str, Any], key: str, said: str) -> None:
    refuse(box, both_entries(**changes), key, said)


def refuse(box: OperatorFolder, entries: dict[str, Any], key: str, said: str) -> None:
    """Load boxes that have one mistake."""
    with pytest.raises(SystemExit) as ended:
        box.load_group(entries)
    (line,) = str(ended.value.code).splitlines()
    assert f": {key}: " in line
    assert said in line


def test_an_address_belongs_to_two_gateways(box: OperatorFolder) -> None:
    three = gateway_entry(9, "one")
    refuse(box, both_entries() | {"three": three}, "one.gateway.virtual_address.address", "it belongs to exactly two")
    alone = both_entries()
    alone["two"]["gateway"].pop("virtual_address")
    alone["two"]["gateway"]["listeners"]["lan"]["address"] = "192.0.2.8"
    said = f"no gateway of another box has {SHARED}"
    refuse(box, alone, "one.gateway.virtual_address.address", said)
    # the errors of a refused box come first
    refuse(box, both_entries(source="nothing"), "two.gateway.virtual_address.source", "must be")


def test_settings_that_clients_see_are_equal(box: OperatorFolder) -> None:
    for key, value in (("sticky", "conversation"), ("queue", 3), ("keys_file", "others.toml"), ("aliases", {"n": "m"})):
        entries = both_entries()
        entries["two"]["gateway"][key] = value
        refuse(box, entries, f"one.gateway.{key}", f"differs from gateway.{key} of two")
    entries = both_entries()
    entries["two"]["gateway"]["listeners"]["lan"]["keys"] = False
    refuse(box, entries, "one.gateway.listeners.lan", "differs from gateway.listeners.lan of two")
    entries = both_entries()
    entries["two"]["gateway"]["models"]["m"]["queue"] = 3
    refuse(box, entries, "one.gateway.models.m", "differs from gateway.models.m of two")
    entries = both_entries()
    for name in entries:
        entries[name]["gateway"]["listeners"]["lan"]["address"] = entries[name]["ssh_hostname"]
    with pytest.raises(SystemExit, match=r"one\.gateway\.listeners: none listens on 192\.0\.2\.100"):
        box.load_group(entries)
    # a gateway may have listeners of its own, and one of them uses instances of its own alone
    entries = both_entries()
    entries["two"]["gateway"]["listeners"]["own"] = {"address": "192.0.2.8", "port": 8444}
    entries["two"]["gateway"]["models"]["m"]["instances"] = ["chat"]
    assert load_rigs(box, entries)["two"].gateway


def test_keys_reach_both_gateways_whichever_is_named(box: OperatorFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(box.folder) / "fleet.py"
    path.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({both_entries()!r})\n")
    found = load_targets(str(path), "one")
    assert found.limit == "one,two"
    assert set(found.rigs) == {"one", "two"}


def test_a_rollout_never_takes_both_gateways(box: OperatorFolder) -> None:
    boxes = [RolloutBox("one", partner="two"), RolloutBox("two", partner="one"), RolloutBox("three")]
    batches = plan_batches(boxes, ["one", "two", "three"], BatchLimits(canary=0, batch=3), datetime.now(timezone.utc))
    assert [one.boxes for one in batches] == [("one", "three"), ("two",)]
