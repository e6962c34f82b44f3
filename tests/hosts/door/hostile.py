"""Requests that no well-meaning client sends, as bytes, and their answers."""

import asyncio
import gzip
import json
import socket
import time

from door.answering import idle
from door.clients import posting
from door.world import World, until

BODY = b'{"model":"tiny","messages":[]}'
CLOSED = 0
"""Instead of a status: the connection ends without an answer."""
MIB = 1 << 20


def _line(line: str, *headers: str, body: bytes = BODY, host: str = "Host: box\r\n") -> bytes:
    given = "".join(f"{one}\r\n" for one in headers)
    head = f"{line}\r\n{host}Connection: close\r\nContent-Type: application/json\r\n{given}"
    return head.encode("latin-1") + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def _head(*headers: str, body: bytes = BODY) -> bytes:
    """A request to chat with the length of its body in these headers, or in none."""
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
    # headers of the engines' own, or ours
    **{
        f"closed: {path}": (_line(f"POST {path} HTTP/1.1"), {404})
        for path in (
            *("/tokenize", "/invocations", "/inference/v1/generate", "/scale_elastic_ep", "/sleep", "/slots"),
            *("/v1/files", "/v1/load_lora_adapter", "/v1/audio/transcriptions", "/completion", "/docs", "/props"),
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
    "the root, posted": (_line("POST / HTTP/1.1"), {405}),
    "models, posted": (_line("POST /v1/models HTTP/1.1"), {405}),
    "a tunnel": (_line("CONNECT box:443 HTTP/1.1", body=b""), {400, 405}),
    "small letters": (_line("post /v1/chat/completions HTTP/1.1"), {400}),
    # versions
    "HTTP/0.9": (b"GET /health\r\n\r\n", {CLOSED, 400}),
    "HTTP/1.2": (_line("POST /v1/chat/completions HTTP/1.2"), {400}),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}),
    "HTTP/3": (_line("POST /v1/chat/completions HTTP/3.0"), {400, 505}),
    "TLS to a plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64, {CLOSED, 400}),
    # each way to state the length of a body
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
    "a chunk's length with a sign": (_chunked(size=f"+{len(BODY):x}"), {400}),
    "a chunk's length as a program writes it": (_chunked(size=f"0x{len(BODY):x}"), {400}),
    "a chunk's length with an underscore": (_chunked(size="1_e"), {400}),
    "a chunk's length after a space": (_chunked(size=f" {len(BODY):x}"), {400}),
    "a chunk's length is nothing": (_chunked(size=";"), {400}),
    "a chunk without its end": (
        _head("Transfer-Encoding: chunked", body=b"%x\r\n%s0\r\n\r\n" % (len(BODY), BODY)),
        {400},
    ),
    "lines of chunks that end in LF alone, and another request": (
        _head("Transfer-Encoding: chunked", body=b"0\n\n" + SMUGGLED),
        {400},
    ),
    "chunks that end in an extension with a request in it": (
        _head("Transfer-Encoding: chunked", body=b"0;\r\n" + SMUGGLED),
        {400},
    ),
    "a coding that is quoted": (_chunked(coding='"chunked"'), {400, 501}),
    "a coding with a parameter": (_chunked(coding="chunked;q=1"), {400, 501}),
    "a coding of a vertical tab": (_chunked(coding="\x0bchunked"), {400, 501}),
    "a coding of nothing": (_head("Transfer-Encoding:", LENGTH), {400, 501}),
    "chunks, called by an underscore": (_head("Transfer_Encoding: chunked", body=b"0\r\n\r\n"), {411}),
    "a length in a header called by an underscore": (_head("Content_Length: 30"), {411}),
    # other headers
    "a carriage return before a colon": (_head("X-A\r: x", LENGTH), {400}),
    "a header of a lone LF, and another request": (
        b"POST /v1/chat/completions HTTP/1.1\nHost: box\nTransfer-Encoding: chunked\nContent-Length: 3\n\n0\r\n\r\n",
        {400},
    ),
    "a name of NUL": (_head("\0: x", LENGTH), {400}),
    "a name with a space": (_head("X A: x", LENGTH), {400}),
    "HTTP/2 by an upgrade": (
        _line("GET /health HTTP/2.0", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__", body=b""),
        {400, 505},
    ),
    "HTTP/2 without asking, and frames": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0", {400, 505}),
    "another expectation": (_line(CHAT, "Expect: 200-ok", body=b"[]"), {400, 417}),
    "two expectations": (_line(CHAT, "Expect: 100-continue", "Expect: 100-continue"), {400}),
    "an absolute URI of TLS": (_line("POST https://box/v1/chat/completions HTTP/1.1"), {400}),
    "an absolute URI with a key in it": (_line("POST http://a:b@box/v1/chat/completions HTTP/1.1"), {400}),
    "an absolute URI without a path": (_line("GET http://box HTTP/1.1", body=b""), {400}),
    "a path that is a host": (_line("POST //box/v1/chat/completions HTTP/1.1"), {404}),
    "half of a percent": (_line("POST /v1/chat/completions% HTTP/1.1"), {400}),
    "a percent of no digits": (_line("POST /v1/chat/completions%zz HTTP/1.1"), {400}),
    "a question, encoded": (_line("POST /v1/chat/completions%3fa HTTP/1.1"), {400}),
    "a tab in the path": (_line("POST /v1/chat\tcompletions HTTP/1.1"), {400}),
    "a wide slash": (_line("POST /v1/chat\xef\xbc\x8fcompletions HTTP/1.1"), {400, 404}),
    "a slash of too many bytes": (_line("POST /v1/chat%c0%afcompletions HTTP/1.1"), {400}),
    "a model's name that goes up": (_line("GET /v1/models/../../state HTTP/1.1", body=b""), {400, 404}),
    "a model's name that goes up, encoded": (
        _line("GET /v1/models/%2e%2e%2f%2e%2e%2fstate HTTP/1.1", body=b""),
        {404, 400},
    ),
    "a model's name with a NUL": (_line("GET /v1/models/tiny%00 HTTP/1.1", body=b""), {400, 404}),
    "a model's name that asks": (_line("GET /v1/models/x%3f/../../state HTTP/1.1", body=b""), {400, 404}),
    "a model's name of two requests": (
        _line("GET /v1/models/a%20HTTP/1.1%0d%0aX-Rw-Listener:%20keyed%0d%0a%0d%0aGET%20/state HTTP/1.1", body=b""),
        {400, 404},
    ),
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
    "a body where none is taken": (_line("GET /v1/models HTTP/1.1"), {400}),
    "chunks where none are taken": (_chunked().replace(b"POST /v1/chat/completions", b"GET /health"), {400}),
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
    "a model that is invalid": (_line(CHAT, body=json.dumps({"model": ["tiny"]}).encode()), {400}),
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
"""Requests that stall: they are not waited for."""


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


async def what_an_honest_client_may_say_is_taken_once(world: World) -> None:
    """Odd, allowed, and easily understood in two ways: one request each, and no byte more."""
    rows = {
        "a part of the answer": _line(CHAT, "Range: bytes=0-1", "If-Range: x", "If-None-Match: *"),
        "an upgrade": _line(CHAT, "Upgrade: websocket", "Sec-WebSocket-Key: AAAA", "Sec-WebSocket-Version: 13"),
        "an upgrade to HTTP/2": _line(CHAT, "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
        "extensions of chunks": _chunked(size=f'{len(BODY):X};a=b;c="d"'),
        "zeros before a chunk's length": _chunked(size=f"000{len(BODY):x}"),
        "trailers": _head(
            "Transfer-Encoding: chunked",
            "Trailer: Authorization",
            body=b"%x\r\n%s\r\n0\r\nAuthorization: Bearer x\r\nX-Rw-Key: 00\r\n\r\n" % (len(BODY), BODY),
        ),
        "bytes of the body before a closing one": _line(CHAT) + b"\r\n",
        "a header that connections are said to end with": _line(CHAT, "Proxy-Connection: x", "Keep-Alive: 99999"),
        "who else it came from": _line(
            CHAT, "X-Forwarded-Host: evil", "Forwarded: host=evil", "X-Original-URL: /state"
        ),
        "another method": _line(CHAT, "X-HTTP-Method-Override: DELETE", "X-Method-Override: PUT"),
        "an answer's direction": _line(CHAT, "X-Accel-Redirect: /_auth", "X-Sendfile: /etc/passwd"),
    }
    for name, text in rows.items():
        status, headers, body = await world.ask(text)
        assert (status, headers.get("upgrade")) == (200, None), (name, status, body)
        assert body.count(b"HTTP/1.") == 0 and world.reached() == 1, name
        ((first, told, _),) = (row for engine in world.engines.values() for row in engine.reached)
        assert first == CHAT
        assert not told.keys() - {
            *("host", "connection", "authorization", "content-type", "content-length", "accept")
        }, (name, told)
        for engine in world.engines.values():
            engine.reached.clear()


async def requests_one_behind_another_are_answered_in_turn(world: World) -> None:
    def chat_request(model: str, closing: bool = False) -> bytes:
        text = posting(json.dumps({"model": model}).encode())
        return text if closing else text.replace(b"Connection: close", b"Connection: keep-alive")

    text = (
        chat_request("tiny")
        + chat_request("none")
        + chat_request("tiny")
        + b"GET /health HTTP/1.1\r\nHost: box\r\n\r\n"
        + chat_request("tiny", True)
    )
    _, _, body = await world.ask(text)
    # the rest after the first one's head is the others', each whole
    said = [part[1:4] for part in body.split(b"HTTP/1.1")][1:]
    assert said == [b"404", b"200", b"200", b"200"], body
    assert world.reached() == 3
    # many, without a reader for any: none is lost to its engine, or stays
    _, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(chat_request("tiny") * 200)
    await writer.drain()
    writer.transport.abort()
    await asyncio.sleep(1)
    assert (await world.post({"model": "tiny"}))[0] == 200
    await idle(world)


async def who_says_that_he_has_said_all_gets_his_answer(world: World) -> None:
    """Half-closed: some clients shut down their side and read on; nginx takes that for going away."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(posting(json.dumps({"model": "tiny", "stand_in": {"waits": 0.5}}).encode()))
    writer.write_eof()
    said = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    assert said.startswith(b"HTTP/1.1 200 ") or said == b"", said
    # either way nothing of it stays
    await idle(world)


async def who_reads_nothing_holds_up_nobody_else(world: World) -> None:
    """Its engine is not drained faster than it reads, and others' streams go on."""
    asked = {"model": "tiny", "stream": True, "stand_in": {"every": 0, "chunks": 100_000}}
    silent = []
    for _ in range(20):
        one = socket.create_connection(("127.0.0.1", world.port))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(posting(json.dumps(asked).encode()))
        silent.append(one)
    await until(lambda: world.reached() == len(silent))
    began = time.monotonic()
    for _ in range(5):
        assert (await world.post({"model": "tiny"}))[0] == 200
    assert time.monotonic() - began < 10
    for one in silent:
        one.close()
    await idle(world)


async def headers_byte_by_byte_are_waited_for_no_longer_than_all_at_once(world: World) -> None:
    """Slowloris: a byte now and then is no progress of a header's."""

    async def trickled() -> float:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        began = time.monotonic()
        gone = asyncio.ensure_future(reader.read())
        for byte in b"POST /v1/chat/completions HTTP/1.1\r\nHost: box\r\nX-A: " + b"a" * 100:
            if gone.done():
                break
            writer.write(bytes([byte]))
            await asyncio.wait([gone], timeout=0.5)
        took = time.monotonic() - began
        writer.transport.abort()
        await asyncio.gather(gone, return_exceptions=True)
        return took

    tasks = [asyncio.create_task(trickled()) for _ in range(200)]
    await asyncio.sleep(2)
    assert (await world.post({"model": "tiny"}))[0] == 200
    assert max(await asyncio.gather(*tasks)) < 20


async def what_does_not_go_on_is_not_waited_for(world: World) -> None:
    async def wait(text: bytes) -> int:
        return (await world.ask(text, seconds=15))[0]

    ended = await asyncio.gather(*(wait(text) for text, _ in SLOW.values()))
    wrong = [name for (name, (_, statuses)), status in zip(SLOW.items(), ended, strict=True) if status not in statuses]
    assert not wrong and not world.reached()
