"""Anthropic's protocol at the gateway: the shape of each refusal, engines that have its paths, tokens, field rules."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rigwright.engines import kind_of
from rigwright.engines.api_paths import COMPLETIONS, MESSAGES
from rigwright.engines.image import catalog_keys
from rigwright.gateway.served_models import resolve_models
from rigwright.model.gateway_schema import Gateway
from tests.unit.nginx_lua import NginxLua
from tests.unit.samples import sample_instance
from tests.unit.vllm_samples import ENV, vllm_instance

ENGINE = "application/json; charset=utf-8"


@pytest.fixture
def lua() -> NginxLua:
    made = NginxLua()
    made.ngx.var.connection = "1"
    made.require("requests").begin()
    return made


def rejection_of(lua: NginxLua, target: str, status: int) -> dict[str, Any]:
    """nginx's own page with a status, as the client of a path gets it."""
    lua.ngx.var.request_uri = target
    lua.filter_answer(status, {"Content-Type": "text/html", "Content-Length": "150"})
    lua.require("answers").page()
    found = json.loads(lua.ngx.arg[1])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "target",
    ["/v1/messages", "/v1/messages?beta=true", "/v1/messages/count_tokens", "/v1/messages/batches", "/v1/v1/messages"],
)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (408, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (431, "invalid_request_error"),
        (500, "api_error"),
        (502, "overloaded_error"),
        (503, "overloaded_error"),
        (504, "overloaded_error"),
    ],
)
def test_a_refusal_has_the_shape_and_type_of_its_protocol(lua: NginxLua, target: str, status: int, kind: str) -> None:
    found = rejection_of(lua, target, status)
    assert found == {"type": "error", "error": {"type": kind, "message": found["error"]["message"]}}
    assert found["error"]["message"]


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/messagesx", "/v1/models?a=/v1/messages"])
def test_other_paths_keep_the_shape_of_openai(lua: NginxLua, target: str) -> None:
    assert set(rejection_of(lua, target, 404)) == {"error"}


def test_a_missing_key_is_named_by_both_headers(lua: NginxLua) -> None:
    lua.ngx.var.request_uri = "/v1/messages"
    lua.require("answers").unauthorized()
    error = json.loads(lua.ngx.printed)["error"]
    assert error["type"] == "authentication_error"
    assert "Authorization: Bearer KEY" in error["message"] and "x-api-key: KEY" in error["message"]
    lua.ngx.var.http_x_api_key = "rw-unknown"
    lua.require("answers").unauthorized()
    assert json.loads(lua.ngx.printed)["error"]["message"] == "this API key is not known here"


def answered(
    lua: NginxLua, target: str, status: int, *pieces: str, engine: str | None = ENGINE
) -> tuple[str, dict[str, str]]:
    """An answer of an engine's or the router's that came in pieces, as a client gets it, and its headers."""
    lua.ngx.var.request_uri = target
    _, headers = lua.filter_answer(status, {"Content-Length": str(len("".join(pieces)))}, engine)
    text = ""
    for number, piece in enumerate(pieces):
        lua.ngx.arg[1], lua.ngx.arg[2] = piece, number == len(pieces) - 1
        lua.require("answers").translate()
        text += lua.ngx.arg[1] or ""
    return text, headers


