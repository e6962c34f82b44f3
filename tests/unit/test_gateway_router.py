"""The answers of the gateway's router: a real one, asked over its sockets as nginx asks."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.gateway_router import (
    ALICE,
    BOB,
    CHAT,
    SLOW,
    RouterFixture,
    bearer_header,
    key_entry,
    model_entry,
    router_settings,
)
from tests.unit.polling import wait_until


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterFixture]:
    """One router for all tests that change nothing of it."""
    settings = router_settings(
        listeners={
            "lan": {"keys": False, "models": None},
            "small": {"keys": False, "models": ["embed"]},
            "wan": {"keys": True, "models": None},
        },
        models={
            "qwen3": model_entry("chat", "chat2"),
            "embed": model_entry("embed", paths=["embeddings"]),
            "talk": model_entry("talk", sticky="conversation"),
            "session": model_entry("session", sticky="header:x-session-id"),
        },
        aliases={"gpt-4o": "qwen3", "Qwen3-Ünïcode.gguf": "qwen3"},
    )
    bob = key_entry(BOB, "bob", models=["embed", "gpt-4o"], streams=2)
    keys = [key_entry(ALICE, "alice"), bob, key_entry(SLOW, "slow", requests_per_minute=2)]
    keys += [key_entry("meek", "meek", evict=False), key_entry("still", "still", wake=False)]
    with RouterFixture(tmp_path_factory.mktemp("router"), settings, keys).running() as made:
        yield made


def identity(world: RouterFixture, clear: str) -> dict[str, Any]:
    """nginx's headers for a caller with a key."""
    return {
        "listener": "wan",
        "X-Rw-Key": world.ask("/auth", listener="wan", **bearer_header(clear)).headers["x-rw-key"],
    }


def test_a_key_is_known_by_its_hash(world: RouterFixture) -> None:
    said = world.ask("/auth", listener="wan", **bearer_header(BOB))
    entry = world.keys[1]
    assert said.status == 204
    assert [said.headers[f"x-rw-{name}"] for name in ("key", "name", "streams")] == [entry["id"], "bob", "2"]
    assert world.ask("/auth", listener="wan", Authorization=f"bearer  {ALICE}").headers["x-rw-streams"] == ""


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", f"Bearer {ALICE}x", f"Basic {ALICE}", ALICE, f"Bearer {ALICE} x", "Bearer é"],
)
def test_any_other_key_is_refused(world: RouterFixture, authorization: str) -> None:
    sent: dict[str, Any] = {"Authorization": authorization} if authorization else {}
    said = world.ask("/auth", listener="wan", **sent)
    assert (said.status, said.headers["x-rw-refusal"]) == (401, "key")


@pytest.mark.parametrize("header", [f"Authorization: Bearer {ALICE}", f"X-Api-Key: {ALICE}"])
def test_a_key_that_came_twice_is_refused(world: RouterFixture, header: str) -> None:
    sent = "GET /auth HTTP/1.0\r\nX-Rw-Listener: wan\r\n" + f"{header}\r\n" * 2 + "\r\n"
    assert raw(world, sent.encode()).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"X-Api-Key": ALICE}, "alice"),
        ({"X-Api-Key": ALICE + "x"}, ""),
        ({"X-Api-Key": ""}, ""),
        ({"X-Api-Key": f"Bearer {ALICE}"}, ""),
        # one for elsewhere
        ({"X-Api-Key": "sk-ant-1", **bearer_header(BOB)}, "bob"),
        ({"X-Api-Key": ALICE, **bearer_header("wrong")}, ""),
    ],
)
def test_anthropics_clients_send_a_key_in_a_header_of_their_own(world, headers, name):
    said = world.ask("/auth", listener="wan", **headers)
    assert (said.status, said.headers.get("x-rw-name", "")) == (204 if name else 401, name)


@pytest.mark.parametrize("headers", [{}, bearer_header(""), bearer_header("wrong"), bearer_header(ALICE)])
def test_a_keyless_listener_ignores_keys(world: RouterFixture, headers: dict[str, Any]) -> None:
    said = world.ask("/auth", **headers)
    assert said.status == 204
    assert {said.headers[f"x-rw-{name}"] for name in ("key", "name", "streams")} == {""}


