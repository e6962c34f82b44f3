"""One address over several boxes: keys of the inventory, settings of each box, and access between boxes."""

import json
import socket
from pathlib import Path
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
from tests.unit.nginx_lua import NginxLua
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


@pytest.fixture
def lua() -> NginxLua:
    return NginxLua()


def test_another_box_without_an_answer_is_left_alone_and_another_instance_is_asked(lua: Any) -> None:
    lua.ngx.var.connection, lua.ngx.var.upstream_connect_time = "1", "0.000 : 0.001"
    request = lua.require("requests").begin()
    request.model, request.instance, request.seat, request.sticky = "tiny", "two/chat", "two/chat", ""
    settings = lua.require("settings")
    settings.models = lua.table({"tiny": lua.table({"instances": lua.table([])})})
    settings.remote = lua.table({"two/chat": lua.table({"url": "https://fleet-two/chat"})})
    settings.out = "/nowhere"
    lua.ngx.var.upstream_status = "200 : 504"
    lua.require("gateway").again()
    # it has had the request for all of its time: another one would have it as long
    assert "was not sent to another" in json.loads(lua.ngx.printed)["error"]["message"]
    assert not lua.require("counts").leaving("two/chat")
    lua.ngx.var.upstream_status = "200 : 502"
    lua.require("gateway").again()
    message = json.loads(lua.ngx.printed)["error"]["message"]
    assert "was not sent to another" not in message
    assert lua.require("counts").leaving("two/chat")
    assert not lua.require("instances").is_ready("two/chat")


def test_each_box_that_gives_no_answer_is_left_alone_and_a_request_has_five_tries(lua: Any) -> None:
    var = lua.ngx.var
    var.connection, var.upstream_connect_time, var.upstream_status = "1", "-", "502"
    names = [f"{box}/chat" for box in ("two", "three", "four", "five", "six", "seven")]
    settings = lua.require("settings")
    model = {"instances": lua.table(names), "engine_name": lua.table({})}
    settings.models = lua.table({"tiny": lua.table(model)})
    settings.remote = lua.table({name: lua.table({"url": name, "certificate": name}) for name in names})
    settings.out = "/nowhere"
    request = lua.require("requests").begin()
    request.model, request.instance, request.seat, request.sticky = "tiny", "two/chat", "two/chat", ""
    request.tried["two/chat"] = True
    for tried in (2, 3, 4, 5):
        lua.require("gateway").again()
        assert lua.ngx.printed is None
        assert len(list(request.tried)) == tried
    lua.require("gateway").again()
    assert "no instance of this model answers now" in lua.ngx.printed
    left = [name for name in names if lua.require("counts").leaving(name)]
    assert sorted(left) == sorted(request.tried) and len(left) == 5


UNDECLARED = "this gateway is not declared to use instances of this box"
UNUSED = "no gateway uses this here"
CHAT = "POST /chat/v1/chat/completions HTTP/1.1"


def lend(lua: NginxLua, front: str, request_line: str = CHAT) -> None:
    """Have the port of a box judge a request of a gateway."""
    var, settings = lua.ngx.var, lua.require("settings")
    var.rw_front, var.request = front, request_line
    settings.lent = lua.table({"chat": lua.table({"one": True}), "embed": lua.table({"three": True})})
    settings.fronts = lua.table({"one": 3})
    settings.links, settings.out, settings.engine_keys = "/nowhere", "/nowhere", lua.table({})
    lua.require("paths").init(lua.table(["chat/completions"]))
    lua.ngx.req = lua.table({"is_internal": lambda: False, "clear_header": lambda _: None})
    lua.ngx.exec, lua.ngx.exited = (lambda _: None), None
    lua.require("fleet").check()


@pytest.mark.parametrize(
    ("front", "request_line", "reason"),
    [
        ("", CHAT, UNDECLARED),
        ("one", "POST /other/v1/chat/completions HTTP/1.1", UNUSED),
        ("one", "GET /chat/v1/chat/completions HTTP/1.1", UNUSED),
        ("one", "POST /chat/v1/tokenize HTTP/1.1", UNUSED),
        ("one", "POST /chat/v1/chat/completions?a HTTP/1.1", UNUSED),
        ("one", "POST /chat/../x/v1/chat/completions HTTP/1.1", UNUSED),
        ("one", CHAT, "the instance is not ready"),
        # a gateway of the fleet, but of no model of this instance
        ("three", CHAT, UNUSED),
    ],
)
def test_the_port_of_a_fleet_has_lent_instances_alone(lua: Any, front: str, request_line: str, reason: str) -> None:
    lua.ngx.var.connection = "1"
    lend(lua, front, request_line)
    # the connection is closed without an answer: the other gateway asks elsewhere, and no probe finds an instance here
    assert (lua.ngx.exited, lua.ngx.printed) == (444, None)
    assert lua.require("requests").current().refusal == reason