@pytest.mark.parametrize("engine", [ENGINE, None], ids=["engine", "router"])
@pytest.mark.parametrize(
    ("status", "sent", "kind", "message"),
    [
        # llama-server, vLLM's handler of all errors, vLLM's own translation, FastAPI, what is no JSON, no text in it
        (
            400,
            '{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}',
            "invalid_request_error",
            "too long",
        ),
        (
            400,
            '{"error":{"message":"é \\n","type":"BadRequestError","param":"a","code":400}}',
            "invalid_request_error",
            "é \n",
        ),
        (404, '{"type":"error","error":{"type":"NotFoundError","message":"no model"}}', "not_found_error", "no model"),
        (500, '{"type":"error","error":{"type":"internal_error","message":"x"}}', "api_error", "x"),
        (
            500,
            '{"error":{"message":"<_io.BytesIO object at 0x7f3a5c0d1e40>"}}',
            "api_error",
            "<_io.BytesIO object at 0x>",
        ),
        (404, '{"detail":"Not Found"}', "not_found_error", "the request was refused"),
        (500, "Internal Server Error", "api_error", "the request was refused"),
        (400, '{"error":{"message":7}}', "invalid_request_error", "the request was refused"),
        (400, '{"error":"x"}', "invalid_request_error", "the request was refused"),
        (400, "[]", "invalid_request_error", "the request was refused"),
    ],
)
def test_errors_of_engines_and_of_the_router_get_the_shape_of_their_path(lua, status, sent, kind, message, engine):
    text, headers = answered(lua, "/v1/messages?beta=true", status, *sent, engine=engine)
    assert json.loads(text) == {"type": "error", "error": {"type": kind, "message": message}}
    # the text has another length, and is JSON whatever type the engine named
    assert "content-length" not in headers and headers["content-type"] == "application/json"


def test_an_error_without_an_end_takes_little_memory(lua: NginxLua) -> None:
    text, _ = answered(lua, "/v1/messages", 500, *["x" * 100_000] * 5)
    assert json.loads(text)["error"]["message"] == "the request was refused"
    request = lua.require("requests").current()
    assert (len(request.untranslated), len(request.untranslated[1]), request.left) == (1, 65536, 0)


def test_each_piece_of_an_error_costs_its_own_bytes_alone(lua: NginxLua) -> None:
    ngx = lua.ngx
    ngx.var.connection, ngx.var.request_uri, ngx.status = "1", "/v1/messages", 500
    lua.require("requests").begin()
    lua.filter_answer(500, {}, engine="application/json")
    translate, collector = lua.require("answers").translate, lua.collector
    collector("stop")
    before = collector("count")
    # equal texts would be one in memory
    for piece in ("x" * 40_000, *map(chr, range(200)), "x" * 40_000, *map(chr, range(200))):
        ngx.arg[1], ngx.arg[2] = piece, False
        translate()
    # in KiB
    assert collector("count") - before < 1024


@pytest.mark.parametrize(("target", "status"), [("/v1/messages", 200), ("/v1/chat/completions", 400)])
def test_all_other_answers_pass_as_they_are(lua: NginxLua, target: str, status: int) -> None:
    pieces = ('{"error":', '{"message":"a"}}')
    text, headers = answered(lua, target, status, *pieces)
    assert text == "".join(pieces) and headers["content-length"] == str(len(text))
    assert headers["content-type"] == ENGINE


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "authentication_error"), (503, "overloaded_error")], ids=["revoked", "exchanged"]
)
def test_a_stream_ends_with_an_event_of_its_protocol(lua: NginxLua, status: int, kind: str) -> None:
    ending = lua.require("protocols").event
    lua.ngx.var.request_uri = "/v1/messages?beta=true"
    *_, name, data, _, _ = ending(status, "100 %s", "code").split("\n")
    assert name == "event: error"
    found = json.loads(data.removeprefix("data: "))
    assert found == {"type": "error", "error": {"type": kind, "message": "100 %s"}}
    lua.ngx.var.request_uri = "/v1/chat/completions"
    assert ending(status, "a", "code").startswith('\n\ndata: {"error": ')
    lua.ngx.var.rw_path = "responses"
    assert ending(status, "a", "code").startswith('\n\nevent: error\ndata: {"type": "error", ')