@pytest.mark.parametrize(("clear", "right"), [(ALICE, "evict"), ("meek", "wake"), ("still", "none")])
def test_a_key_has_its_right_to_models_on_demand(world: RouterFixture, clear: str, right: str) -> None:
    assert world.ask("/auth", listener="wan", **bearer_header(clear)).headers["x-rw-wake"] == right


def test_a_minute_has_so_many_requests(world: RouterFixture) -> None:
    said = [world.ask("/auth", listener="wan", **bearer_header(SLOW)) for _ in range(3)]
    assert [one.status for one in said] == [204, 204, 403]
    assert said[2].headers["x-rw-refusal"] == "rate"
    assert 25 <= int(said[2].headers["x-rw-retry"]) <= 30


def test_an_unknown_listener_refuses_all_clients(world: RouterFixture) -> None:
    assert world.ask("/auth", listener="other").status == 500
    assert world.route({"model": "qwen3"}, listener="other").error["type"] == "server_error"


@pytest.mark.parametrize("to", ["light", "heavy"])
def test_a_request_goes_where_its_model_is(world: RouterFixture, to: str) -> None:
    said = world.route(b'{"stream": true, "model": "gpt-4o"}', to=to)
    assert (said.status, said.body) == (204, b"")
    assert {name: value for name, value in said.headers.items() if name.startswith("x-")} == {
        "x-accel-redirect": "@serve",
        "x-rw-group": "qwen3",
        "x-rw-asked": "gpt-4o",
        "x-rw-model": '"gpt-4o"',
        "x-rw-span": "26-34",
        "x-rw-salt": "",
        "x-rw-sticky": "",
        "x-rw-stream": "1",
    }


def test_a_name_that_is_not_ascii_is_in_no_header_as_it_came(world: RouterFixture) -> None:
    said = world.route('{"model":"Qwen3-Ünïcode.gguf"}'.encode())
    assert said.headers["x-rw-asked"] == "Qwen3-?n?code.gguf"
    assert said.headers["x-rw-model"] == r'"Qwen3-\u00dcn\u00efcode.gguf"'
    assert said.headers["x-rw-span"] == "9-31"


def test_an_unknown_model_names_those_that_there_are_for_the_caller(world: RouterFixture) -> None:
    for asked in ("gpt-5", "", "Qwen3", "é\u2028😀", "../qwen3"):
        said = world.route({"model": asked})
        assert said.status == 404 and said.body.isascii()
        assert (said.error["code"], said.error["param"]) == ("model_not_found", "model")
        assert "qwen3, embed, talk, session" in said.error["message"]
    # without the right to it, a client learns no more than of one that is not there
    for asked in ("talk", "nothing"):
        said = world.route({"model": asked}, **identity(world, BOB))
        assert said.error["message"] == f"there is no model '{asked}' here; you may use: qwen3, embed"


def test_rights_are_a_keys_and_a_listeners(world: RouterFixture) -> None:
    assert world.route({"model": "gpt-4o"}, **identity(world, BOB)).status == 204
    assert world.route({"model": "qwen3"}, **identity(world, BOB)).status == 204
    assert world.route({"model": "session"}, **identity(world, BOB)).status == 404
    assert world.route({"model": "qwen3"}, listener="small").status == 404
    assert world.route({"model": "qwen3"}, listener="wan").error["code"] == "invalid_api_key"
    assert world.route({"model": "qwen3"}, listener="wan", **{"X-Rw-Key": "0" * 16}).status == 401


def test_a_path_that_an_engine_has_not_is_not_found(world: RouterFixture) -> None:
    said = world.route({"model": "embed"})
    assert (said.status, said.error["code"]) == (404, "path_not_found")
    assert said.error["message"] == "embed does not serve /v1/chat/completions; it has /v1/embeddings"
    assert world.route({"model": "embed"}, path="embeddings").status == 204
    for path in ("", "../slots", "Chat/Completions", "chat/completions/", "x" * 500):
        assert world.route({"model": "qwen3"}, path=path).status == 404


