"""A gateway on a host, as text: its units, what they are started from, and what becomes of them when that changes."""

import hashlib
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from rigwright.gateway.gateway_units import render_gateway
from rigwright.gateway.secrets_distribution import GATEWAY_UNIT, ROUTER_SOCKET, ROUTER_UNIT
from rigwright.model.gateway_schema import Gateway
from rigwright.serving.activation import Activation, goal_for, plan_activation
from rigwright.serving.generation import Generation, parse_manifest
from rigwright.serving.instance_units import OWNED_HEADER
from rigwright.serving.serving_state import ObservedServing
from tests.unit.host_states import CHAT, CONFIG, converged_state, target_generation, two_instance_rig
from tests.unit.samples import sample_instance, sample_rig

LISTENERS: dict[str, Any] = {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}
TLS = {"office": {"address": "192.0.2.7", "port": 443, "tls": True}}


def gateway_generation(**changes: Any) -> Generation:
    """A generation with a gateway, some of it changed."""
    gateway = Gateway.model_validate({"listeners": LISTENERS} | changes)
    return target_generation(
        replace(two_instance_rig(sample_instance("chat"), sample_instance("code", port=8021)), gateway=gateway)
    )


AIM = gateway_generation()
SOCKET = "rigwright_gateway-8000.socket"


def way(found: ObservedServing, aim: Generation) -> Activation | None:
    return plan_activation(found, CONFIG, goal_for(found, aim))


def test_its_processes_are_started_from_the_files_of_the_generation() -> None:
    reserved, router, nginx = AIM.gateway
    assert (router.unit, nginx.unit) == (ROUTER_UNIT, GATEWAY_UNIT)
    text = AIM.files[f"units/{reserved.unit}"]
    assert "ExecStart=/usr/bin/python3 -I -S -B /etc/rigwright/current/gateway/reserve.py [::]:8000\n" in text
    assert f"/current/started {reserved.unit}\n" in text
    assert reserved.started_from == hashlib.sha256(text.encode()).hexdigest()
    # a socket takes some 4 KiB of the kernel's memory, which is the unit's, and Python 16 MiB
    files, mib = (int(re.findall(rf"^{key}=([0-9]+)", text, re.M)[0]) for key in ("LimitNOFILE", "MemoryMax"))
    assert 10_000 < files < (mib - 16) << 8
    assert reserved.unit in AIM.files["units/rigwright.target"]
    for slot in (router, nginx):
        assert slot.started_from == hashlib.sha256(AIM.files[f"units/{slot.unit}"].encode()).hexdigest()
        read_by = "router/*.py and settings.json" if slot is router else "*.lua, nginx.conf and settings.json"
        names = [name.removeprefix("gateway/") for name in AIM.files if name.startswith("gateway/")]
        own = [name for name in names if name.startswith("router/") == (slot is router) or name == "settings.json"]
        own = [name for name in own if name != "reserve.py"]
        own = [
            name for name in own if name.endswith((".py", ".lua", ".conf", ".json")) or name in ("engine-keys", "tls")
        ]
        content = "".join(AIM.files[f"gateway/{name}"] for name in sorted(own))
        assert slot.configured_from == hashlib.sha256(content.encode()).hexdigest(), read_by


def test_a_deploy_reads_from_the_manifest_what_was_written() -> None:
    found = parse_manifest(AIM.files["manifest.json"], {})
    assert {one for one in found.unit_states if not one.unit.startswith("rigwright-") and not one.leads_to} == set(
        AIM.gateway
    )
    assert found.users and found.users >= {"rigwright_gateway", "rigwright_router", "rigwright-chat"}


def test_a_host_that_is_so_is_left_alone() -> None:
    assert way(converged_state(AIM), AIM) is None


def test_other_settings_are_read_again_and_restart_the_router_alone() -> None:
    done = way(converged_state(AIM), gateway_generation(aliases={"gpt-4o": AIM_MODEL}))
    assert done is not None
    assert (done.stop, done.restart, done.reload, done.listen, done.release) == (
        (),
        (ROUTER_UNIT,),
        (GATEWAY_UNIT,),
        (),
        (),
    )