@pytest.mark.parametrize(
    ("verified", "reason"),
    [
        ("FAILED:certificate has expired", "client certificate: FAILED:certificate has expired"),
        ("NONE", "client certificate: NONE"),
        ("SUCCESS", "not HTTP with TLS"),
        (None, "not HTTP with TLS"),
    ],
)
def test_a_client_that_nginx_refuses_gets_no_answer_either(lua: Any, verified: str | None, reason: str) -> None:
    lua.ngx.var.connection, lua.ngx.var.ssl_client_verify = "1", verified
    lua.require("fleet").stranger()
    assert (lua.ngx.exited, lua.ngx.printed) == (444, None)
    assert lua.require("requests").finish().refusal == reason


def test_a_gateway_has_a_bound_of_requests_at_another_box(lua: Any) -> None:
    lua.require("instances").standing = lambda _: "in"
    exits = []
    for number in range(4):
        lua.ngx.var.connection = str(number)
        lend(lua, "one")
        exits.append(lua.ngx.exited)
    assert exits == [None, None, None, 444]
    assert lua.require("requests").current().refusal == "too many requests of this gateway are under way"
    counts, requests = lua.require("counts"), lua.require("requests")
    for number in (0, 3):
        lua.ngx.var.connection = str(number)
        counts.give(requests.finish())
    lua.ngx.var.connection = "5"
    lend(lua, "one")
    assert lua.ngx.exited is None


@pytest.mark.parametrize(
    ("times", "statuses", "leaving", "closes"),
    [
        ("-", "502", False, True),
        ("0.001", "502", True, True),
        # it has ended with the request; its link is gone by then
        ("0.001", "502", False, False),
        # it has had the request for all of its time
        ("0.001", "504", True, False),
        ("-", "504", False, True),
    ],
)
def test_the_end_of_an_instance_is_an_answer_and_its_stop_is_none(
    lua: Any, times: str, statuses: str, leaving: bool, closes: bool
) -> None:
    var = lua.ngx.var
    var.connection, var.upstream_connect_time, var.upstream_status = "1", times, statuses
    settings = lua.require("settings")
    settings.links, settings.out = "/nowhere", "/nowhere"
    request = lua.require("requests").begin()
    request.instance, request.seat = "chat", "chat"
    if leaving:
        lua.require("counts").leave("chat")
    lua.require("fleet").unanswered()
    assert lua.ngx.printed is None if closes else "was not sent to another" in lua.ngx.printed
    assert (lua.ngx.exited == 444) is closes


@pytest.mark.parametrize(
    ("file", "last", "taken"),
    [("", "", True), ("chat.last", "", False), ("chat.last", "1", True), ("chat", "1", False), ("chat", "", False)],
)
def test_a_lender_refuses_an_instance_that_is_out_unless_there_is_no_other(
    lua: Any, tmp_path: Path, file: str, last: str, taken: bool
) -> None:
    lua.ngx.var.connection, lua.ngx.var.rw_front = "1", "one"
    lua.ngx.var.request = "POST /chat/v1/chat/completions HTTP/1.1"
    settings = lua.require("settings")
    settings.lent, settings.engine_keys = lua.table({"chat": lua.table({"one": True})}), lua.table({})
    settings.fronts = lua.table({"one": 3})
    for name in ("links", "out", "rotation"):
        (tmp_path / name).mkdir()
        settings[name] = str(tmp_path / name)
    if file:
        (tmp_path / "rotation" / file).touch()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "chat.sock"))
        (tmp_path / "links/chat").symlink_to(tmp_path / "chat.sock")
        lua.require("paths").init(lua.table(["chat/completions"]))
        headers = {"x-rw-last": last} if last else {}
        passed_on: list[str] = []
        lua.ngx.req = lua.table(
            {
                "is_internal": lambda: False,
                "get_headers": lambda: lua.table(headers),
                "clear_header": lambda name: None,
            }
        )
        lua.ngx.exec = passed_on.append
        lua.require("fleet").check()
    assert passed_on == (["@lent"] if taken else [])
    assert lua.ngx.exited == (None if taken else 444)


