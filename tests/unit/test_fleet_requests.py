"""Requests over boxes in nginx's Lua: the choice of an instance, refusals and retries."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.unit.nginx_lua import NginxLua


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
