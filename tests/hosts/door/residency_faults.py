"""A service of instances on demand that is not there, is killed, or sends something else than its protocol."""

import asyncio
import json

from door.answering import ASKED, idle
from door.clients import Stream
from door.waking import PLAIN, WAITING, _wake_up, asleep, fall_asleep, stream_error
from door.world import World, until

SILENCE = b": waiting for the service that loads models\n\n"


@asleep
async def a_service_that_is_not_there_is_no_reason_to_hang(world: World) -> None:
    fall_asleep(world)
    world.residency.kill()
    for asked in (PLAIN, ASKED):
        status, headers, body = await world.post(asked)
        assert status == 503 and int(headers["retry-after"]) > 0
        assert "the service that loads models does not answer" in json.loads(body)["error"]["message"]
    # one that says nothing
    await world.residency.start()
    world.residency.greeting = b""
    async with Stream(world.port, ASKED) as stream:
        plain, _ = await asyncio.gather(world.post(PLAIN | {"stream": False}), stream.end())
    assert stream.status == 503, stream.came
    assert plain[0] == 503
    await until(lambda: [one.get("wake") for one in world.lines()][-2:] == ["timeout", "silent"])


@asleep
async def a_service_that_is_killed_begins_again_and_loses_no_request(world: World) -> None:
    fall_asleep(world)
    async with Stream(world.port, ASKED) as stream, Stream(world.port, ASKED) as other:
        await stream.until(WAITING)
        await other.until(WAITING)
        for _ in range(2):
            # in the middle of a line
            await world.residency.waiting[0].send("wait")
            world.residency.kill()
            await world.residency.start()
            await world.residency.wait_for(2, lambda: min(one.age for one in world.residency.waiting) >= 200)
        await _wake_up(world)
        for one in (stream, other):
            await one.end()
            assert one.is_complete and b'"one 3 ' in one.came
    # a service that takes long to start again, while systemd holds its socket
    world.unlink("one")
    async with Stream(world.port, ASKED) as stream:
        await stream.until(WAITING)
        world.residency.kill()
        world.residency.greeting = b""
        await world.residency.start()
        await stream.until(SILENCE, 2)
        await world.residency.wait_for(1, lambda: world.residency.waiting[0].age >= 200)
        await _wake_up(world)
        await stream.end()
    assert stream.is_complete and b'"one 3 ' in stream.came
    world.residency.greeting = b"waiting 1 14\n"
    # one that is killed again and again ends it
    world.unlink("one")
    async with Stream(world.port, ASKED) as stream:
        for _ in range(5):
            await world.residency.wait_for(1)
            world.residency.waiting[0].writer.transport.abort()
            world.residency.waiting[0].is_withdrawn = True
        await stream.end()
    assert stream.is_complete and "does not answer" in str(stream_error(stream)["message"])


HOSTILE = (
    b"waiting 1 14" + b" " * 600 + b"\n",
    b"x" * 600,
    b"\n",
    b"ready \n",
    b"READY\n",
    b"ready\r\n",
    b"waiting 1\n",
    b"waiting -1 5\n",
    b"waiting 1 5 \n",
    b"waiting 99999999 1\n",
    b"waiting 1 1e9\n",
    b"refused\n",
    b"refused none 1 text\n",
    b"refused failed 1 \n",
    b"refused failed x text\n",
    b"refused failed 99999999 text\n",
    b"refused failed 1 " + b"a" * 201 + b"\n",
    b"refused failed 1 a\x1b[2Jb\n",
    b"refused failed 1 caf\xc3\xa9\n",
    b"waiting 1 1\0\n",
    b"\0" * 100 + b"\n",
    b"waiting 1 2\n" * 200,
    b"waiting 1 2\n" * 100_000,
)


@asleep
async def lines_that_are_none_end_the_waiting_and_reach_no_client(world: World) -> None:
    fall_asleep(world)
    for line in HOSTILE:
        world.residency.greeting = line
        for asked in (PLAIN, ASKED):
            async with Stream(world.port, asked) as stream:
                await stream.end()
            begins = b": waiting" in stream.came
            assert (stream.status == 503) is not begins, (line[:50], stream.came)
            assert b"cannot be understood" in stream.came, (line[:50], stream.came)
            assert stream.came.count(b": waiting") <= 1
    # others have their turn meanwhile
    assert (await world.ask(b"GET / HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n", seconds=2))[0] == 200
    await idle(world)