class Front:
    """The Lua of a gateway with a request that an instance has not answered."""

    def __init__(self, lua: Any, folder: Path, *names: str) -> None:
        self.lua, settings = lua, lua.require("settings")
        self.model = lua.table({"instances": lua.table(names), "engine_name": lua.table({})})
        settings.models = lua.table({"tiny": self.model})
        settings.remote = lua.table({name: self.remote(name) for name in names})
        settings.engine_keys, settings.out = lua.table({}), str(folder)
        lua.ngx.var.connection = "1"
        self.begin(names[0])

    def remote(self, name: str) -> Any:
        return self.lua.table({"url": f"https://fleet-{name}", "certificate": name.partition("/")[0]})

    def begin(self, name: str) -> None:
        """Have another request sent to an instance."""
        self.request = self.lua.require("requests").begin()
        self.request.model, self.request.sticky = "tiny", ""
        self.request.instance, self.request.seat, self.lua.ngx.var.rw_last = name, name, ""
        self.request.tried = self.lua.table({name: True})

    def go_on(self, connect_time: str = "0.001") -> tuple[str | None, str]:
        """The instance that the request is sent to next, and the remark; a connection ended without an answer."""
        self.lua.ngx.var.upstream_connect_time = connect_time
        self.lua.require("gateway").again()
        return self.request.instance, self.lua.ngx.var.rw_last


def test_a_front_asks_a_box_that_has_refused_it_again_where_there_is_no_other(lua: Any, tmp_path: Path) -> None:
    front = Front(lua, tmp_path, "two/chat")
    assert front.go_on() == ("two/chat", "1")
    # the next one goes there with the remark at once, until the box is asked anew
    assert tuple(lua.require("instances").choose(front.model, "", lua.table({}))) == ("two/chat", True)
    # one that was not reached is not asked again
    lua.require("counts").stay("two/chat")
    lua.ngx.shared.rigwright.delete(lua.ngx.shared.rigwright, "refused two/chat")
    front.begin("two/chat")
    assert front.go_on("-")[0] is None
    assert "no instance" in json.loads(lua.ngx.printed)["error"]["message"]


def test_a_refusal_of_the_last_instance_is_final(lua: Any, tmp_path: Path) -> None:
    front = Front(lua, tmp_path, "two/chat")
    assert front.go_on() == ("two/chat", "1")
    assert front.go_on()[0] is None
    assert "no instance" in json.loads(lua.ngx.printed)["error"]["message"]


def test_a_second_instance_in_rotation_is_not_asked_as_the_last_one(lua: Any, tmp_path: Path) -> None:
    front = Front(lua, tmp_path, "two/chat", "three/chat")
    assert front.go_on() == ("three/chat", "")
    # all have refused: now each is the last one
    asked = [front.go_on(), front.go_on()]
    assert sorted(asked) == [("three/chat", "1"), ("two/chat", "1")]
    assert front.go_on()[0] is None
    assert not front.request.refused


def test_a_box_that_a_rollout_has_taken_out_of_rotation_answers_no_other_gateway(lua: Any, tmp_path: Path) -> None:
    lua.ngx.var.connection, lua.ngx.var.rw_front = "1", "one"
    lua.ngx.var.request = "POST /chat/v1/chat/completions HTTP/1.1"
    settings, out = lua.require("settings"), tmp_path / "out"
    settings.lent, settings.fronts = lua.table({"chat": lua.table({"one": True})}), lua.table({"one": 3})
    settings.links, settings.out, settings.box_out, settings.engine_keys = (
        "/nowhere",
        "/nowhere",
        str(out),
        lua.table({}),
    )
    lua.require("paths").init(lua.table(["chat/completions"]))
    lua.require("instances").standing = lambda name: "in"
    lua.ngx.req = lua.table({"is_internal": lambda: False, "clear_header": lambda name: None})
    lua.ngx.exec = lambda place: setattr(lua.ngx, "sent_to", place)
    lua.require("fleet").check()
    assert (lua.ngx.exited, lua.ngx.sent_to) == (None, "@lent")
    # a drain waits until these are over
    assert lua.require("counts").get("lent") == 1
    out.touch()
    lua.require("fleet").check()
    assert lua.ngx.exited == 444
    assert lua.require("counts").get("lent") == 1


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