def event(kind: str, **more: object) -> str:
    """One of a stream's, as llama-server writes it."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more}, separators=(',', ':'))}\n\n"


USAGE = {"cache_read_input_tokens": 30, "input_tokens": 12, "output_tokens": 3}
MESSAGE = json.dumps({"type": "message", "content": [{"type": "text", "text": "hi"}], "usage": USAGE})
STREAM = (
    event("message_start", message={"content": [], "usage": USAGE | {"output_tokens": 0}}),
    event("content_block_start", index=0, content_block={"type": "thinking", "thinking": ""}),
    event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Hm"}),
    event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}),
)


@pytest.mark.parametrize(
    ("path", "pieces", "first", "tokens"),
    [
        ("messages", (MESSAGE,), 0, (12, 30, 3)),
        ("messages", STREAM, 2, (12, 30, 3)),
        # in pieces of whatever length
        ("messages", tuple("".join(STREAM)), None, (12, 30, 3)),
        # counted, and not computed
        ("messages/count_tokens", ('{"input_tokens":12}',), None, (None, None, None)),
    ],
)
def test_tokens_and_the_first_content_are_read_of_its_answers(lua, path, pieces, first, tokens):
    request, ngx = lua.require("requests").current(), lua.ngx
    request.instance, request.key, request.looked = "chat", "", 1e18
    ngx.var.request_uri, ngx.var.rw_path = f"/v1/{path}", path
    ngx.req = lua.table({"http_version": lambda: 1.1, "start_time": lambda: 0})
    ngx.now = lambda: 1
    at = []
    for piece in pieces:
        ngx.arg[1], ngx.arg[2] = piece, False
        lua.require("watching").watch()
        at.append(request.first is not None)
    assert (request.prompt, request.cached, request.completion) == tokens
    if first is not None:
        assert at.index(True) == first


NEWER = (*COMPLETIONS, *MESSAGES)


@pytest.mark.parametrize(
    ("release", "paths"),
    [
        ("0.11.0", COMPLETIONS),
        ("0.11.1", (*COMPLETIONS, "messages")),
        ("0.16.0", (*COMPLETIONS, "messages")),
        ("0.17.0", NEWER),
        ("0.21.0", NEWER),
        ("0.21.0+cpu", NEWER),
        # `thinking.budget_tokens` may reach what GHSA-fpch-3xrf-7q96 is about
        ("0.22.0rc1", COMPLETIONS),
        ("0.22.0", COMPLETIONS),
        ("0.27.9+cpu", COMPLETIONS),
        ("0.28.0", NEWER),
        ("0.33.1+cpu", NEWER),
        # of unknown fields
        ("0.34.0rc1", COMPLETIONS),
        ("1.0", COMPLETIONS),
    ],
)
def test_releases_of_vllm_have_the_paths_that_they_answer(release: str, paths: tuple[str, ...]) -> None:
    packages = tuple(one.model_copy(update={"version": release}) for one in ENV.packages)
    one = vllm_instance()
    assert kind_of(one).paths(replace(one, artefacts=packages)) == paths
    inside = replace(one, engine=catalog_keys.ImageEngine(kind="image", image="vllm", serves="vllm", version=release))
    assert kind_of(inside).paths(inside) == paths


@pytest.mark.parametrize(
    ("release", "paths"),
    # a version without an order counts as current: engines refuse the paths that they lack
    [("0.3.16", COMPLETIONS), ("0.3.17", NEWER), ("0.3.36", NEWER), ("b9000", NEWER), ("0c1e570", NEWER)],
)
def test_releases_of_llama_cpp_have_the_paths_that_they_answer(release: str, paths: tuple[str, ...]) -> None:
    one = sample_instance("chat")
    made = replace(one, artefacts=(one.artefacts[0].model_copy(update={"version": release}),))
    assert kind_of(made).paths(made) == paths


def test_paths_that_ignore_a_salt_are_closed_where_caches_are_kept_apart() -> None:
    one = vllm_instance()
    for isolation, paths in (("", NEWER), ("key", COMPLETIONS)):
        listeners = {"x": {"address": "127.0.0.1", "port": 1}}
        gateway = Gateway.model_validate({"listeners": listeners, "cache_isolation": isolation})
        (offer,) = resolve_models(gateway, [one])
        assert offer.paths == paths
