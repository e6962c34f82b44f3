"""Which paths and methods the gateway's Lua lets through, and the words for a path that is not open."""

import json

import pytest

from rigwright.gateway.nginx_conf import PATHS
from tests.unit.nginx_lua import NginxLua

BASE = "http://box:8020"
ORIGIN = "app://obsidian.md"


@pytest.fixture
def lua() -> NginxLua:
    made = NginxLua()
    made.require("paths").init(made.table([*PATHS, "messages", "messages/count_tokens"]))
    made.ngx.var.scheme, made.ngx.var.http_host, made.ngx.var.connection = "http", "box:8020", "1"
    return made


def passes(lua: NginxLua, method: str, path: str, **headers: str) -> tuple[int, str, str]:
    """Status of the answer, 0 for a request that goes on; its Allow header and its message."""
    lua.ngx.printed = lua.ngx.exited = None
    lua.ngx.status = 0
    lua.ngx.var.request, lua.ngx.var.uri = f"{method} {path} HTTP/1.1", path.partition("?")[0]
    lua.ngx.req = lua.table(
        {
            "is_internal": lambda: False,
            "get_method": lambda: method,
            "get_headers": lambda _: lua.table({name.replace("_", "-"): value for name, value in headers.items()}),
            "clear_header": lambda _: None,
        }
    )
    lua.require("settings").names = lua.table({})
    lua.require("settings").sticky_headers = lua.table({})
    lua.require("settings").origins = lua.table({ORIGIN: True})
    lua.require("connections").init(1 << 30)
    lua.require("gateway").check()
    if lua.ngx.printed is None:
        return int(lua.ngx.exited or 0), "", ""
    return int(lua.ngx.status), lua.ngx.header["Allow"] or "", json.loads(lua.ngx.printed)["error"]["message"]


@pytest.mark.parametrize("path", ["/", "/health", "/v1/models", "/v1/models/a/b", "/metrics", "/metrics/chat"])
def test_head_works_wherever_get_does(lua: NginxLua, path: str) -> None:
    for method in ("GET", "HEAD"):
        assert passes(lua, method, path) == (0, "", "")
        assert passes(lua, method, path, content_length="2")[0] == 400
    assert passes(lua, "POST", path, content_length="2") == (405, "GET, HEAD", "this path takes GET")


def test_head_of_what_is_posted_is_refused(lua: NginxLua) -> None:
    assert passes(lua, "HEAD", "/v1/chat/completions") == (405, "POST", "this path takes POST")


def test_a_page_may_send_the_request_that_its_path_is_wrong_of(lua: NginxLua) -> None:
    """A browser shows no answer to the question beforehand: the hint is in that to the request."""
    for path in ("/v1/chat/completions", "/chat/completions"):
        assert passes(lua, "OPTIONS", path, origin=ORIGIN, access_control_request_method="POST")[0] == 204
        assert passes(lua, "OPTIONS", path, origin="null", access_control_request_method="POST")[0] == 403
    assert passes(lua, "POST", "/chat/completions", origin=ORIGIN)[0] == 404


@pytest.mark.parametrize(
    ("origin", "shown"),
    [
        ("null", "null"),
        ("https://[::1]:3000", "https://[::1]:3000"),
        ('app://"\x00é' + "x" * 900, "app://???" + "x" * 119),
    ],
)
def test_an_origin_that_is_not_declared_is_named(lua: NginxLua, origin: str, shown: str) -> None:
    assert passes(lua, "GET", "/health", origin=origin) == (
        403,
        "",
        f"the origin {shown} is not declared in gateway.origins",
    )


OTHERS = "; the base URL for OpenAI's clients is {}/v1"
SET = ": set the client's base URL to {}"
OLLAMA = ": Ollama's API is not served; set the client to an OpenAI-compatible API with the base URL {}/v1"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v1/v1/chat/completions", f", but at /v1/chat/completions{SET}/v1"),
        ("/chat/completions", f", but at /v1/chat/completions{SET}/v1"),
        ("//v1/chat/completions", f", but at /v1/chat/completions{SET}/v1"),
        ("/v1/chat/completions/", f", but at /v1/chat/completions{SET}/v1"),
        ("/api/v1/chat/completions", f", but at /v1/chat/completions{SET}/v1"),
        ("/openai/deployments/x/chat/completions", f", but at /v1/chat/completions{SET}/v1"),
        ("/completions", f", but at /v1/completions{SET}/v1"),
        ("/models", f", but at /v1/models{SET}/v1"),
        ("/v1/models/", f", but at /v1/models{SET}/v1"),
        ("/v1/v1/models/Org/a:b", f", but at /v1/models/Org/a:b{SET}/v1"),
        # Anthropic's clients append /v1 themselves
        ("/v1/v1/messages", f", but at /v1/messages{SET}"),
        ("/messages/count_tokens", f", but at /v1/messages/count_tokens{SET}"),
        ("/v1/health", f", but at /health{OTHERS}"),
        ("/v1", OTHERS),
        ("/v1/", OTHERS),
        ("/favicon.ico", OTHERS),
        ("/V1/Chat/Completions", OTHERS),
        ("/" * 500, OTHERS),
        ("/a" * 4000, OTHERS),
        ("/api/chat", OLLAMA),
        ("/api/tags", OLLAMA),
        ("/api/embeddings", OLLAMA),
    ],
)
def test_a_path_that_is_not_open_is_answered_with_the_base_url(lua: NginxLua, path: str, message: str) -> None:
    assert passes(lua, "POST", path) == (404, "", f"there is nothing at {path[:128]}{message.format(BASE)}")


def test_queries_after_a_path_are_in_no_message(lua: NginxLua) -> None:
    assert "secret" not in passes(lua, "POST", "/chat/completions?api_key=secret")[2]
    lua.ngx.var.uri = '/v1/x"\x00\xff<b>/chat/completions'
    said = lua.require("paths").describe_unknown(lua.ngx.var.uri)
    assert said.startswith("there is nothing at /v1/x????b?/chat/completions, but at /v1/chat/completions:")


@pytest.mark.parametrize(
    ("host", "proto", "address"),
    [
        ("box:8020", None, "http://box:8020"),
        ("llm.example.org", "https", "https://llm.example.org"),
        ("[2001:db8::1]:8020", "ftp", "http://[2001:db8::1]:8020"),
        ("box/evil", None, ""),
        ('box"', None, ""),
        ("x" * 300, None, ""),
        (None, None, ""),
    ],
)
def test_the_address_in_a_message_is_the_clients(lua, host, proto, address):
    lua.ngx.var.http_host, lua.ngx.var.http_x_forwarded_proto = host, proto
    assert lua.require("paths").address() == address
    lua.require("answers").root()
    assert json.loads(lua.ngx.printed) == {"openai_base_url": f"{address}/v1", "health": f"{address}/health"}
