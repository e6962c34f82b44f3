"""Tokens that the gateway's Lua counts, keeps in a file and limits, and the reports that are made of them."""

import json
import random
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from rigwright.gateway.token_usage import HostUsage, TokenCounts, UsageRow, parse_usage_file, sum_usage
from roles.gateway.host.router.body import read
from roles.gateway.host.router.routing import _usage_edit
from tests.unit.nginx_lua import NginxLua

NOON = 1795953600
DAY = "2026-11-29"
CHUNK = 'data: {"choices":[{"delta":{"content":"a \\n\\n \\"usage\\":{\\"prompt_tokens\\":9999}"}}],"usage":null}\n\n'
USAGE = (
    'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,'
    '"prompt_tokens_details":{"cached_tokens":4}}}\n\n'
)
DONE = "data: [DONE]\n\n"


@pytest.fixture
def lua(tmp_path: Path) -> NginxLua:
    made = NginxLua()
    made.ngx.now_is = NOON
    made.require("settings").usage = f"{tmp_path}/usage-"
    made.ngx.var.rw_path, made.ngx.var.connection = "chat/completions", "1"
    made.ngx.var.request_uri, made.ngx.var.request_time, made.ngx.var.status = "/v1/chat/completions", "1", "200"
    made.ngx.req = made.table({"http_version": lambda: 1.1, "start_time": lambda: 0})
    made.ngx.now = lambda: 1
    made.require("usage").init()
    return made


def serve(lua: NginxLua, pieces: Iterable[str], key: str = "alice", *, ends: bool = True, hides: bool = False) -> str:
    """Have an instance answer a request of a key in these pieces; the client's answer."""
    lua.require("callers").client = lambda _: "a client"
    request = lua.require("requests").begin()
    request.instance, request.model, request.name, request.key = "chat", "tiny", key, "0" * 16 if key else ""
    request.looked, request.hides_usage = 1e18, hides
    shown = []
    for piece in pieces:
        lua.ngx.arg[1], lua.ngx.arg[2] = piece, False
        assert lua.require("watching").watch() is None
        shown.append(lua.ngx.arg[1] or "")
    if ends:
        lua.ngx.arg[1], lua.ngx.arg[2] = "", True
        lua.require("watching").watch()
        shown.append(lua.ngx.arg[1] or "")
    lua.require("telling").log()
    lua.require("usage").flush()
    return "".join(shown)


def rows(tmp_path: Path, day: str = DAY) -> list[UsageRow]:
    return parse_usage_file(day, (tmp_path / f"usage-{day}").read_text())


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        ((CHUNK + USAGE + DONE,), (1, 7, 3, 4, 0)),
        # a text of the client's is no count, and a smaller count beside the engine's does not replace it
        (('{"input":{"output_tokens":1},"usage":{"input_tokens":5,"output_tokens":2}}',), (1, 5, 2, 0, 0)),
        (('{"usage":{"input_tokens":5,"output_tokens":2},"input":{"output_tokens":1}}',), (1, 5, 2, 0, 0)),
        (('{"usage":{"input_tokens":5,"cache_read_input_tokens":30,"output_tokens":2}}',), (1, 35, 2, 30, 0)),
        # embeddings, and a reranking that names the sum alone
        (('{"usage":{"prompt_tokens":8,"total_tokens":8}}',), (1, 8, 0, 0, 0)),
        (('{"usage":{"total_tokens":9}}',), (1, 9, 0, 0, 0)),
        # more than an engine can have computed; more of the prompt than there is
        (('{"usage":{"prompt_tokens":99999999999999999999,"completion_tokens":2}}',), (1, 0, 2, 0, 0)),
        (('{"usage":{"prompt_tokens":3,"completion_tokens":2,"cached_tokens":900}}',), (1, 3, 2, 3, 0)),
        (('{"usage":{"prompt_tokens":-3,"completion_tokens":"2"}}',), (1, 0, 0, 0, 1)),
        ((CHUNK + DONE,), (1, 0, 0, 0, 1)),
    ],
)
def test_tokens_are_those_that_the_engine_names(
    lua: NginxLua, tmp_path: Path, answer: tuple[str, ...], counts: tuple[int, ...]
) -> None:
    serve(lua, answer)
    assert rows(tmp_path) == [UsageRow(DAY, "alice", "tiny", TokenCounts(*counts))]


def test_an_answer_that_ended_early_is_unknown(lua: NginxLua, tmp_path: Path) -> None:
    serve(lua, [CHUNK, USAGE], ends=False)
    assert rows(tmp_path)[0].counts == TokenCounts(1, 7, 3, 4, 1)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_event_that_the_client_did_not_ask_for_is_left_out(lua: NginxLua, size: int, end: str) -> None:
    text, kept = ((CHUNK * 3 + more + DONE).replace("\n", end) for more in (USAGE, ""))
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert serve(lua, pieces, hides=True) == kept
    assert serve(lua, pieces, hides=False) == text


