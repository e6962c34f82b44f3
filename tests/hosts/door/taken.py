"""The output and behaviour of engines under an attacker's control, and their effect on others."""

import asyncio
import json
import os

from door.clients import posting
from door.world import World

LATER = "HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 2\r\n\r\nhi"


def _saying(raw: str, *headers: str) -> bytes:
    asked: bytes = posting(json.dumps({"model": "tiny", "stand_in": {"raw": raw}}).encode(), *headers)
    return asked


async def who_makes_a_fifo_of_its_socket_holds_nobody_up(world: World) -> None:
    engine = world.engines["one"]
    await engine.kill()
    engine.socket.unlink(missing_ok=True)
    os.mkfifo(engine.socket)
    engine.socket.chmod(0o666)
    try:
        for _ in range(4):
            assert b"from two" in (await asyncio.wait_for(world.post({"model": "tiny"}), 5))[2]
    finally:
        # a worker that waits for it would not end with its master
        os.close(os.open(engine.socket, os.O_RDWR | os.O_NONBLOCK))


async def who_makes_a_link_of_its_socket_has_nobody_elses_engine(world: World) -> None:
    """The other one would be given the first one's requests, and its key."""
    engine = world.engines["one"]
    await engine.kill()
    engine.socket.unlink(missing_ok=True)
    engine.socket.symlink_to(world.engines["two"].socket)
    world.unlink("two")
    status, headers, _ = await world.post({"model": "tiny"})
    assert status == 503 and int(headers["retry-after"]) > 0
    assert not world.reached()
    status, _, body = await world.ask(b"GET /health HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n")
    assert (status, json.loads(body)["models"]["tiny"]["instances"]) == (503, {"one": "down", "two": "down"})


async def what_a_browser_gets_is_no_page(world: World) -> None:
    page = "<script>fetch('/v1/models')</script>"
    for kind, wanted in {
        "text/html": "application/octet-stream",
        "TEXT/HTML; charset=utf-8": "application/octet-stream",
        "image/svg+xml": "application/octet-stream",
        "text/javascript": "application/octet-stream",
        "application/json, text/html": "application/octet-stream",
        "application/json;text/html": "application/json",
        "application/json; charset=utf-7": "application/json",
        "Application/JSON; charset=UTF-8": "application/json; charset=utf-8",
        "text/event-stream;charset=utf-8": "text/event-stream; charset=utf-8",
        "text/plain; version=0.0.4": "text/plain; version=0.0.4",
    }.items():
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nWWW-Authenticate: Basic realm=a\r\n"
        status, headers, body = await world.ask(_saying(f"{head}Content-Length: {len(page)}\r\n\r\n{page}"))
        assert (status, headers["content-type"], headers["x-content-type-options"]) == (200, wanted, "nosniff"), kind
        assert body == page.encode() and "www-authenticate" not in headers


async def no_more_than_one_answer_is_taken_for_one(world: World) -> None:
    for status in ("000 A", "100 Continue", "101 Switching Protocols", "103 Early Hints", "199 A", "600 A", "999 A"):
        for more in ((), ("Upgrade: websocket",)):
            said = _saying(f"HTTP/1.1 {status}\r\nContent-Length: {len(LATER)}\r\n\r\n{LATER}", *more)
            got, headers, _ = await world.ask(said)
            assert got == 502 and "set-cookie" not in headers, (status, got, headers)


async def nobody_gets_a_tunnel(world: World) -> None:
    raw = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\ntunnel"
    status, headers, _ = await world.ask(_saying(raw, "Upgrade: a"))
    assert status == 502 and "upgrade" not in headers, (status, headers)


async def what_scrapers_get_has_a_status(world: World) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"nonsense\r\nSet-Cookie: a=b\r\n\r\n<script>")
        writer.close()

    engine = world.engines["one"]
    await engine.kill()
    engine.socket.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(answer, str(engine.socket))
    engine.socket.chmod(0o666)
    status, headers, body = await world.ask(b"GET /metrics/one HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n")
    server.close()
    assert (status, body) == (0, b""), (status, headers, body)


async def what_is_no_number_of_tokens_is_not_counted(world: World) -> None:
    for digits in (10, 30, 400):
        text = json.dumps({"usage": {"prompt_tokens": 7}})[:-2] + "9" * (digits - 1) + "}}"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        assert (await world.ask(_saying(head + text)))[0] == 200
        assert (await world.line())["prompt_tokens"] is None
    said = (await world.admin("GET /metrics"))[1]
    for name in ("one", "two"):
        assert b'prompt_tokens_total{instance="%s"} 0\n' % name.encode() in said, said
