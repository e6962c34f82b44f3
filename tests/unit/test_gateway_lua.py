"""Decisions of the gateway's Lua: the headers that pass, clients by address, the pace of bodies, bounds."""

import ipaddress
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.nginx_lua import NginxLua

OPAQUE = "application/octet-stream"


@pytest.fixture
def lua() -> NginxLua:
    return NginxLua()


@pytest.mark.parametrize(
    ("sent", "passed"),
    [
        ("text/html", OPAQUE),
        ("TEXT/HTML; charset=utf-8", OPAQUE),
        (" text/html", OPAQUE),
        ("application/xhtml+xml", OPAQUE),
        ("image/svg+xml", OPAQUE),
        ("text/javascript", OPAQUE),
        ("application/json, text/html", OPAQUE),
        ("", OPAQUE),
        ("application/json;text/html", "application/json"),
        ("application/json; charset=utf-7", "application/json"),
        ("Application/JSON; charset=UTF-8", "application/json; charset=utf-8"),
        ("text/event-stream;charset=utf-8", "text/event-stream; charset=utf-8"),
        ("text/plain; version=0.0.4", "text/plain; version=0.0.4"),
    ],
)
def test_an_engines_answer_is_never_a_page(lua: NginxLua, sent: str, passed: str) -> None:
    status, headers = lua.filter_answer(200, {}, engine=sent)
    assert (status, headers["content-type"], headers["x-content-type-options"]) == (200, passed, "nosniff")


def test_of_an_engines_headers_those_alone_pass_that_clients_need(lua: NginxLua) -> None:
    needed = {"Content-Length": "2", "X-Request-Id": "1", "Retry-After": "3", "Cache-Control": "no-cache"}
    others = {"Server": "engine", "Set-Cookie": "a=b", "Access-Control-Allow-Origin": "*", "X-Rw-Key": "00"}
    others |= {
        "Location": "//evil",
        "Refresh": "0",
        "Link": "<x>",
        "Content-Security-Policy": "",
        "X-Accel-Redirect": "/",
    }
    others |= {"WWW-Authenticate": "Basic realm=a", "Upgrade": "a", "Clear-Site-Data": "*"}
    _, headers = lua.filter_answer(200, needed | others, engine="application/json")
    made = {"content-type": "application/json", "x-content-type-options": "nosniff"}
    assert headers == {name.lower(): value for name, value in needed.items()} | made


@pytest.mark.parametrize(("sent", "passed"), [(100, 502), (199, 502), (200, 200), (503, 503), (599, 599), (600, 502)])
def test_a_status_that_ends_no_answer_is_not_passed_on(lua: NginxLua, sent: int, passed: int) -> None:
    assert lua.filter_answer(sent, {}, engine="application/json")[0] == passed


@pytest.mark.parametrize(("status", "kind"), [(400, "invalid_request_error"), (413, "invalid_request_error")])
def test_a_page_of_nginxs_own_becomes_an_error(lua: NginxLua, status: int, kind: str) -> None:
    lua.ngx.var.connection = "1"
    lua.require("requests").begin()
    passed, headers = lua.filter_answer(status, {"Content-Type": "text/html", "Content-Length": "150"})
    lua.require("answers").page()
    text = lua.ngx.arg[1]
    assert (passed, headers["content-type"], headers["content-length"]) == (status, "application/json", len(text))
    assert json.loads(text)["error"]["type"] == kind
    # nginx's other parts of the page
    lua.require("answers").page()
    assert (lua.ngx.arg[1], lua.ngx.arg[2]) == ("", True)