def test_models_are_those_of_the_caller(world: RouterFixture) -> None:
    def listed(**asked: Any) -> list[tuple[str, str]]:
        return [(one["id"], one["root"]) for one in world.ask("/models", **asked).json["data"]]

    names = [("qwen3", "qwen3"), ("gpt-4o", "qwen3"), ("Qwen3-Ünïcode.gguf", "qwen3"), ("embed", "embed")]
    assert listed() == [*names, ("talk", "talk"), ("session", "session")]
    # a key that names an alias has all names of its model, as requests do
    assert listed(**identity(world, BOB)) == names
    assert listed(listener="small") == names[3:]
    made = {"object": "model", "created": 0, "owned_by": "rigwright", "parent": None}
    assert world.ask("/models").json == {
        "object": "list",
        "data": [
            {"id": one, "root": root} | made for one, root in [*names, *((one, one) for one in ("talk", "session"))]
        ],
    }
    assert world.ask("/models", listener="wan").status == 401
    assert world.ask("/models/gpt-4o").json == {"id": "gpt-4o", "root": "qwen3"} | made
    assert world.ask("/models/gpt-4o", listener="small").status == 404
    assert world.ask("/models/Qwen3-%C3%9Cn%C3%AFcode.gguf?a=b").json["id"] == "Qwen3-Ünïcode.gguf"
    assert world.ask("/models/qwen3", listener="small").error["code"] == "model_not_found"
    assert world.ask(f"/models/{'x' * 4000}").status == 404
    assert world.ask("/models", method="HEAD").headers["content-length"] != "0"


def test_a_conversation_or_a_header_stays_where_it_was(world: RouterFixture) -> None:
    turn = [{"role": "user", "content": "hello"}]
    more = [*turn, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "and?"}]
    found = [world.route({"model": "talk", "messages": one}).headers["x-rw-sticky"] for one in (turn, more, more[1:])]
    assert found[0] == found[1] != found[2] and len(found[0]) == 32
    asked = {"model": "session"}
    said = [world.route(asked, **{"X-Session-Id": one}).headers["x-rw-sticky"] for one in ("1", "1", "2")]
    assert said[0] == said[1] != said[2]
    assert world.route(asked).headers["x-rw-sticky"] == ""


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json"}, 204),
        ({"Content-Type": "application/json; charset=UTF-8"}, 204),
        ({"Content-Type": 'application/json;charset="utf-8"'}, 204),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 204),
        ({"Content-Type": "text/plain"}, 204),
        ({"Content-Encoding": "identity"}, 204),
        ({"Content-Type": "application/json; charset=utf-16"}, 415),
        ({"Content-Type": "Multipart/form-data; boundary=x"}, 415),
        ({"Content-Encoding": "gzip"}, 415),
        ({"Content-Encoding": "identity, br"}, 415),
    ],
)
def test_a_body_is_read_if_its_headers_let_it(world: RouterFixture, headers: dict[str, Any], status: int) -> None:
    said = world.route({"model": "qwen3"}, **headers)
    assert said.status == status
    assert status == 204 or said.error["type"] == "invalid_request_error"


def test_invalid_requests_for_a_model_get_an_error_that_clients_read(world: RouterFixture) -> None:
    for sent in (b"", b"hello", b'{"model":"a","model":"b"}', b"\xff", b'{"model":"a"' + b"," * 100_000):
        assert (said := world.route(sent)).status == 400
        assert said.error["type"] == "invalid_request_error"
    assert world.route({}).error["param"] == "model"
    said = world.ask(f"/route/{CHAT}")
    assert (said.status, said.headers["allow"]) == (405, "POST")
    for path in ("/", "/v1/models", "/auth/", "/route", "//models"):
        assert world.ask(path).error["type"] == "not_found_error"