def test_hostile_streams_stay_bounded_and_pass_unchanged(lua: NginxLua) -> None:
    pick = random.Random(1)
    parts = [
        "\n",
        "\r",
        "\r\n\r\n",
        "data: ",
        '"choices":[',
        "]",
        '"usage":',
        "{",
        "}",
        "\0",
        "\xff",
        '"',
        "\\",
        "9" * 40,
    ]
    for _ in range(60):
        text = "".join(pick.choices(parts, k=400))
        size = pick.choice((1, 5, 400))
        shown = serve(lua, [text[at : at + size] for at in range(0, len(text), size)], hides=True)
        assert len(shown) <= len(text)
        if not re.search(r'"choices":\[\]', text):
            assert shown == text
    # an event without an end
    request_bytes = 300_000
    assert serve(lua, ["x" * 1000] * (request_bytes // 1000), hides=True) == "x" * request_bytes
    assert lua.require("requests").current() is None


def test_counts_outlive_the_process_and_a_file_that_was_cut_off_counts_for_nothing(
    lua: NginxLua, tmp_path: Path
) -> None:
    serve(lua, [USAGE])
    serve(lua, [USAGE], key="")
    file = tmp_path / f"usage-{DAY}"
    assert file.read_text() == "- tiny 1 7 3 4 0\nalice tiny 1 7 3 4 0\nend\n"
    again = NginxLua()
    again.ngx.now_is = NOON
    again.require("settings").usage = f"{tmp_path}/usage-"
    again.require("usage").init()
    again.require("usage").count(
        "alice", "tiny", again.table({"requests": 1, "input": 1, "output": 1, "cached": 0, "unknown": 0}), 2
    )
    again.require("usage").flush()
    assert "alice tiny 2 8 4 4 0" in file.read_text()
    file.write_text("alice tiny 2 8 4 4 0\nalice big 1")
    third = NginxLua()
    third.ngx.now_is = NOON
    third.require("settings").usage = f"{tmp_path}/usage-"
    third.require("usage").init()
    assert third.require("usage").refusal("alice", "- 1 1") is None


def test_a_day_begins_anew_and_the_old_one_keeps_its_file(lua: NginxLua, tmp_path: Path) -> None:
    serve(lua, [USAGE])
    lua.ngx.now_is = NOON + 86400
    serve(lua, [USAGE])
    serve(lua, [USAGE])
    # a clock that is set back
    lua.ngx.now_is = NOON
    serve(lua, [USAGE])
    assert [one.counts.requests for day in (DAY, "2026-11-30") for one in rows(tmp_path, day)] == [2, 2]


@pytest.mark.parametrize(
    ("limits", "message", "seconds"),
    [
        ("- 20 -", "this key has used its 20 tokens of this day (UTC)", 43200),
        ("- - 20", "this key has used its 20 tokens of this month (UTC)", 86400 + 43200),
        ("20 - -", "this key has used its 20 tokens of a minute", 70),
    ],
)
def test_a_limit_is_passed_by_the_requests_under_way_alone(
    lua: NginxLua, limits: str, message: str, seconds: int
) -> None:
    refusal = lua.require("usage").refusal
    serve(lua, [USAGE])
    assert refusal("alice", limits) is None
    serve(lua, [USAGE])
    said, wait = refusal("alice", limits)
    assert (said, 0 < wait <= seconds) == (message, True)
    assert refusal("bob", limits) is None
    assert refusal("alice", "- - -") is None
    assert refusal("alice", None) is None


def test_a_stream_that_ends_early_counts_its_events_for_limits(lua: NginxLua) -> None:
    serve(lua, [CHUNK] * 30, ends=False)
    assert lua.require("usage").refusal("alice", "- 31 -") is None
    assert lua.require("usage").refusal("alice", "- 30 -") is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "end\nalice tiny 1 1 1 1 1\n",
        "alice tiny 1 1 1 1\nend\n",
        "alice tiny 1 1 1 1 -1\nend\n",
        "../x tiny 1 1 1 1 1\nend\n",
        "alice \x1b[2J 1 1 1 1 1\nend\n",
        "alice tiny 1 1 1 1 1\n" * 2 + "end\n",
        f"alice tiny {'9' * 16} 1 1 1 1\nend\n",
        "alice tiny 01 1 1 1 1\nend\n",
    ],
)
def test_a_damaged_file_is_refused_whole(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        parse_usage_file(DAY, text)


def test_hosts_are_summed_by_key_model_or_day() -> None:
    hosts = [
        HostUsage((UsageRow(DAY, "alice", "tiny", TokenCounts(1, 7, 3, 0, 0)),), ()),
        HostUsage(
            (
                UsageRow(DAY, "alice", "big", TokenCounts(2, 10, 5, 4, 1)),
                UsageRow("2026-11-28", "-", "tiny", TokenCounts(1, 1, 1, 0, 0)),
            ),
            (),
        ),
    ]
    every = [row for one in hosts for row in one.rows]
    assert sum_usage(every, "key") == {"-": TokenCounts(1, 1, 1, 0, 0), "alice": TokenCounts(3, 17, 8, 4, 1)}
    assert [*sum_usage(every, "model")] == ["big", "tiny"]
    assert sum_usage(every, "day")["2026-11-28"] == TokenCounts(1, 1, 1, 0, 0)


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ({"stream": True}, {"include_usage": True}),
        ({"stream": True, "stream_options": None}, {"include_usage": True}),
        ({"stream": True, "stream_options": {}}, {"include_usage": True}),
        (
            {"stream": True, "stream_options": {"include_usage": False, "continuous_usage_stats": True, "x": "y"}},
            {"include_usage": True, "continuous_usage_stats": True},
        ),
        ({"stream": True, "stream_options": {"include_usage": True, "x": 1}}, None),
        # not a stream, or nothing that an engine takes
        ({"stream": False}, None),
        ({"stream": True, "stream_options": "all"}, None),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_stream_is_asked_for_its_tokens(body: dict[str, object], changed: object, *, first: bool) -> None:
    asked = {"model": "é", **body} if first else {**body, "model": "é"}
    text = json.dumps(asked, ensure_ascii=False).encode()
    edit = dict(_usage_edit(read(text)))
    if changed is None:
        assert edit == {}
        return
    start, end = map(int, edit["X-Rw-Edit"].split("-"))
    made = text[:start] + json.loads(edit["X-Rw-Edit-Text"]).encode() + text[end:]
    assert json.loads(made) == {**asked, "stream_options": changed}
    assert made.count(b"stream_options") == 1
