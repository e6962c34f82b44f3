"""Requests for sleeping models: the lines of the service, the answers that are relayed, and their place in settings."""

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rigwright.gateway.gateway_units import WAKE_SOCKET, WAKE_STATES, render_gateway, router_settings
from rigwright.gateway.served_models import describe_access
from rigwright.model.gateway_schema import WAIT, Gateway
from rigwright.serving.instance_units import OWNED_HEADER
from roles.gateway.host.router import answers
from roles.gateway.host.router.settings import read_settings
from tests.unit.gateway_router import RouterFixture, model_entry
from tests.unit.gateway_router import router_settings as sample_settings
from tests.unit.nginx_lua import NginxLua
from tests.unit.samples import sample_instance, sample_rig

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + "Transfer-Encoding: chunked\r\n\r\n"
BROKEN = "the instance's answer is not HTTP"
SILENT = ": waiting for the service that loads models\n\n"


@pytest.fixture
def lua() -> NginxLua:
    return NginxLua()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("waiting 2 14", ("waiting", 2, 14)),
        ("waiting 0 -", ("waiting", 0, None)),
        ("ready", ("ready",)),
        ("refused failed 30 the unit ended", ("failed", 30, "the unit ended")),
        ("refused memory - 12 GiB are taken", ("memory", None, "12 GiB are taken")),
        ("refused busy 1 " + "a" * 200, ("busy", 1, "a" * 200)),
        ("refused busy 1 " + "a" * 201, None),
        ("refused gone 1 a", None),
        ("refused failed 1.5 a", None),
        ("refused failed 1 a\x1b[0m", None),
        ("waiting 1000000 1", None),
        ("waiting 1 1000000", None),
        ("waiting 0x1 1", None),
        ("waiting 1 1 ", None),
        ("ready\r", None),
        (" ready", None),
        ("", None),
    ],
)
def test_a_line_of_the_service_is_read_whole_or_not_at_all(lua: NginxLua, line: str, found: tuple[Any, ...]) -> None:
    read = lua.require("waking").parse(line)
    assert (read if isinstance(read, tuple) or read is None else (read,)) == found


def test_a_comment_names_what_is_known(lua: NginxLua) -> None:
    comment = lua.require("waking").comment
    assert comment(2, 14) == ": waiting, position 2, about 14 s\n\n"
    assert comment(1, None) == ": waiting, position 1\n\n"


@pytest.mark.parametrize(
    ("listener", "key", "right", "may_wake", "may_evict"),
    [
        ("lan", "", "", True, True),
        ("guests", "", "", True, False),
        ("lan", "0" * 16, "evict", True, True),
        ("lan", "0" * 16, "wake", True, False),
        ("lan", "0" * 16, "none", False, False),
        ("guests", "0" * 16, "evict", True, False),
        # a router of another generation, and a listener of one
        ("lan", "0" * 16, None, True, False),
        ("other", "", "", True, False),
    ],
)
def test_a_right_is_the_listeners_and_the_keys(
    lua: NginxLua, listener: str, key: str, right: str | None, may_wake: bool, may_evict: bool
) -> None:
    lua.require("settings").wake = lua.table({"evict": lua.table({"lan": True, "guests": False})})
    lua.ngx.var.server_name = listener
    request, waking = lua.table({"key": key, "right": right}), lua.require("waking")
    assert (waking.may_wake(request), bool(waking.may_evict(request))) == (may_wake, may_evict)


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_service_may_be_silent_as_long_as_systemd_lets_it_start(lua: NginxLua, is_stream: bool) -> None:
    now, lines = [0.0], ["waiting 1 14\n"]
    sent: list[tuple[float, str]] = []

    def receive(_: Any, most: int) -> Any:
        now[0] += 1
        return lines.pop() if lines else (None, "timeout")

    done = {name: lambda *_: True for name in ("settimeouts", "connect", "send", "close")}
    ngx, settings, waking = lua.ngx, lua.require("settings"), lua.require("waking")
    lua.require("clock").now = lambda: now[0]
    ngx.socket = lua.table({"tcp": lambda: lua.table({**done, "receiveany": receive})})
    ngx.req = lua.table({"http_version": lambda: 1.1})
    ngx.print, ngx.flush = lambda text: sent.append((now[0], text)) or True, lambda _: 1
    ngx.var.rw_path, ngx.var.server_name = "chat/completions", "lan"
    settings.wake = lua.table({"evict": lua.table({}), "socket": "", "wait": 120})
    settings.models = lua.table({"tiny": lua.table({})})
    waking.candidates = lambda _: lua.table(["one"])
    lua.require("instances").number = lambda _: 0
    request = lua.table({"key": "", "model": "tiny", "is_stream": is_stream, "held": lua.table({})})
    waking.wait(request, None)
    assert (request.wake.outcome, 60 < now[0] < 64) == ("silent", True)
    comments = [(at, text) for at, text in sent if text.startswith(": ")]
    assert [text for _, text in comments] == [": waiting, position 1, about 14 s\n\n", *[SILENT] * 6][: 7 * is_stream]
    assert all(later - at <= 11 for (at, _), (later, _) in pairwise(comments))
    assert "does not answer" in sent[-1][1]


