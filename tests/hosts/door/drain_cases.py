"""Instances that are about to be stopped: requests that still get there, and the answer to one that takes too long."""

import asyncio
import json
import time

from door.answering import ASKED, SLOW, idle
from door.clients import Stream
from door.world import World, until


async def _say(world: World, what: str, name: str) -> int:
    """Tell nginx of an instance; how many requests are under way there."""
    status, said = await world.admin(f"POST /{what}/{name}")
    assert status == 200
    return int(said)


async def one_that_leaves_gets_nothing_new_and_goes_on_with_what_it_has(world: World) -> None:
    async with Stream(world.port, SLOW) as stream:
        name = await stream.whose()
        assert await _say(world, "leave", name) == 1
        answers = await asyncio.gather(*(world.post({"model": "tiny"}) for _ in range(20)))
        assert {status for status, *_ in answers} == {200}
        assert len(world.engines[name].reached) == 1
        at = len(stream.came)
        await stream._more()
        assert len(stream.came) > at
        assert await _say(world, "leave", name) == 1
    await idle(world)
    assert await _say(world, "leave", name) == 0


async def who_asks_when_all_leave_is_told_to_come_again(world: World) -> None:
    for name in world.engines:
        await _say(world, "leave", name)
    status, headers, body = await world.post({"model": "tiny"})
    assert status == 503 and int(headers["retry-after"]) > 0
    assert json.loads(body)["error"]["type"] == "server_error"
    assert world.reached() == 0
    await _say(world, "stay", "two")
    assert (await world.post({"model": "tiny"}))[0] == 200
    assert len(world.engines["two"].reached) == 1


async def one_that_is_not_stopped_after_all_is_asked_again_by_itself(world: World) -> None:
    world.unlink("two")
    await _say(world, "leave", "one")
    assert (await world.post({"model": "tiny"}))[0] == 503
    began = time.monotonic()
    while (await world.post({"model": "tiny"}))[0] != 200:
        assert time.monotonic() - began < 15
        await asyncio.sleep(0.1)


async def a_stream_that_does_not_end_is_told_why_and_no_other(world: World) -> None:
    async with Stream(world.port, SLOW) as one, Stream(world.port, SLOW) as two:
        name = await one.whose()
        assert await two.whose() != name
        assert await _say(world, "cut", name) == 1
        await asyncio.wait_for(one.end(), 5)
        assert not one.is_complete
        assert b'"code":"service_unavailable"' in one.came
        at = len(two.came)
        await two._more()
        assert len(two.came) > at
        await until(lambda: not world.engines[name].open, 2)
        assert await _say(world, "leave", name) == 0
        # its replacement is asked at once
        await _say(world, "stay", name)
        async with Stream(world.port, SLOW) as next_one:
            assert await next_one.whose() == name
            await asyncio.sleep(1.5)
            await next_one.until(b" 12 ")
    await idle(world)


async def an_answer_that_is_no_stream_is_not_cut(world: World) -> None:
    asking = asyncio.create_task(world.post(ASKED | {"stream": False, "stand_in": {"waits": 1.5}}))
    await until(world.reached)
    (name,) = (name for name, engine in world.engines.items() if engine.reached)
    assert await _say(world, "cut", name) == 1
    status, _, body = await asking
    assert status == 200
    assert json.loads(body)["choices"][0]["message"]["content"] == f"from {name}"


async def nobody_but_root_and_the_gateway_says_who_leaves(world: World) -> None:
    for line in ("GET /leave/one", "POST /leave/", "POST /leave/../one", "POST /leave/one/two", "POST /gone/one"):
        assert (await world.admin(line))[0] == 404
    for path in ("/leave/one", "/cut/one", "/v1/leave/one"):
        assert (await world.post({"model": "tiny"}, path=path))[0] == 404
    assert (await world.post({"model": "tiny"}))[0] == 200


async def one_that_runs_beside_is_asked_in_its_place_and_the_old_one_ends_what_it_has(world: World) -> None:
    world.unlink("two")
    beside = world.engines["two"]
    async with Stream(world.port, SLOW) as stream:
        assert await stream.whose() == "one"
        (world.folder / "links/one.beside").symlink_to(beside.socket)
        answers = await asyncio.gather(*(world.post({"model": "tiny"}) for _ in range(20)))
        assert {status for status, *_ in answers} == {200}
        assert len(beside.reached) == 20
        # it is asked as the one in whose place it is
        assert beside.reached[0][1]["authorization"] == "Bearer secret-of-one"
        assert (await _say(world, "leave", "one"), await _say(world, "leave", "one.beside")) == (1, 0)
        await _say(world, "stay", "one.beside")
        # only the old one's streams are cut
        async with Stream(world.port, SLOW) as newer:
            assert await newer.whose() == "two"
            await _say(world, "cut", "one")
            await asyncio.wait_for(stream.end(), 5)
            assert b'"code":"service_unavailable"' in stream.came
            at = len(newer.came)
            await newer._more()
            assert len(newer.came) > at
            # without the old one's link, it is there
            world.unlink("one")
            assert (await world.post({"model": "tiny"}))[0] == 200
            status, _, body = await world.ask(b"GET /health HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n")
            assert (status, json.loads(body)["models"]["tiny"]["instances"]["one"]) == (200, "ok")
            # and when the one that comes to stay is there, that is asked again
            world.link("one")
            world.unlink("one.beside")
            await _say(world, "stay", "one")
            assert (await world.post({"model": "tiny"}))[0] == 200
            assert await _say(world, "leave", "one.beside") == 1
    await idle(world)
    assert {name for name in world.engines if len(world.engines[name].reached) > 20} == {"two"}
    assert len(world.engines["one"].reached) == 2
