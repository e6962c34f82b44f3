"""What nobody well-meaning sends, as bytes, and what they may get for it."""

from __future__ import annotations

import asyncio
import gzip
import json

from door.clients import posting
from door.world import World

BODY = b'{"model":"tiny","messages":[]}'
CLOSED = 0
"""Instead of a status: the connection ends without an answer."""
MIB = 1 << 20


def _line(line: str, *headers: str, body: bytes = BODY, host: str = "Host: box\r\n") -> bytes:
    given = "".join(f"{one}\r\n" for one in headers)
    head = f"{line}\r\n{host}Connection: close\r\nContent-Type: application/json\r\n{given}"
    return head.encode("latin-1") + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def _head(*headers: str, body: bytes = BODY) -> bytes:
    """A request to chat whose length is said in these headers, or not at all."""
    lines = ("POST /v1/chat/completions HTTP/1.1", "Host: box", "Connection: close", "Content-Type: application/json")
    return "\r\n".join((*lines, *headers)).encode("latin-1") + b"\r\n\r\n" + body


def _chunked(body: bytes = BODY, size: str = "", coding: str = "chunked") -> bytes:
    size = size or f"{len(body):x}"
    return _head(f"Transfer-Encoding: {coding}", body=f"{size}\r\n".encode() + body + b"\r\n0\r\n\r\n")


CHAT = "POST /v1/chat/completions HTTP/1.1"
LENGTH = f"Content-Length: {len(BODY)}"
SMUGGLED = b"GET /health HTTP/1.1\r\nHost: box\r\n\r\n"