@pytest.mark.parametrize(
    ("refused", "lines", "outcome"),
    [
        ({"5"}, ["wake one lan - 0 0", "wake one lan - 0"], "ready"),
        ({"4", "5"}, ["wake one lan - 0 0", "wake one lan - 0"], "forbidden"),
        ({"6"}, ["wake one lan - 0 0"], "ready"),
    ],
)
def test_a_service_of_an_earlier_generation_is_asked_in_its_words(
    lua: NginxLua, refused: set[str], lines: list[str], outcome: str
) -> None:
    """A stand-in for the service refuses lines of so many words after the first, as one that cannot read them."""
    sent: list[str] = []

    def receive(_: Any, most: int) -> str:
        words = len(sent[-1].split()) - 1
        return "refused forbidden 60 it is no instance on demand\n" if str(words) in refused else "ready\n"

    done = {name: lambda *_: True for name in ("settimeouts", "connect", "close")}
    ngx, settings, waking = lua.ngx, lua.require("settings"), lua.require("waking")
    lua.require("clock").now = lambda: 0.0
    send = {"send": lambda _, line: sent.append(line) or True, "receiveany": receive}
    ngx.socket = lua.table({"tcp": lambda: lua.table({**done, **send})})
    ngx.req, ngx.exec = lua.table({"http_version": lambda: 1.1}), lambda _: None
    ngx.var.rw_path, ngx.var.server_name = "embeddings", "lan"
    settings.wake = lua.table({"evict": lua.table({}), "socket": "", "wait": 120})
    settings.models = lua.table({"tiny": lua.table({})})
    waking.candidates = lambda _: lua.table(["one"])
    # whatever the service says, an instance that is ready gets the request: only if it is to be so
    lua.require("instances").number = lambda _: 1 if sent and outcome == "ready" else 0
    request = lua.table({"key": "", "model": "tiny", "is_stream": False, "held": lua.table({})})
    waking.wait(request, None)
    assert ([line.strip() for line in sent], request.wake.outcome) == (lines, outcome)


def relay(lua: NginxLua, pieces: Iterable[str | None]) -> tuple[Any, str, str]:
    """The answer that an engine sends in these pieces: its head, its body, and why it ended. None: it is silent."""
    coming = iter([*pieces])

    def receive(_: Any, most: int) -> Any:
        piece = next(coming, "")
        return (None, "timeout") if piece is None else piece or (None, "closed")

    module, reader = lua.require("relay"), lua.require("relay").reader(lua.table({"receiveany": receive}))
    body: list[str] = []
    answer, why = None, "timeout"
    while why == "timeout":
        found = module.head(reader)
        answer, why = found if isinstance(found, tuple) else (found, "")
    while answer and why in ("", "timeout"):
        found = module.piece(reader, answer)
        piece, why = found if isinstance(found, tuple) else (found, "")
        body.append(piece or "")
    return answer, "".join(body), why


SAID = "data: a\n\n"
EXTENDED = CHUNKED + "9;x=y\r\n" + SAID + "\r\n0009\r\n" + SAID + "\r\n0\r\nX: y\r\n\r\n"


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (EXTENDED, SAID * 2),
        (HEAD + f"Content-Length: {len(SAID)}\r\n\r\n{SAID}and more", SAID),
        (HEAD + "\r\n" + SAID, SAID),
        (HEAD + "Content-Length: 0\r\n\r\n", ""),
    ],
)
def test_an_answer_is_passed_on_however_it_comes(lua: NginxLua, text: str, body: str) -> None:
    for size in (1, 2, 3, 7, 1000):
        # silent before each piece
        pieces = [one for at in range(0, len(text), size) for one in (None, text[at : at + size])]
        answer, found, why = relay(lua, pieces)
        assert (answer.status, answer.kind, found, why) == (200, "text/event-stream", body, "end"), size


