"""Bodies: slow ones end and take nothing, large ones have a bound for each caller and for all."""

import asyncio
import json
import time

from door.answering import idle
from door.clients import own_address, posting
from door.limiting import KEY
from door.world import OFTEN, World, until

SIZE = 60 << 20
LARGE = posting(b"").replace(b"Content-Length: 0", b"Content-Length: %d" % SIZE)
HUNDRED = json.dumps({"model": "tiny", "filler": "x" * 100_000}).encode()
Open = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _chunked(body: bytes = b"") -> bytes:
    head = posting(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    return head + (b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"")


async def _begin(world: World, number: int, text: bytes = LARGE, port: int = 0, host: str = "127.0.0.1") -> list[Open]:
    """Large bodies that come but for their last MiB."""
    made = []
    before = len(list((world.folder / "run/body").iterdir()))
    for _ in range(number):
        reader, writer = await asyncio.open_connection(host, port or world.port)
        writer.write(text + b"x" * (SIZE - (1 << 20)))
        await writer.drain()
        made.append((reader, writer))
    body = world.folder / "run/body"
    await until(lambda: sum(one.stat().st_size > SIZE - (2 << 20) for one in body.iterdir()) == before + number)
    # a look of the gateway's later, all of them are counted
    await asyncio.sleep(0.2)
    return made


def _abort(bodies: list[Open]) -> None:
    for _, writer in bodies:
        writer.transport.abort()


async def slow_bodies_take_nothing_and_end(world: World) -> None:
    announced = posting(b"").replace(b"Content-Length: 0", b"Content-Length: 100000")
    begun = time.monotonic()

    async def trickle(number: int) -> tuple[bytes, float]:
        source = (f"127.0.0.{2 + number // 2 % 3}", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port, local_addr=source)
        chunks = number < 6
        writer.write(_chunked() if chunks else announced)
        answer = asyncio.ensure_future(reader.read())
        while not answer.done():
            writer.write(b"1\r\nx\r\n" if chunks else b"x")
            await asyncio.wait([answer], timeout=8)
        writer.transport.abort()
        return await answer, time.monotonic() - begun

    slow = [asyncio.create_task(trickle(number)) for number in range(10)]
    await asyncio.sleep(1)
    for host in (own_address(), "127.0.0.1"):
        for text in (posting(HUNDRED), _chunked(b'{"model":"tiny","messages":   []}')):
            assert (await world.ask(text, host=host))[0] == 200, host
    for answer, seconds in await asyncio.gather(*slow):
        head, _, text = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ") and json.loads(text)["error"]["type"] == "invalid_request_error"
        assert 19 < seconds < 30
    assert len(world.reached_bodies()) == 4
    await idle(world)


async def bodies_of_all_callers_have_a_bound(world: World) -> None:
    other, hers = own_address(), LARGE.replace(b"\r\n\r\n", f"\r\n{KEY}\r\n\r\n".encode())
    waiting: list[Open] = []
    try:
        for arguments in ({}, {"host": other}, {"text": hers, "port": world.port + 1}):
            waiting += await _begin(world, 2, **arguments)  # type: ignore[arg-type]
        often = LARGE.replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {OFTEN}\r\n\r\n".encode())
        status, headers, _ = await world.ask(often + b"{", port=world.port + 1)
        assert status == 503 and int(headers["retry-after"]) > 0
        assert (await world.post({"model": "tiny"}))[0] == 200
        assert (await world.ask(_chunked(b'{"model":"tiny"}')))[0] == 200
    finally:
        _abort(waiting)

    async def served() -> None:
        text = json.dumps({"model": "tiny", "filler": "x" * (1 << 20)}).encode()
        while (await world.post(text))[0] != 200:
            await asyncio.sleep(0.01)

    await asyncio.wait_for(served(), 10)
    await idle(world)


async def chunks_beyond_a_callers_share_are_refused_as_they_come(world: World) -> None:
    waiting = await _begin(world, 2)
    try:
        text = _chunked() + b"".join(b"%x\r\n%s\r\n" % (1 << 20, b"x" * (1 << 20)) for _ in range(20))
        status, headers, body = await world.ask(text + b"0\r\n\r\n")
        assert (status, json.loads(body)["error"]["type"]) == (429, "rate_limit_error")
        assert int(headers["retry-after"]) > 0
    finally:
        _abort(waiting)
    await idle(world)


async def keys_behind_one_address_have_a_share_each(world: World) -> None:
    """As clients have it whose network leads out by one address."""
    hers = LARGE.replace(b"\r\n\r\n", f"\r\n{KEY}\r\n\r\n".encode())
    waiting = await _begin(world, 2, hers, world.port + 1)
    text = json.dumps({"model": "tiny", "filler": "x" * (9 << 20)}).encode()
    try:
        more = asyncio.create_task(world.ask(hers + b"{", port=world.port + 1))
        other = posting(text, f"Authorization: Bearer {OFTEN}")
        assert (await world.ask(other, port=world.port + 1))[0] == 200
        assert not more.done()
        assert (await more)[0] == 429
    finally:
        _abort(waiting)
    await idle(world)


async def all_of_loopback_is_one_client_and_keeps_nobody_elses_out(world: World) -> None:
    waiting = await _begin(world, 2)
    text = json.dumps({"model": "tiny", "filler": "x" * (12 << 20)}).encode()
    try:
        # the next one of any address of loopback waits, and is refused in the end; another client's does not
        more = asyncio.create_task(world.ask(LARGE + b"{", source="127.0.0.9"))
        assert (await world.ask(posting(text), host=own_address()))[0] == 200
        assert not more.done()
        assert (await more)[0] == 429
    finally:
        _abort(waiting)
    await idle(world)
    # one that waits is taken once there is room; they are begun anew, for a silent connection is closed
    waiting = await _begin(world, 2)
    try:
        third = asyncio.create_task(world.ask(posting(text), source="127.0.0.2"))
        await asyncio.sleep(0.5)
        assert not third.done()
        waiting[0][1].transport.abort()
        assert (await third)[0] == 200
    finally:
        _abort(waiting)
    await idle(world)


async def broken_chunks_end_no_process(world: World) -> None:
    """A request that nginx refuses while Lua waits for the rest: both have to be done with it."""
    before = world.workers()

    async def broken(number: int, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=world.trusted(port))
        writer.write(_chunked() + b"5\r\nabcde\r\n")
        await writer.drain()
        # about a look of the gateway's, before it and after it
        await asyncio.sleep(0.02 + number % 7 / 100)
        writer.write(b"zz\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        # it stays open on this side: nginx waits for the end
        await asyncio.sleep(0.1)
        writer.transport.abort()

    for port in (world.port, world.port + 2):
        await asyncio.gather(*(broken(number, port) for number in range(100)))
    assert world.workers() == before and (await world.post(HUNDRED))[0] == 200
    await idle(world)