ROWS: dict[str, tuple[bytes, set[int]]] = {
    # paths
    "two slashes": (_line("POST //v1/chat/completions HTTP/1.1"), {404}),
    "two slashes within": (_line("POST /v1//chat/completions HTTP/1.1"), {404}),
    "a dot, encoded": (_line("POST /v1/%2e/chat/completions HTTP/1.1"), {400}),
    "a slash, encoded": (_line("POST /v1/chat%2fcompletions HTTP/1.1"), {400}),
    "a letter, encoded": (_line("POST /v1/%63hat/completions HTTP/1.1"), {400}),
    "twice encoded": (_line("POST /v1/%252e/chat/completions HTTP/1.1"), {400}),
    "up and down again": (_line("POST /v1/x/../chat/completions HTTP/1.1"), {400}),
    "up, with a semicolon": (_line("POST /v1/x/..;/chat/completions HTTP/1.1"), {404}),
    "up above": (_line("POST /../v1/chat/completions HTTP/1.1"), {400}),
    "a NUL, encoded": (_line("POST /v1/chat/completions%00 HTTP/1.1"), {400}),
    "a backslash": (_line("POST /v1\\chat\\completions HTTP/1.1"), {404}),
    "a slash at the end": (_line("POST /v1/chat/completions/ HTTP/1.1"), {404}),
    "capitals": (_line("POST /V1/Chat/Completions HTTP/1.1"), {404}),
    "a fragment": (_line("POST /v1/chat/completions#x HTTP/1.1"), {400}),
    "an absolute URI": (_line("POST http://box/v1/chat/completions HTTP/1.1"), {400}),
    "another's absolute URI": (_line("GET http://example.org/v1/models HTTP/1.1", body=b""), {400}),
    "no slash": (_line("POST v1/chat/completions HTTP/1.1"), {400}),
    "an asterisk": (_line("OPTIONS * HTTP/1.1", body=b""), {400}),
    "a space": (_line("POST /v1/chat completions HTTP/1.1"), {400}),
    "a long path": (_line(f"POST /{'a' * 9000} HTTP/1.1"), {414}),
    # what is the engines' own, or ours
    **{
        f"closed: {path}": (_line(f"POST {path} HTTP/1.1"), {404})
        for path in (
            *("/", "/tokenize", "/invocations", "/inference/v1/generate", "/scale_elastic_ep", "/sleep", "/slots"),
            *("/v1/messages", "/v1/load_lora_adapter", "/v1/audio/transcriptions", "/completion", "/docs", "/props"),
            *("/_auth", "/_error", "/@serve", "/route/chat/completions", "/auth", "/state", "/gone/00", "/probe/one"),
        )
    },
    "an instance there is none of": (_line("GET /metrics/three HTTP/1.1", body=b""), {404}),
    "instances, upwards": (_line("GET /metrics/../engines HTTP/1.1", body=b""), {400}),
    # methods
    **{
        f"method {method}": (_line(f"{method} /v1/chat/completions HTTP/1.1"), {405})
        for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND")
    },
    "models, posted": (_line("POST /v1/models HTTP/1.1"), {405}),
    "a tunnel": (_line("CONNECT box:443 HTTP/1.1", body=b""), {400, 405}),
    "small letters": (_line("post /v1/chat/completions HTTP/1.1"), {400}),
    # versions
    "HTTP/0.9": (b"GET /health\r\n\r\n", {CLOSED, 400}),
    "HTTP/1.2": (_line("POST /v1/chat/completions HTTP/1.2"), {400}),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}),
    "HTTP/3": (_line("POST /v1/chat/completions HTTP/3.0"), {400, 505}),
    "TLS to a plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64, {CLOSED, 400}),
    # who says how long the body is
    "length and chunks": (_head(LENGTH, "Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED), {400}),
    "chunks and length": (_head("Transfer-Encoding: chunked", LENGTH, body=b"0\r\n\r\n" + SMUGGLED), {400}),
    "two lengths": (_head(LENGTH, "Content-Length: 3"), {400}),
    "the same length twice": (_head(LENGTH, LENGTH), {400}),
    "a list of lengths": (_head(f"{LENGTH}, {len(BODY)}"), {400}),
    **{
        f"length {length}": (_head(f"Content-Length: {length}"), {400})
        for length in ("-1", "+30", "0x1e", "1e1", "30 0", "", "99999999999999999999")
    },
    "chunked twice": (_chunked(coding="chunked, chunked"), {400, 501}),
    "another coding": (_chunked(coding="xchunked"), {501}),
    "two codings": (_head("Transfer-Encoding: chunked", "Transfer-Encoding: identity", body=b"0\r\n\r\n"), {400}),
    "a compressed coding": (_chunked(coding="gzip, chunked"), {501}),
    "a space before the colon": (_head("Transfer-Encoding : chunked", LENGTH), {400}),
    "a tab before the colon": (_head("Content-Length\t: 3", LENGTH), {400}),
    "a header goes on in the next line": (_head("Transfer-Encoding:", " chunked", LENGTH), {400}),
    "a header without a name": (_head(": x", LENGTH), {400}),
    "a NUL in a header": (_head("X-A: a\0b", LENGTH), {400}),
    "a lone CR in a header": (_head("X-A: a\rTransfer-Encoding: chunked", LENGTH), {400}),
    "chunks in HTTP/1.0": (_chunked().replace(b"HTTP/1.1", b"HTTP/1.0"), {400, 501}),
    "a chunk's length is not a number": (_chunked(size="zz"), {400}),
    "a chunk's length is negative": (_chunked(size="-1"), {400}),
    "a chunk's length runs over": (_chunked(size="ffffffffffffffffff"), {400, 413}),
    "a chunk is longer than said": (_chunked(size="3"), {400}),
    # other headers
    "two hosts": (_line(CHAT, "Host: other"), {400}),
    "no host": (_line(CHAT, host=""), {400}),
    "a host with a slash": (_line(CHAT, host="Host: box/v1\r\n"), {400}),
    "a host with a NUL": (_line(CHAT, host="Host: bo\0x\r\n"), {400}),
    "a host that goes up": (_line(CHAT, host="Host: ..\r\n"), {400}),
    "two keys": (_line(CHAT, "Authorization: Bearer a", "Authorization: Bearer b"), {400}),
    "two types": (_line(CHAT, "Content-Type: text/plain"), {400}),
    "two encodings": (_line(CHAT, "Content-Encoding: identity", "content-encoding: gzip"), {400}),
    "two origins": (_line(CHAT, "Origin: https://chat.example", "Origin: https://chat.example"), {400}),
    "two sessions": (_line(CHAT, "X-Session-Id: a", "x-session-id: b"), {400}),
    "a large header": (_line(CHAT, f"X-A: {'a' * 9000}"), {431}),
    "large headers together": (_line(CHAT, *(f"X-{n}: {'a' * 7000}" for n in range(6))), {431}),
    "many headers": (_line(CHAT, *(f"X-{n}: a" for n in range(100))), {431}),
    "an origin that is not declared": (_line(CHAT, "Origin: https://evil.example"), {403}),
    "no origin at all": (_line(CHAT, "Origin: null"), {403}),
    # bodies
    "no body": (_head(body=b""), {411}),
    "an empty body": (_line(CHAT, body=b""), {400}),
    "65 MB": (_line(CHAT, body=b"x" * (65 * MIB)), {413}),
    "65 MB in chunks": (_chunked(b"x" * (65 * MIB)), {413}),
    "65 MB that are only announced": (_head(f"Content-Length: {65 * MIB}", body=b"{"), {413}),
    "gzip": (_line(CHAT, "Content-Encoding: gzip", body=gzip.compress(BODY)), {415}),
    "multipart": (posting(BODY, path="/v1/completions").replace(b"application/json", b"multipart/form-data"), {415}),
    "not JSON": (_line(CHAT, body=b"model=tiny"), {400}),
    "half of JSON": (_line(CHAT, body=BODY[:-1]), {400}),
    "a list": (_line(CHAT, body=b"[" + BODY + b"]"), {400}),
    "deep JSON": (_line(CHAT, body=b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b',"model":"tiny"}'), {400}),
    "the model twice": (_line(CHAT, body=b'{"model":"tiny","model":"other"}'), {400}),
    "the model twice, escaped": (_line(CHAT, body=b'{"model":"tiny","mod\\u0065l":"other"}'), {400}),
    "the model twice, 8 MB later": (
        _line(CHAT, body=b'{"model":"tiny","a":"' + b"x" * (8 * MIB) + b'","model":"other"}'),
        {400},
    ),
    "no model": (_line(CHAT, body=b'{"messages":[]}'), {400}),
    "a model that is none": (_line(CHAT, body=json.dumps({"model": ["tiny"]}).encode()), {400}),
    "an unknown model": (_line(CHAT, body=b'{"model":"other"}'), {404}),
    "a model of two lines": (_line(CHAT, body=b'{"model":"tiny\\r\\nX-Accel-Redirect: @serve"}'), {400, 404}),
    "a path that the model has not": (_line("POST /v1/embeddings HTTP/1.1"), {400, 404}),
}

SLOW: dict[str, tuple[bytes, set[int]]] = {
    "half a line": (b"POST /v1/chat/comp", {CLOSED, 408}),
    "headers that do not end": (b"POST /v1/chat/completions HTTP/1.1\r\nHost: box\r\n", {CLOSED, 408}),
    "half a body": (_head("Content-Length: 100"), {CLOSED, 408}),
    "half a chunk": (_head("Transfer-Encoding: chunked", body=b"64\r\n{"), {CLOSED, 408}),
    "half a body of 60 MB": (_head(f"Content-Length: {60 * MIB}", body=b"x" * MIB), {CLOSED, 408}),
    "nothing": (b"", {CLOSED}),
}
"""What does not go on: it is not waited for."""


async def nothing_hostile_reaches_an_engine(world: World) -> None:
    wrong = []
    for name, (text, statuses) in ROWS.items():
        status, _, body = await world.ask(text)
        if status not in statuses:
            wrong.append(f"{name}: {status}, not {statuses}: {body[:200]!r}")
        if status and set(json.loads(body)["error"]) != {"message", "type", "param", "code"}:
            wrong.append(f"{name}: {body!r}")
        if world.reached():
            wrong.append(f"{name}: an engine was asked")
            for engine in world.engines.values():
                engine.reached.clear()
    assert not wrong, "\n".join(wrong)


async def what_does_not_go_on_is_not_waited_for(world: World) -> None:
    async def wait(text: bytes) -> int:
        return (await world.ask(text, seconds=15))[0]

    ended = await asyncio.gather(*(wait(text) for text, _ in SLOW.values()))
    wrong = [name for (name, (_, statuses)), status in zip(SLOW.items(), ended, strict=True) if status not in statuses]
    assert not wrong and not world.reached()