@pytest.mark.parametrize("text", [CHUNKED + "5;" + "x" * 90, CHUNKED + "0\r\n" + "X: y\r\n" * 9, HEAD * 3])
def test_an_engine_that_trickles_does_not_keep_the_gateway_from_looking(lua: NginxLua, text: str) -> None:
    now, asked = [0.0], [0]
    lua.require("clock").now = lambda: now[0]
    coming = iter(text)

    def receive(_: Any, most: int) -> Any:
        now[0], asked[0] = now[0] + 0.3, asked[0] + 1
        return next(coming, None) or (None, "closed")

    module, reader = lua.require("relay"), lua.require("relay").reader(lua.table({"receiveany": receive}))
    answer, why = None, "timeout"
    while why == "timeout":
        began = now[0]
        found = module.piece(reader, answer) if answer else module.head(reader)
        assert now[0] - began < 2
        if not isinstance(found, tuple):
            answer, found = found, (None, "timeout")
        why = found[1]
    assert (why, asked[0]) == ("closed", len(text) + 1)


@pytest.mark.parametrize(
    ("text", "body", "why"),
    [
        (CHUNKED + "5\r\nab", "ab", "closed"),
        (CHUNKED + "2\r\nab\r\n", "ab", "closed"),
        (CHUNKED + "2\r\nab\r\n0\r\n", "ab", "closed"),
        (CHUNKED + "2\r\nabc\r\n0\r\n\r\n", "ab", BROKEN),
        (CHUNKED + "-2\r\nab\r\n", "", BROKEN),
        (CHUNKED + " 2\r\nab\r\n", "", BROKEN),
        (CHUNKED + "2 x\r\nab\r\n", "", BROKEN),
        (CHUNKED + "\r\n", "", BROKEN),
        (CHUNKED + "2\nab\r\n", "", BROKEN),
        (CHUNKED + "10000000\r\nab", "", BROKEN),
        (CHUNKED + "2;" + "a" * 300 + "\r\nab\r\n", "", BROKEN),
        (CHUNKED + "0\r\n" + "X: y\r\n" * 2000, "", BROKEN),
        (HEAD + "Content-Length: 5\r\n\r\nab", "ab", "closed"),
    ],
)
def test_an_answer_that_breaks_off_has_no_end(lua: NginxLua, text: str, body: str, why: str) -> None:
    for size in (1, 5, 100_000):
        assert relay(lua, [text[at : at + size] for at in range(0, len(text), size)])[1:] == (body, why)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 600 None\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: y\0z\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX\r\n\r\n",
        "HTTP/1.1 200 OK\r\n" + "X: y\r\n" * 101 + "\r\n",
        "HTTP/1.1 200 OK\r\nX: " + "y" * 20000,
    ],
)
def test_a_head_that_is_none_is_no_answer(lua: NginxLua, text: str) -> None:
    for size in (1, 100_000):
        answer, _, why = relay(lua, [text[at : at + size] for at in range(0, len(text), size)])
        assert answer is None and why in (BROKEN, "closed")


LISTENERS: dict[str, Any] = {
    "lan": {"address": "0.0.0.0", "port": 8000, "keys": False},
    "desk": {"address": "127.0.0.1", "port": 8001, "keys": False, "evict": True},
    "office": {"address": "192.0.2.7", "port": 443, "tls": True},
    "guests": {"address": "192.0.2.7", "port": 444, "tls": True, "evict": False},
}


def settings_of(start: str, **gateway: Any) -> tuple[dict[str, Any], str]:
    """Settings and nginx's configuration of a box with an instance that is started so, and one that boot starts."""
    chat, code = replace_start(sample_instance("chat"), start), sample_instance("code", port=8021)
    rig = replace(
        sample_rig(), instances=(chat, code), gateway=Gateway.model_validate({"listeners": LISTENERS} | gateway)
    )
    files = render_gateway(rig.roots, rig.accounts, rig.instances, rig.gateway, None, OWNED_HEADER).files
    assert rig.gateway
    found = router_settings(rig.roots, rig.instances, rig.gateway, rig.gateway, "")
    assert json.loads(files["gateway/settings.json"])["models"] == found["models"]
    return found, files["gateway/nginx.conf"]


def replace_start(instance: Any, start: str) -> Any:
    """An instance with another way to start."""
    made = replace(instance)
    object.__setattr__(made, "start", start)
    return made


def test_settings_name_instances_on_demand_and_who_may_have_others_stopped() -> None:
    found, conf = settings_of("on-demand", wait=30)
    assert [one.get("on_demand") for one in found["models"].values()] == [["chat"]]
    rights = {"lan": False, "desk": True, "office": True, "guests": False}
    assert found["wake"] == {"socket": WAKE_SOCKET, "states": WAKE_STATES, "wait": 30, "evict": rights}
    assert conf.count("location @wake {") == conf.count("lua_check_client_abort on;") == len(LISTENERS)
    assert settings_of("on-demand")[0]["wake"]["wait"] == WAIT