@pytest.mark.parametrize(
    ("times", "leaving", "repeated"),
    [
        # the router's, and then the instance's
        ("0.000 : -", False, True),
        ("0.000, 0.001 : -", False, True),
        ("0.000 : 0.000", False, False),
        ("- : 0.012", False, False),
        (None, False, False),
        ("0.000 : 0.000", True, True),
    ],
)
def test_a_request_goes_to_another_instance_if_the_first_did_not_get_it(lua, times, leaving, repeated):
    lua.ngx.var.connection, lua.ngx.var.upstream_connect_time = "1", times
    request = lua.require("requests").begin()
    request.model, request.instance, request.seat, request.sticky = "tiny", "one", "one", ""
    lua.require("settings").models = lua.table({"tiny": lua.table({"instances": lua.table([])})})
    if leaving:
        lua.require("counts").set("leaving one", True)
    lua.require("gateway").again()
    message = json.loads(lua.ngx.printed)["error"]["message"]
    assert lua.ngx.status == 503
    assert ("was not sent to another" in message) is not repeated, message


CLIENTS = (
    ("192.0.2.7", "192.0.2.7", True),
    ("192.0.2.7", "192.0.2.8", False),
    ("127.0.0.1", "127.255.255.254", True),
    ("127.0.0.1", "126.0.0.1", False),
    ("127.0.0.1", "::1", True),
    ("127.0.0.1", "::ffff:127.9.9.9", True),
    ("192.0.2.7", "::ffff:192.0.2.7", True),
    ("::ffff:192.0.2.7", "::ffff:192.0.2.8", False),
    ("2001:db8::1", "2001:db8::ffff:1", True),
    ("2001:db8::1", "2001:db8:0:1::1", False),
    ("::1", "::2", False),
)


@pytest.mark.parametrize(("one", "other", "same"), CLIENTS)
def test_which_addresses_are_one_client(lua: NginxLua, one: str, other: str, same: bool) -> None:
    callers = lua.require("callers")
    callers.init()
    first, second = (ipaddress.ip_address(address).packed.decode("latin-1") for address in (one, other))
    assert (callers.client(first) == callers.client(second)) is same
    assert (callers.bucket("", first) == callers.bucket("", second)) or not same


def test_a_key_is_a_caller_from_every_address(lua: NginxLua) -> None:
    callers = lua.require("callers")
    callers.init()
    assert len({callers.bucket("00ff", address) for address in ("\x0a\0\0\x01", "\x0a\0\0\x02", "\x7f\0\0\x01")}) == 1
    assert len({callers.bucket(f"key{number}", "\x0a\0\0\x01") for number in range(50)}) > 40
    before = [callers.bucket("", f"\x0a\0\0{chr(number)}") for number in range(50)]
    callers.init()
    assert [callers.bucket("", f"\x0a\0\0{chr(number)}") for number in range(50)] != before


@pytest.mark.parametrize(
    ("looks", "slow"),
    [
        # (seconds, bytes that have come by then)
        ([(1, 0), (19, 1)], False),
        ([(21, 1)], True),
        ([(21, 10_000)], False),
        # much at once, and then no more
        ([(1, 60 << 20), (21, 60 << 20), (42, 60 << 20)], True),
        ([(at, at * 600) for at in range(1, 500)], False),
        ([(at, at * 400) for at in range(1, 30)], True),
        ([(at, at * 100_000) for at in range(1, 602)], True),
    ],
)
def test_a_body_must_go_on(lua: NginxLua, looks: Sequence[tuple[int, int]], slow: bool) -> None:
    rate = lua.require("rate")
    state = rate.begin(1000)
    assert any(rate.is_slow(state, 1000 + seconds, came) for seconds, came in looks) is slow


MIB = 1 << 20


@pytest.mark.parametrize(
    ("all_bodies", "mine", "came", "status"),
    [
        (0, 0, 0, None),
        (384 * MIB, 128 * MIB, 64 * MIB, None),
        (1, 1, 64 * MIB + 1, 413),
        (129 * MIB, 128 * MIB + 1, MIB, 429),
        (384 * MIB + 1, MIB, MIB, 503),
    ],
)
def test_bodies_have_bounds(lua: NginxLua, all_bodies: int, mine: int, came: int, status: int | None) -> None:
    found = lua.require("upload").problem(all_bodies, mine, came)
    assert (found[0] if found else None) == status