def test_another_key_of_an_engine_is_given_to_it_by_a_reload() -> None:
    changed = two_instance_rig(
        sample_instance("chat", key_fingerprint="0123456789abcdef"), sample_instance("code", port=8021)
    )
    done = way(
        converged_state(AIM),
        target_generation(replace(changed, gateway=Gateway.model_validate({"listeners": LISTENERS}))),
    )
    assert done is not None
    assert done.reload == (GATEWAY_UNIT,)


def test_other_instances_are_no_reason_to_restart_it() -> None:
    fewer = target_generation(
        replace(two_instance_rig(sample_instance("chat")), gateway=Gateway.model_validate({"listeners": LISTENERS}))
    )
    done = way(converged_state(AIM), fewer)
    assert done is not None
    assert GATEWAY_UNIT not in (*done.stop, *done.restart)


def test_another_listener_restarts_it_once_its_port_is_held() -> None:
    done = way(converged_state(AIM), gateway_generation(listeners=LISTENERS | TLS))
    assert done is not None
    assert done.listen == ("rigwright_gateway-443.socket",)
    assert set(done.restart) == {ROUTER_UNIT, GATEWAY_UNIT}
    assert done.new_listeners == (("rigwright_gateway-443.socket", GATEWAY_UNIT, 443),)


@pytest.mark.parametrize(
    "at", [frozenset[str](), frozenset({"127.0.0.1:8000"}), frozenset({"0.0.0.0:8000", "[::]:8000"})]
)
def test_a_port_that_is_not_held_where_it_is_declared_is_held_again(at: frozenset[str]) -> None:
    here = converged_state(AIM)
    done = way(replace(here, sockets={**here.sockets, SOCKET: at}), AIM)
    assert done is not None
    assert (done.listen, done.restart) == ((SOCKET,), (GATEWAY_UNIT,))


def test_it_goes_with_its_sockets_where_it_is_not_declared_any_more() -> None:
    done = way(
        converged_state(AIM),
        target_generation(two_instance_rig(sample_instance("chat"), sample_instance("code", port=8021))),
    )
    assert done is not None
    assert {GATEWAY_UNIT, ROUTER_UNIT} <= set(done.stop)
    assert done.release == (SOCKET, ROUTER_SOCKET)
    assert not any(name.startswith("rigwright_") for name in done.slices)


def test_an_instance_is_restarted_for_a_new_gateway_because_its_clients_change() -> None:
    assert (
        CHAT
        in (
            way(converged_state(target_generation(two_instance_rig(sample_instance("chat")))), AIM) or Activation()
        ).restart
    )


def test_no_key_and_no_certificate_is_in_a_generation() -> None:
    box_rig = sample_rig(sample_instance("chat"), gateway=Gateway.model_validate({"listeners": LISTENERS | TLS}))
    made = render_gateway(
        box_rig.roots, box_rig.accounts, box_rig.instances, box_rig.gateway, box_rig.monitoring, OWNED_HEADER
    )
    assert "BEGIN" not in "".join(text for name, text in made.files.items() if not name.endswith((".py", "prepare")))
    assert json.loads(made.files["gateway/settings.json"])["listeners"]["office"] == {
        "keys": True,
        "models": None,
        "names": [],
    }


def test_names_are_asked_for_where_no_key_is() -> None:
    every = {"lan": {"address": "192.0.2.7", "port": 8000, "keys": False, "names": ["Rig.Example.org", ".lan"]}}
    box_rig = sample_rig(sample_instance("chat"), gateway=Gateway.model_validate({"listeners": every}))
    made = render_gateway(
        box_rig.roots, box_rig.accounts, box_rig.instances, box_rig.gateway, box_rig.monitoring, OWNED_HEADER
    )
    listeners = json.loads(made.files["gateway/settings.json"])["listeners"]
    assert listeners["lan"]["names"] == ["rig.example.org", ".lan"]


AIM_MODEL = json.loads(AIM.files["gateway/settings.json"])["models"].popitem()[0]
