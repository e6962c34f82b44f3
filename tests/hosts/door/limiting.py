"""Which clients are let in, how many at once, and for how long."""

import asyncio
import hashlib
import json
import signal
import socket

from door.answering import ASKED, SLOW, idle
from door.clients import Stream, own_address, posting
from door.world import ALICE, OFTEN, World, until, with_model_settings

ID = hashlib.sha256(ALICE.encode()).hexdigest()[:16]
KEY = f"Authorization: Bearer {ALICE}"
_CHUNKS = posting(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")


def _error(body: bytes) -> dict[str, object]:
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error  # type: ignore[no-any-return]


async def a_listener_with_keys_wants_one(world: World) -> None:
    for headers in (
        (),
        ("Authorization: Bearer rw-nobody",),
        ("Authorization: Bearer ",),
        (f"Authorization: {ALICE}",),
    ):
        status, got, body = await world.post({"model": "tiny"}, *headers, port=world.port + 1)
        assert (status, got["www-authenticate"]) == (401, "Bearer")
        assert (_error(body)["type"], _error(body)["code"]) == ("authentication_error", "invalid_api_key")
    assert world.reached() == 0
    assert (await world.post({"model": "tiny"}, KEY, port=world.port + 1))[0] == 200


async def a_listener_without_keys_does_not_look_at_one(world: World) -> None:
    for sent in ("Bearer ", "Bearer ignored", "Basic x", "", "Bearer " + "a" * 5000):
        assert (await world.post({"model": "tiny"}, f"Authorization: {sent}"))[0] == 200
    assert all(one["key"] is None for one in world.lines())


async def nginx_without_keys_lets_nobody_past_a_router_with_keys(world: World) -> None:
    settings = world.folder / "conf/settings.json"
    found = json.loads(settings.read_text())
    found["listeners"]["lan"]["keys"] = True
    settings.write_text(json.dumps(found))
    assert world.router
    world.router.send_signal(signal.SIGHUP)
    for _ in range(500):
        status, _, body = await world.post({"model": "tiny"}, KEY, f"X-Rw-Key: {ID}")
        if status != 200:
            break
    assert (status, _error(body)["code"]) == (401, "invalid_api_key")


async def nobody_names_himself(world: World) -> None:
    forged = (
        f"X-Rw-Key: {ID}",
        "X-Rw-Name: alice",
        "X-Rw-Listener: lan",
        "X-Rw-Group: tiny",
        "X-Accel-Redirect: @serve",
    )
    assert (await world.post({"model": "tiny"}, *forged, port=world.port + 1))[0] == 401
    assert world.reached() == 0


async def a_key_that_asks_too_often_is_told_when(world: World) -> None:
    often = f"Authorization: Bearer {OFTEN}"
    assert (await world.post({"model": "tiny"}, often, port=world.port + 1))[0] == 200
    status, headers, body = await world.post({"model": "tiny"}, often, port=world.port + 1)
    assert status == 429 and 0 < int(headers["retry-after"]) <= 60
    assert _error(body)["type"] == "rate_limit_error"
    assert world.reached() == 1


async def a_key_has_its_streams_and_no_more(world: World) -> None:
    streams = [Stream(world.port + 1, SLOW, KEY) for _ in range(8)]
    for stream in streams:
        await stream.__aenter__()
        await stream.until(b" 1 ")
    assert (await world.state())["keys"] == {ID: 8}
    for _ in range(3):
        status, headers, body = await world.post({"model": "tiny"}, KEY, port=world.port + 1)
        assert status == 429 and int(headers["retry-after"]) > 0, body
        assert _error(body)["type"] == "rate_limit_error"
    assert (await world.state())["keys"] == {ID: 8}
    assert (await world.post({"model": "tiny"}))[0] == 200
    await streams[0].__aexit__()
    for _ in range(100):
        if (await world.state())["keys"] == {ID: 7}:
            break
        await asyncio.sleep(0.01)
    assert (await world.post({"model": "tiny"}, KEY, port=world.port + 1))[0] == 200
    for stream in streams[1:]:
        await stream.__aexit__()
    await idle(world)


@with_model_settings(slots=2, queue=3)
async def who_comes_when_the_queue_is_full_is_told_to_come_later(world: World) -> None:
    streams = [Stream(world.port, SLOW) for _ in range(7)]
    for stream in streams:
        await stream.__aenter__()
        await stream.until(b" 1 ")
    counts = await world.under_way()
    assert sorted(counts.values()) == [3, 4]
    for _ in range(3):
        status, headers, body = await world.post({"model": "tiny"})
        assert status == 429 and int(headers["retry-after"]) > 0
        assert _error(body)["type"] == "rate_limit_error"
    first = await streams[0].whose()
    await streams[0].__aexit__()
    await world.counts(**(counts | {first: counts[first] - 1}))
    assert (await world.post({"model": "tiny"}))[0] == 200
    for stream in streams:
        await stream.__aexit__()
    await idle(world)


async def streams_of_a_key_that_is_revoked_end_and_no_others(world: World) -> None:
    async with Stream(world.port + 1, SLOW, KEY) as his, Stream(world.port, SLOW) as other:
        await his.until(b" 1 ")
        await other.until(b" 1 ")
        assert (await world.admin(f"POST /gone/{ID}"))[0] == 204
        await asyncio.wait_for(his.end(), 3)
        assert not his.is_complete
        status, _, body = await world.post({"model": "tiny"}, KEY, port=world.port + 1)
        assert status == 401 and _error(body)["code"] == "invalid_api_key"
        assert (await world.admin(f"POST /back/{ID}"))[0] == 204
        assert (await world.post({"model": "tiny"}, KEY, port=world.port + 1))[0] == 200
        at = len(other.came)
        await other._more()
        assert len(other.came) > at
    await idle(world)


async def fifty_who_come_at_once_are_counted_once_each(world: World) -> None:
    async def come_and_go(number: int) -> None:
        async with Stream(world.port, SLOW) as stream:
            if number % 3:
                await stream.until(b" 1 ")
            elif number % 2:
                await asyncio.sleep(number / 1000)

    for _ in range(4):
        await asyncio.gather(*(come_and_go(number) for number in range(50)))
    await idle(world)
    done = {"stand_in": {"chunks": 2}}
    answers = await asyncio.gather(*(world.post(ASKED | done) for _ in range(50)))
    assert {status for status, *_ in answers} == {200}
    await idle(world)


async def without_a_router_nobody_is_let_in(world: World) -> None:
    assert world.router
    world.router.terminate()
    world.router.wait()
    for port in (world.port, world.port + 1):
        status, headers, body = await world.post({"model": "tiny"}, KEY, port=port)
        assert status == 503 and int(headers["retry-after"]) > 0
        assert _error(body)["type"] == "server_error"
    assert world.reached() == 0
    world.start_router()
    assert (await world.post({"model": "tiny"}))[0] == 200


async def idle_connections_keep_nobody_out_and_do_not_stay(world: World) -> None:
    idle_ones = [socket.create_connection(("127.0.0.1", world.port)) for _ in range(400)]
    answers = await asyncio.gather(*(world.post({"model": "tiny"}) for _ in range(20)))
    assert {status for status, *_ in answers} == {200}
    for one in idle_ones:
        one.settimeout(15)
    assert {await asyncio.to_thread(one.recv, 1) for one in idle_ones} == {b""}


async def who_is_refused_again_and_again_does_not_fill_the_disk(world: World) -> None:
    async def refused(times: int) -> None:
        asked = b"GET /v1/nothing HTTP/1.1\r\nHost: a\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(asked * (times - 1) + asked.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        said = await asyncio.wait_for(reader.read(), 20)
        assert said.count(b"HTTP/1.1 404 ") == times
        writer.close()

    # more than two minutes' share, whatever minute it is
    for _ in range(15):
        await refused(100)
    assert (await world.post({"model": "tiny"}))[0] == 200
    await until(lambda: world.lines()[-1]["status"] == 200)
    assert 600 <= sum(line["status"] == 404 for line in world.lines()) <= 1200
    assert "in a minute: its others are in /metrics alone" in world.stderr()
    metrics = (await world.admin("GET /metrics"))[1]
    assert b'requests_total{status="404",instance="",model=""} 1500' in metrics


async def _burst(host: str, port: int, text: bytes, times: int) -> tuple[int, int]:
    """Send a request that often; the last answer's status, and the number of answers that can be read."""
    reader, writer = await asyncio.open_connection(host, port)
    came = b""
    try:
        writer.write(text * times)
        while came.count(b"HTTP/1.1 ") < times:
            # after one that ends a connection the others are thrown away, which takes a while
            if not (part := await asyncio.wait_for(reader.read(1 << 16), 0.3 if came else 10)):
                break
            came += part
    except (ConnectionError, TimeoutError, asyncio.TimeoutError):
        # it has closed on what it had not read
        came = came or b"HTTP/1.1 400 "
    writer.transport.abort()
    _, found, last = came.rpartition(b"HTTP/1.1 ")
    return int(last[:3]) if found else 0, came.count(b"HTTP/1.1 ")


async def refusals_write_no_line_each_to_the_journal(world: World) -> None:
    """Of each kind that a client without a key can cause, many by few connections; standard error is the journal."""
    ask = b"GET %s HTTP/1.1\r\nHost: box\r\n\r\n"
    large = posting(b"").replace(b"Content-Length: 0", b"Content-Length: 999999999").replace(b"close", b"keep-alive")
    kinds = {
        "metrics": (world.port + 1, "::1", ask % (b"/metrics?" + b"x" * 2000), 3000),
        "unknown path": (world.port, "127.0.0.1", ask % b"/nothing", 100),
        "no key": (world.port + 1, "127.0.0.1", posting(b"{}").replace(b"close", b"keep-alive"), 100),
        "no length": (world.port, "127.0.0.1", b"POST /v1/completions HTTP/1.1\r\nHost: box\r\n\r\n", 100),
        "too large": (world.port, "127.0.0.1", large, 100),
        "no request": (world.port, "127.0.0.1", b"nonsense\r\n\r\n", 100),
        "large header": (world.port, "127.0.0.1", (ask % b"/health")[:-2] + b"X: " + b"x" * 9000 + b"\r\n\r\n", 100),
        "long line": (world.port, "127.0.0.1", ask % (b"/" + b"x" * 9000), 100),
        "bad chunk": (world.port, "127.0.0.1", _CHUNKS + b"zz\r\n", 100),
        "bad chunk to nothing": (world.port, "127.0.0.1", _CHUNKS.replace(b"/v1", b"/v0") + b"zz\r\n", 100),
        "plain to TLS": (world.port + 2, "127.0.0.1", ask % b"/health", 100),
        "no handshake": (world.port + 2, "127.0.0.1", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 100),
    }

    async def repeat(kind: str, share: int) -> None:
        port, host, text, times = kinds[kind]
        left = times // share
        while left > 0:
            status, answers = await _burst(host, port, text, min(left, 50))
            assert status // 100 in (0, 4), (kind, status)
            left -= max(1, answers)

    for kind in kinds:
        before = len(world.stderr())
        await asyncio.gather(*(repeat(kind, 10) for _ in range(10)))
        assert len(world.stderr()) - before < 8192, (kind, world.stderr()[before:][:1000])
    assert len(world.stderr()) < 32 << 10
    # two minutes' share at most, whatever minute it is
    assert len(world.lines()) <= 1200


def _is_open(one: socket.socket) -> bool:
    try:
        return one.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


async def half_heads_of_one_address_leave_places_for_others(world: World) -> None:
    """More than all processes have, of all addresses of loopback."""
    async with Stream(world.port, SLOW) as stream:
        await stream.until(b" 1 ")
        open_ones = []
        try:
            for number in range(9000):
                source = (f"127.0.0.{2 + number % 50}", 0)
                open_ones.append(socket.create_connection(("127.0.0.1", world.port), source_address=source))
                open_ones[-1].sendall(b"GET /hea")
                if number % 100 == 0:
                    await asyncio.sleep(0)
            # sooner than nginx gives them up for their heads
            await until(lambda: sum(map(_is_open, open_ones)) <= 2 * 1024, 8)
            for _ in range(20):
                assert (await world.ask(posting(b'{"model": "tiny"}'), host=own_address()))[0] == 200
                assert (await world.post({"model": "tiny"}))[0] == 200
            at = len(stream.came)
            await stream._more()
            assert len(stream.came) > at
        finally:
            for one in open_ones:
                one.close()
    await idle(world)