def test_a_request_holds_what_has_come_and_gives_it_back(lua: NginxLua) -> None:
    counts = lua.require("counts")
    lua.ngx.var.connection = "1"
    first = lua.require("requests").begin()
    lua.ngx.var.connection = "2"
    second = lua.require("requests").begin()
    assert [counts.hold(first, "bodies", number) for number in (5, 9, 7)] == [5, 9, 7]
    assert counts.hold(second, "bodies", 10) == 17
    counts.give(first)
    assert counts.get("bodies") == 10
    counts.give(second, "bodies")
    counts.give(second)
    assert counts.get("bodies") == 0


def test_buffers_of_small_bodies_have_a_bound_of_their_own_and_each_caller_a_share(lua: NginxLua) -> None:
    upload, counts, mib = lua.require("upload"), lua.require("counts"), 1 << 20

    def request(number: int) -> Any:
        lua.ngx.var.connection = str(number)
        return lua.require("requests").begin()

    # as many as one caller may have, then those of three callers and one byte more
    held = [request(number) for number in range(192 * 16)]
    assert {upload.hold(one, 1, 64 << 10) for one in held[:1024]} == {None}
    over, other = request(9998), request(9999)
    assert upload.hold(over, 1, 1)[0] == 429
    assert upload.hold(other, 2, 64 << 10) is None
    counts.give(over)
    counts.give(other)
    assert {upload.hold(one, 2 + number % 2, 64 << 10) for number, one in enumerate(held[1024:])} == {None}
    assert upload.hold(request(9999), 4, 1)[0] == 503
    counts.give(held[0])
    assert upload.hold(request(9999), 4, 1) is None
    # of a large body the buffer counts, and all of it as a body
    for one in held[1:]:
        counts.give(one)
    assert upload.hold(held[1], 1, 10 * mib) is None
    assert (counts.get("buffers"), counts.get("bodies")) == ((64 << 10) + 2, 10 * mib)


def test_metrics_are_refused_without_a_line_of_nginxs(lua: NginxLua) -> None:
    lua.ngx.var.rw_scraper = ""
    lua.require("telling").scrape()
    assert (lua.ngx.status, json.loads(lua.ngx.printed)["error"]["type"]) == (403, "permission_error")


@pytest.mark.parametrize(
    ("clients", "serving", "limit", "closed"),
    [
        ("aaaa", "", 4, ""),
        ("aaaaa", "", 4, "0"),
        ("abaaba", "", 2, "02"),
        # a connection that serves a request goes on, and the client's others are closed in its place
        ("aaaa", "01", 2, "23"),
        ("aaaa", "0123", 2, ""),
        ("abbb", "1", 1, "23"),
    ],
)
def test_a_client_with_too_many_connections_loses_those_that_wait(lua, clients, serving, limit, closed):
    peers = lua.table([lua.table({"client": one, "file": str(at)}) for at, one in enumerate(clients)])
    found = lua.require("connections").excess(peers, lambda one: one.file in serving, limit)
    assert "".join(found.values()) == closed


def test_requests_under_way_are_counted_by_client(lua: NginxLua) -> None:
    requests, connections = lua.require("requests"), lua.require("connections")
    connections.init(8)
    client = "\x0a\0\0\x01"
    for number in range(3):
        lua.ngx.var.connection, lua.ngx.var.remote_port = str(number), str(1000 + number)
        requests.begin()
        assert (requests.of(client), connections.is_over(client)) == (number + 1, number == 2)
    assert requests.is_open(client, 1001) and not requests.is_open(client, 1003)
    requests.finish()
    requests.finish()
    assert (requests.of(client), connections.is_over(client), requests.is_open(client, 1002)) == (2, False, False)
