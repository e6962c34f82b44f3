"""One address over several boxes: keys of the inventory, settings of each box, and access between boxes."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from cli.rollout_plan import find_interrupted, list_models
from cli.status import _gateway_state
from rigwright.advisories.advisory_catalog import PredicateKeys
from rigwright.advisories.predicates import PredicateScene, access_paths, evaluate
from rigwright.gateway.certificate_authority import certificate_now, temporary_authority
from rigwright.gateway.gateway_units import GatewayFiles, certificate_owners, listener_sockets, render_gateway
from rigwright.gateway.served_models import describe_access, offers_of
from rigwright.inventory import load_rig
from rigwright.model.fleet_schema import DOMAIN, front_certificate_name, lender_certificate_name
from rigwright.model.rig import Rig
from rigwright.operate.gateway_probes import count_probing_gateways
from rigwright.problems import Invalid
from rigwright.supply.lock import Lock
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry

LAN = {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}
FLEET = {"address": "192.0.2.8", "port": 8555}
OTHER_VARIANT = {"chat": {"variant": "llamacpp/two", "cards": [0, 1], "port": 8020}}


def front_entry(*instances: str, **changes: object) -> dict[str, object]:
    models = {"m": {"instances": list(instances or ("chat", "two/chat"))}}
    return sample_entry(instances=chat_instances(), gateway={"listeners": LAN, "models": models}, **changes)


def lender_entry(**changes: object) -> dict[str, object]:
    return sample_entry(instances=chat_instances(), ssh_hostname="192.0.2.8", fleet=FLEET, **changes)


def load_rigs(box: OperatorFolder, **entries: dict[str, object]) -> dict[str, Rig]:
    return {name: load_rig(data["rig"]) for name, data in box.load_group(entries)}


def rendered(rig: Rig) -> GatewayFiles:
    return render_gateway(rig.roots, rig.accounts, rig.instances, rig.gateway, rig.monitoring, "# ours")


def test_a_gateway_uses_instances_of_another_box(box: OperatorFolder) -> None:
    rigs = load_rigs(box, one=front_entry(), two=lender_entry())
    one, two = rigs["one"], rigs["two"]
    (offer,) = offers_of(one.instances, one.gateway)
    assert offer.names == ("chat", "two/chat")
    assert [instance.name for instance in offer.instances] == ["chat"]
    settings = json.loads(rendered(one).files["gateway/settings.json"])
    assert settings["models"]["m"]["instances"] == ["chat", "two/chat"]
    assert settings["remote"] == {
        "two/chat": {
            "url": "https://fleet-two/chat",
            "certificate": lender_certificate_name("two"),
            "address": "192.0.2.8",
            "port": 8555,
        }
    }
    assert "lent" not in settings
    assert rendered(one).files["gateway/tls"] == "_front\n"
    nginx = rendered(one).files["gateway/nginx.conf"]
    assert "server 192.0.2.8:8555;" in nginx
    assert "proxy_ssl_verify on;" in nginx

    assert [count_probing_gateways(rig.instances, rig.gateway, "chat") for rig in (one, two)] == [1, 1]
    assert count_probing_gateways(two.instances, two.gateway, "other") == 0

    # the other one has no gateway of its own: it has no listener for clients, no model, and no keys
    assert two.gateway and not two.gateway.serves_clients
    settings = json.loads(rendered(two).files["gateway/settings.json"])
    assert (settings["listeners"], settings["models"], settings["lent"]) == ({}, {}, {"chat": ["one.front.rigwright"]})
    # the model's requests with all of its instances, twice
    (offer,) = offers_of(one.instances, one.gateway)
    assert settings["fronts"] == {"one.front.rigwright": 2 * (2 * offer.slots + offer.queue)}
    assert [(one.unit, set(one.addresses)) for one in listener_sockets(two.gateway)] == [
        ("rigwright_gateway-8555.socket", {"192.0.2.8:8555"})
    ]
    nginx = rendered(two).files["gateway/nginx.conf"]
    assert f'"CN={front_certificate_name("one")}"' in nginx
    assert "ssl_verify_client on;" in nginx
    assert certificate_owners(two.gateway) == ["_fleet"]


def test_a_box_without_instances_may_be_a_gateway_of_others(box: OperatorFolder) -> None:
    entry = front_entry("two/chat") | {"instances": {}, "cards": []}
    one = load_rigs(box, one=entry, two=lender_entry())["one"]
    (offer,) = offers_of(one.instances, one.gateway)
    assert (offer.names, offer.instances) == (("two/chat",), ())
    assert offer.paths
    assert offer.slots == offer.remote[0].slots


def test_boxes_that_have_nothing_to_do_with_others_are_as_they_were(box: OperatorFolder) -> None:
    alone = load_rigs(box, one=front_entry("chat"))["one"]
    others = {"two": lender_entry(), "three": front_entry(ssh_hostname="192.0.2.9")}
    beside = load_rigs(box, one=front_entry("chat"), **others)["one"]
    assert rendered(alone).files == rendered(beside).files
    for text in rendered(alone).files["gateway/nginx.conf"], rendered(alone).files["gateway/settings.json"]:
        assert "fleet-" not in text
        assert "rw_target" not in text


def test_advisories_have_the_port_for_other_boxes_as_an_access_path(box: OperatorFolder) -> None:
    two = load_rigs(box, one=front_entry(), two=lender_entry())["two"]
    fleet, own = access_paths(two.instances, two.gateway, two.instances[0])
    assert str(fleet) == "fleet on 192.0.2.8:8555, with a certificate, for gateways of one"
    assert own.fleet is None
    scene = PredicateScene(two, Lock({}))
    for keys, holds in (
        ({"gateway_closes_path": "/v1/chat/completions"}, False),
        ({"gateway_closes_path": "/tokenize"}, True),
        ({"gateway_refuses_field": "chat_template"}, False),
    ):
        assert evaluate(scene, fleet, PredicateKeys.model_validate(keys)).holds is holds


def test_a_plan_and_the_status_name_the_other_boxes(box: OperatorFolder) -> None:
    rigs = load_rigs(box, one=front_entry(), two=lender_entry())
    one, two = rigs["one"], rigs["two"]
    lines = describe_access(one.instances, one.gateway)
    assert "m is also served by two/chat at 192.0.2.8:8555; TLS with certificates on both sides" in lines
    assert describe_access(two.instances, two.gateway) == [
        "fleet, 192.0.2.8:8555: gateways of one, with a certificate, may use chat; TLS"
    ]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (
            {"one": front_entry("two/chta"), "two": lender_entry()},
            'one.gateway.models.m.instances: two/chta: there is no instance of two "chta"; did you mean "chat"?',
        ),
        (
            {"one": front_entry("tow/chat"), "two": lender_entry()},
            'one.gateway.models.m.instances: tow/chat: there is no box "tow"; did you mean "two"?',
        ),
        (
            {"one": front_entry(), "two": lender_entry() | {"fleet": None}},
            "one.gateway.models.m.instances: two/chat: no gateway of another box can reach two: add "
            '"fleet": {"address": "192.0.2.8"} with its address to two',
        ),
        (
            {
                "one": front_entry(),
                "two": lender_entry()
                | {
                    "instances": chat_instances(start="on-demand"),
                    "gateway": {"listeners": {"lan": {"address": "192.0.2.8", "port": 8443}}},
                },
            },
            "one.gateway.models.m.instances: two/chat starts on demand, and only the gateway of its own box wakes it",
        ),
        (
            {"one": front_entry("one/chat"), "two": lender_entry()},
            'one.gateway.models.m.instances: one/chat is an instance of this box itself: name it "chat"',
        ),
        (
            {
                "one": front_entry(),
                "two": lender_entry() | {"instances": OTHER_VARIANT},
            },
            "one.gateway.models.m.instances: they are of llamacpp/cpu and llamacpp/two: only instances of one variant "
            "can share a name",
        ),
        (
            {"one": front_entry("two//chat"), "two": lender_entry()},
            "one.gateway.models.m.instances[0]: 'two//chat' is refused: must be the name of an instance, or BOX/NAME",
        ),
        (
            {"one": front_entry(), "two": lender_entry() | {"fleet": FLEET | {"address": "0.0.0.0"}}},
            "two.fleet.address: ",
        ),
        (
            {"one": front_entry(), "two": lender_entry() | {"fleet": FLEET | {"address": "127.0.0.1"}}},
            "an IP address of the host that other boxes reach, not of the loopback interface",
        ),
        (
            {"one": front_entry(), "two": lender_entry() | {"fleet": FLEET | {"port": 8020}}},
            "two.fleet.port: 8020 is the port of instance chat: choose another",
        ),
        (
            {"one": front_entry(), "two": lender_entry(ssh_port=8555)},
            "two.fleet.port: 8555 is the SSH port of the rig (ssh_port): choose another",
        ),
        (
            {"one": front_entry(fleet={"address": "192.0.2.7", "port": 8000}), "two": lender_entry()},
            "one.gateway.listeners.lan.port: 8000 is the port for gateways of other boxes: choose another",
        ),
    ],
)
def test_what_cannot_be_is_refused(box: OperatorFolder, entries: dict[str, Any], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        box.load_group(entries)
    assert said in str(ended.value.code)
    assert len(str(ended.value.code).splitlines()) == 1


def test_all_references_that_cannot_be_are_named_at_once(box: OperatorFolder) -> None:
    front = front_entry("chat", "two/chat", "two/chta", "tow/code", "two/code")
    chat, gateway = {"variant": "llamacpp/cpu"}, {"listeners": {"lan": {"address": "192.0.2.8", "port": 8443}}}
    asleep = {name: {**chat, "port": 8020 + at, "start": "on-demand"} for at, name in enumerate(("chat", "code"))}

    def lines(**instances: object) -> list[str]:
        lender = lender_entry() | {"instances": instances, "gateway": gateway}
        with pytest.raises(SystemExit) as ended:
            box.load_group({"one": front, "two": lender})
        return [one.partition("one.gateway.models.m.instances: ")[2] for one in str(ended.value.code).splitlines()]

    wakes = "starts on demand, and only the gateway of its own box wakes it: "
    assert lines(**asleep, draft={**chat, "port": 8022}) == [
        'tow/code: there is no box "tow"; did you mean "two"?; allowed: two',
        f'two/chat {wakes}name two/draft here, or give chat of two "start": "boot"',
        'two/chta: there is no instance of two "chta"; did you mean "chat"?; allowed: chat, code, draft',
        f'two/code {wakes}name two/draft here, or give code of two "start": "boot"',
    ]
    assert f'two/code {wakes}give code of two "start": "boot"' in lines(**asleep)
    # as far as the entry of a box declares it, also if the box is refused for another reason
    assert [one for one in lines(chat={**chat, "prot": 8020, "start": "on-demand"}) if one] == [
        'tow/code: there is no box "tow"; did you mean "two"?; allowed: two',
        f'two/chat {wakes}give chat of two "start": "boot"',
    ]
    front["prot"] = 1
    found = [one for one in lines(**asleep) if one]
    assert [one.partition(" ")[0] for one in found] == ["tow/code:", "two/chat", "two/chta:", "two/code"]


@pytest.mark.parametrize(
    "gateway", [None, 5, {"models": 5}, {"models": {"m": 5}}, {"models": {"m": {"instances": [5, "a/b/c", "two"]}}}]
)
def test_a_gateway_that_is_none_adds_no_problem_of_references(box: OperatorFolder, gateway: object) -> None:
    with pytest.raises(SystemExit) as ended:
        box.load_group(
            {"one": front_entry() | {"gateway": gateway, "prot": 1}, "two": lender_entry() | {"instances": 5}}
        )
    assert "there is no" not in str(ended.value.code)
    assert "one.prot: unknown key" in str(ended.value.code)


def test_a_switch_to_another_variant_is_refused_where_a_name_is_shared(box: OperatorFolder) -> None:
    data = dict(box.load_group({"one": front_entry(), "two": lender_entry()}))["one"]["rig"]
    switched: Any = json.loads(json.dumps(data))
    switched["entry"]["instances"] = OTHER_VARIANT
    with pytest.raises(Invalid, match="only instances of one variant can share a name"):
        load_rig(switched)
    lender = dict(box.load_group({"one": front_entry(), "two": lender_entry()}))["two"]["rig"]
    other: Any = json.loads(json.dumps(lender))
    other["entry"]["instances"] = OTHER_VARIANT
    with pytest.raises(Invalid, match=r"two\.instances\.chat\.variant: gateways of one use it as llamacpp/cpu: change"):
        load_rig(other)
    switched["fleet"] = {"remote": "two"}
    with pytest.raises(Invalid, match=r"was not made by rigwright\.inventory\.hosts"):
        load_rig(switched)


def test_names_of_certificates_fit_and_none_is_of_two_sides() -> None:
    longest = "a" * 48
    for name in (front_certificate_name(longest), lender_certificate_name(longest)):
        assert len(name) <= 64
        assert name.endswith(f".{DOMAIN}")
    from cryptography import x509

    ours, now = temporary_authority(certificate_now()), certificate_now()
    usages = []
    for is_client in (True, False):
        pair = ours.issue((front_certificate_name("one"),), now, is_client=is_client)
        found = x509.load_pem_x509_certificate(pair.certificates.encode())
        assert found.subject.rfc4514_string() == f"CN={front_certificate_name('one')}"
        usages.append({*found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value})
    assert not usages[0] & usages[1]


def test_the_status_names_the_port_and_the_other_boxes(box: OperatorFolder) -> None:
    rigs = load_rigs(box, one=front_entry(), two=lender_entry())

    found: Any = SimpleNamespace(processes={})
    assert _gateway_state(rigs["one"].gateway, found) == "not there, on 0.0.0.0:8000, with two/chat"
    assert _gateway_state(rigs["two"].gateway, found) == "not there, on 192.0.2.8:8555"


def test_a_rollout_counts_instances_that_other_boxes_use_by_the_names_of_their_clients(box: OperatorFolder) -> None:
    rigs = load_rigs(box, one=front_entry(), two=lender_entry())
    assert [list_models(rigs[name].instances, rigs[name].gateway) for name in ("one", "two")] == [
        {"m": ("chat",)},
        {"m": ("chat",)},
    ]
    # a deploy that stops nothing takes the instances of a lender from rotation, and those of no other box
    assert [find_interrupted(rigs[name], (), "deploy") for name in ("one", "two")] == [set(), {"chat"}]
    assert find_interrupted(rigs["one"], ["rigwright-chat.service"], "deploy") == {"chat"}
    assert find_interrupted(rigs["one"], (), "rollback") == {"chat"}
    unused = load_rigs(box, two=lender_entry())["two"]
    assert list_models(unused.instances, unused.gateway) == {unused.instances[0].model_name: ("chat",)}