def test_a_plan_names_models_on_demand_and_who_may_have_others_stopped() -> None:
    chat, code = replace_start(sample_instance("chat"), "on-demand"), sample_instance("code", port=8021)
    gateway = Gateway.model_validate({"listeners": LISTENERS})
    (line,) = [one for one in describe_access((chat, code), gateway) if one.startswith("requests load")]
    name = chat.model_name
    assert line.startswith(f"requests load {name} (chat); those at desk, office may have an idle model stopped")
    assert not [one for one in describe_access((code,), gateway) if one.startswith("requests load")]


def test_without_instances_on_demand_nothing_waits() -> None:
    found, conf = settings_of("boot", wait=30)
    assert "wake" not in found and all("on_demand" not in one for one in found["models"].values())
    assert "@wake" not in conf and "check_client_abort" not in conf


@pytest.mark.parametrize(
    ("ready", "out", "status", "states"),
    [
        ((), (), (200, "ok", "asleep"), ("asleep", "asleep")),
        (("one",), (), (200, "ok", "ok"), ("ok", "asleep")),
        ((), ("one",), (200, "degraded", "degraded"), ("down", "asleep")),
        ((), ("one", "two"), (503, "down", "down"), ("down", "down")),
    ],
)
def test_a_sleeping_instance_is_healthy(
    tmp_path: Path, ready: tuple[str, ...], out: tuple[str, ...], status: tuple[int, str, str], states: tuple[str, str]
) -> None:
    listener = {"lan": {"keys": False, "models": None}}
    model = model_entry("one", "two", on_demand=["one", "two"])
    box = RouterFixture(tmp_path, sample_settings(listeners=listener, models={"tiny": model}))
    for name in out:
        (tmp_path / "rotation" / name).write_text('{"reasons": []}')
    for name in ready:
        box.link_instance(name)
    box.write_settings()
    answer = answers.health(read_settings(tmp_path / "settings.json"))
    found = json.loads(answer.body)
    assert (answer.status, found["status"], found["models"]["tiny"]["status"]) == status
    assert tuple(found["models"]["tiny"]["instances"].values()) == states
    box.stop()


@pytest.mark.parametrize(
    ("text", "ready", "status", "states"),
    [
        ("", (), (200, "ok", "asleep"), ["asleep", "asleep"]),
        ("one failed 0\n", (), (200, "degraded", "degraded"), ["failed", "asleep"]),
        ("one failed 0\n", ("one",), (200, "ok", "ok"), ["ok", "asleep"]),
        ("one stopped 0\n", (), (200, "degraded", "degraded"), ["stopped", "asleep"]),
        ("one failed 0\ntwo stopped 0\n", (), (503, "down", "down"), ["failed", "stopped"]),
        # its pause is over: the next request starts it again
        ("one failed 1\ntwo stopped 0\n", (), (200, "degraded", "degraded"), ["failed", "stopped"]),
        # nothing from a partial file, or from one that another program wrote
        ("one failed 0\ntwo stop", (), (200, "ok", "asleep"), ["asleep", "asleep"]),
        ("one failed 0\ntwo awake 1\n", (), (200, "ok", "asleep"), ["asleep", "asleep"]),
        ("one failed 0 \n", (), (200, "ok", "asleep"), ["asleep", "asleep"]),
        ("one failed 0\n" * 6000, (), (200, "ok", "asleep"), ["asleep", "asleep"]),
        ("one failed 0\né", (), (200, "ok", "asleep"), ["asleep", "asleep"]),
        (None, (), (200, "ok", "asleep"), ["asleep", "asleep"]),
    ],
    ids=range(12),
)
def test_health_names_failed_and_stopped_instances(
    tmp_path: Path, text: str | None, ready: tuple[str, ...], status: tuple[int, str, str], states: list[str]
) -> None:
    listener = {"lan": {"keys": False, "models": None}}
    wake = {"socket": str(tmp_path / "wake.sock"), "states": str(tmp_path / "states")}
    model = model_entry("one", "two", on_demand=["one", "two"])
    box = RouterFixture(tmp_path, sample_settings(listeners=listener, models={"tiny": model}, wake=wake))
    if text is not None:
        (tmp_path / "states").write_text(text)
    for name in ready:
        box.link_instance(name)
    box.write_settings()

    def look() -> tuple[tuple[int, str, str], list[str]]:
        answer = answers.health(read_settings(tmp_path / "settings.json"))
        found = json.loads(answer.body)
        model = found["models"]["tiny"]
        return (answer.status, found["status"], model["status"]), list(model["instances"].values())

    # without the service's socket no request starts anything
    assert look()[1] == [one if one == "ok" else "down" for one in states]
    (tmp_path / "wake.sock").touch()
    assert look() == (status, states)
    box.stop()