def raw(world: RouterFixture, sent: bytes, to: str = "light") -> bytes:
    """All that comes back until the router closes."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(60)
        one.connect(str(world.folder / f"{to}.sock"))
        one.sendall(sent)
        one.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: one.recv(1 << 16), b""))


def test_invalid_http_is_answered_and_over(world: RouterFixture) -> None:
    assert raw(world, b"GARBAGE\r\n\r\nGET /health HTTP/1.1\r\n\r\n").count(b"HTTP/1.1 ") == 1
    assert raw(world, b"A" * 70_000).startswith(b"HTTP/1.1 431 ")
    assert raw(world, b"POST /route/x HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n").startswith(b"HTTP/1.1 413 ")
    two = b"GET /models HTTP/1.1\r\nX-Rw-Listener: lan\r\n\r\n" * 2
    assert raw(world, two + b"GET /models HTTP/1.0\r\nX-Rw-Listener: lan\r\n\r\n" + two).count(b"HTTP/1.1 200 OK") == 3


def test_large_bodies_wait_for_each_other_and_are_all_answered(world: RouterFixture) -> None:
    text = json.dumps({"x": "y" * (40 << 20), "model": "qwen3"}).encode()
    head = b"POST /route/%s HTTP/1.1\r\nX-Rw-Listener: lan\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(text))
    waiting = []
    for _ in range(3):
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(60)
        one.connect(str(world.folder / "heavy.sock"))
        one.sendall(head + text[:1000])
        waiting.append(one)
    # two have all the room: of the third no more is read
    third, sent = waiting[2], 1000
    third.settimeout(0.5)
    with pytest.raises(TimeoutError):
        while sent < len(text):
            sent += third.send(text[sent:])
    assert sent < 4 << 20
    third.settimeout(60)
    # until one of them goes away without a word
    waiting[0].close()
    for one, at in ((third, sent), (waiting[1], 1000)):
        one.sendall(text[at:])
        assert one.recv(1 << 16).startswith(b"HTTP/1.1 204 ")
        one.close()
    assert world.route(text, to="heavy").headers["x-rw-span"] == f"{len(text) - 8}-{len(text) - 1}"


def test_nothing_of_a_caller_is_in_the_log(world: RouterFixture) -> None:
    world.route(b'{"model":"secret-prompt"')
    world.ask("/auth", listener="wan", **bearer_header("secret-key"))
    world.ask("/models/secret-name")
    assert "secret" not in world.read_stderr and ALICE not in world.read_stderr


def test_prompts_are_salted_by_key_alone_and_the_same_over_restarts(tmp_path: Path) -> None:
    settings = router_settings(
        listeners={name: {"keys": keys, "models": None} for name, keys in (("lan", False), ("wan", True))},
        models={"kept": model_entry("chat", salted=True), "shared": model_entry("other")},
    )
    made = RouterFixture(tmp_path, settings, [key_entry(ALICE, "alice"), key_entry(BOB, "bob")])

    def salt(name: str, clear: str = "") -> str:
        headers = identity(made, clear) if clear else {"listener": "lan"}
        answer = made.route({"model": name}, **headers)
        assert answer.status == 204
        return answer.headers["x-rw-salt"]

    with made.running():
        alice, bob, keyless = salt("kept", ALICE), salt("kept", BOB), salt("kept")
        assert len({alice, bob, keyless}) == 3 and all(len(one) == 64 for one in (alice, bob, keyless))
        # nothing that a client or the file of keys shows
        shown = json.dumps(made.keys) + ALICE + BOB
        assert not any(one in shown for one in (alice, bob, keyless))
        assert salt("shared", ALICE) == ""
        # a caller of a listener without keys does not become another by a header
        assert (
            made.route({"model": "kept"}, listener="lan", **{"X-Rw-Key": made.keys[0]["id"]}).headers["x-rw-salt"]
            == keyless
        )
        refused = made.route({"model": "kept", "cache_salt": alice}, **identity(made, BOB))
        assert (refused.status, refused.error["param"]) == (400, "cache_salt")
        os.killpg(made.pid, signal.SIGTERM)
        assert made.wait_for_exit() == 0
        made.start()
        wait_until(lambda: made.ask("/state").status == 200)
        assert salt("kept", ALICE) == alice


def test_a_harmful_field_is_named_in_an_error_of_openais_shape(world: RouterFixture) -> None:
    said = world.route({"model": "qwen3", "chat_template": "{{ 1 }}"})
    assert (said.status, said.error["type"], said.error["param"]) == (400, "invalid_request_error", "chat_template")
    assert 'an operator can allow it with gateway.allow_fields = ["chat_template"]' in said.error["message"]
