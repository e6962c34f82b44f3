"""Anthropic's protocol at the door: keys in its header, what reaches an engine, and the shape of every refusal."""

import json

from door.clients import Stream, posting
from door.world import ALICE, OFTEN, World, with_model_settings

PATHS = ["chat/completions", "messages", "messages/count_tokens"]
PATH = "/v1/messages?beta=true"
VERSION = ("anthropic-version: 2023-06-01", "anthropic-beta: claude-code-20250219,interleaved-thinking-2025-05-14")
TURN: dict[str, object] = {"model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
SLOW = {**TURN, "stream": True, "stand_in": {"chunks": 9999, "every": 0.1}}
USAGE = '"usage": {"cache_read_input_tokens": 30, "input_tokens": 12, "output_tokens": 3}'
MESSAGE = '{"type": "message", "content": [{"type": "text", "text": "hi"}], ' + USAGE + "}"
EVENTS = (
    'event: message_start\ndata: {"type": "message_start", "message": {' + USAGE + "}}\n\n"
    'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"text": "h"}}\n\n'
    ":\n\n"
    'event: message_stop\ndata: {"type": "message_stop"}\n\n'
)


def _raw(text: str, status: str = "200 OK", kind: str = "application/json") -> dict[str, object]:
    """A turn that the engine answers with this."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\n\r\n"
    return {**TURN, "stand_in": {"raw": head + text}}


@with_model_settings(paths=PATHS)
async def anthropics_clients_are_answered_with_a_key_in_either_header(world: World) -> None:
    world.unlink("two")
    for number, key in enumerate((f"X-Api-Key: {ALICE}", f"Authorization: Bearer {ALICE}")):
        body = _raw(MESSAGE)
        status, _, text = await world.post(body, key, *VERSION, path=PATH, port=world.port + 1)
        assert (status, text.decode()) == (200, MESSAGE)
        line, headers, reached = world.engines["one"].reached[number]
        assert (line, json.loads(reached)) == ("POST /v1/messages HTTP/1.1", body)
        assert set(headers) == {"host", "connection", "authorization", "content-type", "content-length"}
        assert headers["authorization"] == "Bearer secret-of-one"
        found = await world.line()
        assert (found["key"], found["model"], found["instance"]) == ("alice", "tiny", "one")
        assert (found["prompt_tokens"], found["completion_tokens"]) == (42, 3) and found["first"] is not None
    status, _, text = await world.post(_raw('{"input_tokens": 12}'), path="/v1/messages/count_tokens?beta=true")
    assert (status, text) == (200, b'{"input_tokens": 12}')
    assert world.engines["one"].reached[2][0] == "POST /v1/messages/count_tokens HTTP/1.1"
    # none of them was computed
    assert (await world.line())["prompt_tokens"] is None
    models = b"GET /v1/models HTTP/1.1\r\nHost: box\r\nConnection: close\r\nX-Api-Key: %s\r\n\r\n" % ALICE.encode()
    assert (await world.ask(models, world.port + 1))[0] == 200


@with_model_settings(paths=PATHS)
async def its_events_pass_to_the_byte(world: World) -> None:
    status, headers, body = await world.post(_raw(EVENTS, kind="text/event-stream"), *VERSION, path=PATH)
    assert (status, headers["content-type"], body.decode()) == (200, "text/event-stream", EVENTS)
    assert ((await world.line())["prompt_tokens"], (await world.line())["completion_tokens"]) == (42, 3)


def _shape(text: bytes) -> tuple[str, str]:
    """Type and message of an error that its clients can read."""
    found = json.loads(text)
    assert set(found) == {"type", "error"} and found["type"] == "error", text
    assert set(found["error"]) == {"type", "message"} and found["error"]["message"], text
    return found["error"]["type"], found["error"]["message"]


@with_model_settings(paths=PATHS)
async def refusals_have_its_shape(world: World) -> None:
    turn = json.dumps(TURN).encode()
    keyed, alice = world.port + 1, f"X-Api-Key: {ALICE}"
    get = b"GET /v1/messages HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n"
    large = posting(turn, path=PATH).replace(b"Content-Length: %d" % len(turn), b"Content-Length: 68000000")
    bare = posting(turn, path=PATH).replace(b"Content-Length: %d\r\n" % len(turn), b"")
    schema = {"tools": [{"name": "a", "input_schema": {"pattern": "(.{0,1000}){0,1000}x"}}]}
    rows = {
        "no key": (posting(turn, path=PATH), keyed, 401, "authentication_error", "x-api-key"),
        "a wrong key": (posting(turn, "x-api-key: rw-x", path=PATH), keyed, 401, "authentication_error", "not known"),
        "a key twice": (posting(turn, alice, alice, path=PATH), keyed, 400, "invalid_request_error", "more than once"),
        "an origin": (posting(turn, "Origin: https://evil.example", path=PATH), 0, 403, "permission_error", "origin"),
        "a model": (posting(b'{"model":"gpt"}', path=PATH), 0, 404, "not_found_error", "you may use: tiny"),
        "a path": (posting(turn, path="/v1/messages/batches"), 0, 404, "not_found_error", "/v1/messages/batches"),
        "a method": (get, 0, 405, "invalid_request_error", "POST"),
        "no length": (bare, 0, 411, "invalid_request_error", "body"),
        "a large body": (large, 0, 413, "request_too_large", "larger"),
        "an encoding": (posting(turn, "Content-Encoding: gzip", path=PATH), 0, 415, "invalid_request_error", "encoded"),
        "no JSON": (posting(b"[", path=PATH), 0, 400, "invalid_request_error", "JSON"),
        "many headers": (posting(turn, *["a: b"] * 70, path=PATH), 0, 431, "invalid_request_error", "headers"),
        "a large header": (posting(turn, f"a: {'b' * 9000}", path=PATH), 0, 431, "invalid_request_error", "headers"),
        "a field": (
            posting(json.dumps({**TURN, **schema}).encode(), path=PATH),
            *(0, 400, "invalid_request_error", 'allow_fields = ["patterns"]'),
        ),
    }
    for what, (text, port, status, kind, words) in rows.items():
        found, _, body = await world.ask(text, port)
        said, message = _shape(body)
        assert (found, said) == (status, kind) and words in message, (what, found, body)
    assert world.reached() == 0
    assert (await world.post(TURN, f"X-Api-Key: {OFTEN}", path=PATH, port=keyed))[0] == 200
    status, headers, body = await world.post(TURN, f"X-Api-Key: {OFTEN}", path=PATH, port=keyed)
    assert (status, _shape(body)[0]) == (429, "rate_limit_error") and int(headers["retry-after"]) > 0
    for name in ("one", "two"):
        world.unlink(name)
    status, headers, body = await world.post(TURN, path=PATH)
    assert (status, _shape(body)[0]) == (503, "overloaded_error") and int(headers["retry-after"]) > 0
    assert world.router
    world.router.terminate()
    world.router.wait()
    status, headers, body = await world.post(TURN, path=PATH)
    assert (status, _shape(body)[0]) == (503, "overloaded_error") and int(headers["retry-after"]) > 0


async def a_model_without_its_paths_is_refused_in_its_shape(world: World) -> None:
    for path in ("/v1/messages", "/v1/messages/count_tokens?beta=true"):
        status, _, body = await world.post(TURN, path=path)
        kind, message = _shape(body)
        assert (status, kind) == (404, "not_found_error")
        assert message == f"tiny does not serve {path.partition('?')[0]}; it has /v1/chat/completions"
    assert world.reached() == 0


@with_model_settings(paths=PATHS, queue=1, slots=0)
async def limits_are_told_in_its_shape(world: World) -> None:
    async with Stream(world.port, SLOW) as stream:
        await stream.until(b" 1 ")
        status, headers, body = await world.post(TURN, path=PATH)
        assert (status, _shape(body)[0]) == (429, "rate_limit_error") and int(headers["retry-after"]) > 0


@with_model_settings(paths=PATHS)
async def errors_of_engines_get_its_shape(world: World) -> None:
    told = '{"error": {"code": 400, "message": "the prompt is too long", "type": "exceed_context_size_error"}}'
    status, headers, body = await world.post(_raw(told, "400 Bad Request"), path=PATH)
    assert (status, _shape(body)) == (400, ("invalid_request_error", "the prompt is too long"))
    assert headers["content-type"] == "application/json"
    status, _, body = await world.post(_raw("x" * 200_000, "500 Oops", "text/plain"), path=PATH)
    assert (status, _shape(body)[0]) == (500, "api_error")
    status, headers, body = await world.post({**TURN, "stand_in": {"closes": True}}, path=PATH)
    assert (status, _shape(body)[0]) == (503, "overloaded_error") and int(headers["retry-after"]) > 0
    # of OpenAI's paths they pass as they are
    status, _, body = await world.post(_raw(told, "400 Bad Request"))
    assert (status, body.decode()) == (400, told)


@with_model_settings(paths=PATHS)
async def a_revoked_key_ends_its_stream_with_an_event_of_its_own(world: World) -> None:
    key = f"X-Api-Key: {ALICE}"
    async with Stream(world.port + 1, SLOW, key, path=PATH) as stream:
        await stream.until(b" 1 ")
        ((name, number),) = (await world.state())["keys"].items()  # type: ignore[attr-defined]
        assert number == 1
        assert (await world.admin(f"POST /gone/{name}"))[0] == 204
        await stream.end()
        event = stream.came.rpartition(b"event: error\ndata: ")[2].partition(b"\n\n")[0]
        assert _shape(event) == ("authentication_error", "this key was revoked")
        assert not stream.is_complete
    assert (await world.admin(f"POST /back/{name}"))[0] == 204
