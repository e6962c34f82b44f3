"""Requests for a model that is started on demand: how they wait, and what they get."""

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from door.answering import ASKED, SLOW, idle
from door.clients import Stream, join_chunks
from door.counting import _has
from door.world import ALICE, GENTLE, QUIET, World, until, with_model_settings

KEY = f"Authorization: Bearer {ALICE}"
ID = hashlib.sha256(ALICE.encode()).hexdigest()[:16]
PLAIN = {"model": "tiny"}
PATHS = ["chat/completions", "messages", "responses"]
WAITING = b": waiting, position 1, about 14 s\n\n"
asleep = with_model_settings(on_demand=["one"])


def fall_asleep(world: World) -> None:
    for name in world.engines:
        (world.folder / "links" / name).unlink(missing_ok=True)


async def _wake_up(world: World) -> None:
    """The instance is ready."""
    world.link("one")
    await world.residency.settle("ready\n")


@asynccontextmanager
async def woken_stream(world: World, asked: dict[str, object], *headers: str, port: int = 0) -> AsyncIterator[Stream]:
    """A stream that has waited, and for which an instance is ready."""
    fall_asleep(world)
    async with Stream(port or world.port, asked, *headers) as stream:
        await stream.until(WAITING)
        await _wake_up(world)
        yield stream


def stream_body(stream: Stream) -> bytes:
    """The body that came, without the sizes of its chunks."""
    return join_chunks(stream.came.partition(b"\r\n\r\n")[2])[0]


def stream_events(stream: Stream) -> list[bytes]:
    return [one for one in stream_body(stream).split(b"\n\n") if one.strip() and not one.startswith(b":")]


def stream_error(stream: Stream) -> dict[str, object]:
    """The error that is a stream's only event, before its mark."""
    (event,) = [one for one in stream_events(stream) if one.strip() != b"data: [DONE]"]
    return json.loads(event.rpartition(b"data: ")[2])["error"]  # type: ignore[no-any-return]


@asleep
async def a_stream_gets_comments_until_its_model_is_there_and_then_the_answer(world: World) -> None:
    # as of an instance that was there all the time
    world.unlink("two")
    _, plain, answer = await world.post(ASKED)
    assert not world.residency.came
    world.asked = 0
    world.unlink("one")
    async with Stream(world.port, ASKED) as stream:
        await stream.until(WAITING)
        assert stream.status == 200
        (one,) = world.residency.waiting
        assert one.line == "wake one lan - 0"
        state = (await world.state())["instances"]["one"]  # type: ignore[index]
        assert (state["under_way"], state["waiting"]) == (0, 1)
        await asyncio.sleep(1.1)
        await one.send("waiting 2 -\n")
        await stream.until(b": waiting, position 2\n\n")
        await _wake_up(world)
        await stream.end()
    assert stream.is_complete
    assert b"data:" + stream_body(stream).partition(b"data:")[2] == answer, stream.came
    head = {line.partition(b":")[0].lower() for line in stream.came.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]}
    assert {name.decode() for name in head} == plain.keys() - {"cut"} | {"cache-control"}
    line, headers, body = world.engines["one"].reached[-1]
    assert line == "POST /v1/chat/completions HTTP/1.1"
    assert headers == {
        "host": "localhost",
        "connection": "close",
        "authorization": "Bearer secret-of-one",
        "content-type": "application/json",
        "content-length": str(len(body)),
    }
    assert (headers, body) == world.engines["one"].reached[0][1:]
    await idle(world)
    await until(lambda: len(world.lines()) >= 2)
    found = world.lines()[-1]
    assert (found["status"], found["instance"], found["wake"], found["completion_tokens"]) == (200, "one", "ready", 3)
    assert 1 < found["waited"] < found["first"] < found["duration"], found  # type: ignore[operator]
    assert "wake" not in world.lines()[0]
    metrics = (await world.admin("GET /metrics"))[1].decode()
    assert 'rigwright_gateway_wakes_total{outcome="ready",model="tiny"} 1\n' in metrics
    assert 'rigwright_gateway_waiting{instance="one"} 0\n' in metrics
    assert 'rigwright_gateway_wake_seconds_count{model="tiny"} 1\n' in metrics


@with_model_settings(on_demand=["one"], usage_on_request=True)
async def its_tokens_are_counted_and_an_event_that_was_not_asked_for_is_left_out(world: World) -> None:
    for how in ({}, {"pieces": 7}, {"bare": True}):
        async with woken_stream(world, ASKED | {"stand_in": how}, KEY, port=world.port + 1) as stream:
            await stream.end()
        assert stream.is_complete
        body = stream_body(stream)
        assert (b'"usage"' in body, body.count(b'"content"'), body.endswith(b"data: [DONE]\n\n")) == (False, 4, True)
        assert json.loads(world.reached_bodies()[-1])["stream_options"] == {"include_usage": True}
    assert {one.line for one in world.residency.came} == {f"wake one keyed {ID} 1"}
    await _has(world, "alice tiny 3 21 9 0 0")


@asleep
async def other_requests_wait_and_go_the_ordinary_way(world: World) -> None:
    world.unlink("two")
    ordinary = await world.post(PLAIN)
    world.unlink("one")
    asking = asyncio.create_task(world.post(PLAIN))
    await world.residency.wait_for(1)
    await _wake_up(world)
    assert await asking == ordinary or {**(await asking)[1], "date": ""} == {**ordinary[1], "date": ""}
    assert ((await world.line())["wake"], (await world.line())["completion_tokens"]) == ("ready", 3)
    # a stream whose model is there at once is an ordinary one, too
    world.unlink("one")
    world.residency.greeting = b"ready\n"
    linking = asyncio.create_task(asyncio.sleep(0.3))
    asking = asyncio.create_task(world.post(ASKED))
    await linking
    world.link("one")
    status, headers, body = await asking
    assert (status, b": waiting" in body, "cache-control" in headers) == (200, False, False)
    await idle(world)


@asleep
async def a_key_has_its_own_right_to_wake_and_to_have_others_stopped(world: World) -> None:
    fall_asleep(world)

    async def line_of(clear: str) -> str:
        async with Stream(world.port + 1, ASKED, f"Authorization: Bearer {clear}") as stream:
            await stream.until(WAITING)
            (one,) = world.residency.waiting
        await world.residency.wait_for(0)
        return one.line

    assert await line_of(ALICE) == f"wake one keyed {ID} 1"
    gentle = hashlib.sha256(GENTLE.encode()).hexdigest()[:16]
    assert await line_of(GENTLE) == f"wake one keyed {gentle} 0"
    came, quiet = len(world.residency.came), f"Authorization: Bearer {QUIET}"
    for asked in (PLAIN, ASKED):
        status, headers, body = await world.post(asked, quiet, port=world.port + 1)
        assert (status, headers["retry-after"], json.loads(body)["error"]["code"]) == (503, "10", "model_asleep"), body
    await until(lambda: [one.get("wake") for one in world.lines()][-2:] == ["forbidden"] * 2)
    assert len(world.residency.came) == came
    metrics = (await world.admin("GET /metrics"))[1].decode()
    assert 'rigwright_gateway_wakes_total{outcome="forbidden",model="tiny"} 2\n' in metrics
    # once another client has woken the model, it answers this one
    world.link("one")
    assert (await world.post(PLAIN, quiet, port=world.port + 1))[0] == 200
    world.unlink("one")
    # a changed right of a key counts from the next request on, as its changed limits do
    async with Stream(world.port + 1, ASKED, KEY) as stream:
        await stream.until(WAITING)
        world.give_keys(evict=False)
        assert world.router
        world.router.send_signal(signal.SIGHUP)
        await _wake_up(world)
        await stream.end()
    assert stream.is_complete
    world.unlink("one")
    for _ in range(500):
        if await line_of(ALICE) == f"wake one keyed {ID} 0":
            break
    else:
        raise AssertionError("the key has its right still")
    await idle(world)


@asleep
async def health_names_instances_that_do_not_sleep(world: World) -> None:
    async def look(port: int = 0) -> tuple[int, str, dict[str, str]]:
        asked = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        status, _, body = await world.ask(asked, port or world.port)
        model = json.loads(body)["models"]["tiny"]
        return status, model["status"], model["instances"]

    fall_asleep(world)
    assert await look() == (200, "degraded", {"one": "asleep", "two": "down"})
    (world.folder / "states").write_text("one failed 0\n")
    assert await look() == (503, "down", {"one": "failed", "two": "down"})
    (world.folder / "states").write_text("one stopped 0\n")
    assert await look(world.port + 1) == (503, "down", {"one": "stopped", "two": "down"})
    world.link("one")
    assert await look() == (200, "degraded", {"one": "ok", "two": "down"})


@asleep
async def who_has_waited_too_long_is_told_when_to_come(world: World) -> None:
    fall_asleep(world)
    status, headers, body = await world.post(PLAIN)
    assert (status, headers["retry-after"]) == (503, "14"), body
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("server_error", "model_asleep")
    await world.residency.wait_for(0)
    assert 3 <= (await world.line())["waited"] < 5  # type: ignore[operator]
    assert (await world.line())["wake"] == "timeout"
    await idle(world)


@with_model_settings(on_demand=["one"], paths=PATHS)
async def a_failed_start_is_told_in_each_protocols_form(world: World) -> None:
    fall_asleep(world)
    refusal = "refused failed 30 the unit ended with status 1\n"
    kinds = {"chat/completions": "server_error", "messages": "overloaded_error", "responses": "server_error"}
    for path, kind in kinds.items():
        async with Stream(world.port, ASKED | {"max_tokens": 9}, path=f"/v1/{path}") as stream:
            await stream.until(WAITING)
            await world.residency.settle(refusal)
            await stream.end()
        assert stream.status == 200 and stream.is_complete
        assert (stream_error(stream)["type"], stream_error(stream)["message"]) == (kind, "the unit ended with status 1")
        assert (b"event: error\n" in stream.came) is (path != "chat/completions")
        # OpenAI's mark, which the others do not have
        assert (b"data: [DONE]" in stream.came) is (path == "chat/completions")
    # before a comment was sent, and for all others: a status
    for code in ("failed", "memory", "forbidden", "busy"):
        world.residency.greeting = f"refused {code} 30 no room\n".encode()
        for asked in (PLAIN, ASKED):
            got, headers, body = await world.post({**asked, "max_tokens": 9})
            assert (got, headers["retry-after"], json.loads(body)["error"]["message"]) == (503, "30", "no room")
        got, headers, body = await world.post({**PLAIN, "max_tokens": 9}, path="/v1/messages")
        assert (got, json.loads(body)["type"]) == (503, "error")
        await until(lambda code=code: world.lines()[-1].get("wake") == code)
    assert world.reached() == 0
    await idle(world)


@with_model_settings(on_demand=["one", "two"])
async def another_instance_is_tried_where_the_first_cannot_start(world: World) -> None:
    fall_asleep(world)
    async with Stream(world.port, ASKED) as stream:
        await stream.until(WAITING)
        await world.residency.settle("refused failed 30 it ended\n", "one")
        await world.residency.wait_for(1, lambda: world.residency.waiting[0].instance == "two")
        world.link("two")
        await world.residency.settle("ready\n")
        await stream.end()
    assert stream.is_complete and b'"two 1 ' in stream.came


@asleep
async def a_client_that_goes_withdraws(world: World) -> None:
    fall_asleep(world)
    # with TLS, too
    for port in (world.port, world.port + 2):
        for asked in (ASKED, PLAIN):
            async with Stream(port, asked, KEY, tls=world.trusted(port)):
                await world.residency.wait_for(1)
            await world.residency.wait_for(0)
    await until(lambda: [one.get("wake") for one in world.lines()][-4:] == ["left"] * 4)
    await idle(world)
    # and one that goes later is gone for the engine
    async with woken_stream(world, SLOW, KEY, port=world.port + 1) as stream:
        await stream.until(b'"one 1 ')
        assert (await world.state())["keys"] == {ID: 1}
        assert (await world.under_way())["one"] == 1
    await until(lambda: not world.engines["one"].open, 2)
    await idle(world)
    async with woken_stream(world, ASKED | {"stand_in": {"waits": 60}}):
        await until(lambda: world.engines["one"].open)
    await until(lambda: not world.engines["one"].open, 2)
    await idle(world)


@with_model_settings(on_demand=["one"], slots=2, queue=7)
async def eight_wait_in_order_and_the_bounds_of_model_and_key_hold(world: World) -> None:
    fall_asleep(world)
    streams = [Stream(world.port + 1, SLOW, KEY) for _ in range(8)]
    for stream in streams:
        await stream.__aenter__()
        await stream.until(WAITING)
    assert (await world.state())["keys"] == {ID: 8}
    # a ninth of the key, and after one more a tenth of the model
    assert (await world.post(PLAIN, KEY, port=world.port + 1))[0] == 429
    async with Stream(world.port, SLOW) as ninth:
        await ninth.until(WAITING)
        assert (await world.post(ASKED))[0] == 429
        await _wake_up(world)
        for stream in (*streams, ninth):
            await stream.until(b'"one 3 ')
        assert (await world.under_way())["one"] == 9
    for stream in streams:
        await stream.__aexit__()
    await idle(world)


@asleep
async def a_reload_keeps_those_that_wait(world: World) -> None:
    fall_asleep(world)
    async with Stream(world.port, SLOW) as stream:
        await stream.until(WAITING)
        plain = asyncio.create_task(world.post(PLAIN))
        await world.residency.wait_for(2)
        before = set(world.workers())
        await world.reload("d2", on_demand=["one"])
        async with Stream(world.port, SLOW) as newer:
            await newer.until(WAITING)
            assert set(world.workers()) - before
            await _wake_up(world)
            assert (await plain)[0] == 200
            for one in (stream, newer):
                await one.until(b'"one 3 ')
            await world.reload("d3", on_demand=["one"])
            for one in (stream, newer):
                await one.until(b'"one 9 ')
            assert (await world.under_way())["one"] == 2
    await idle(world)


@asleep
async def a_revoked_key_waits_no_longer_and_a_drained_instance_ends_its_streams(world: World) -> None:
    fall_asleep(world)
    async with Stream(world.port + 1, ASKED, KEY) as stream, Stream(world.port + 1, PLAIN, KEY) as plain:
        await stream.until(WAITING)
        await world.residency.wait_for(2)
        assert (await world.admin(f"POST /gone/{ID}"))[0] == 204
        await stream.end()
        await plain.end()
        assert stream_error(stream)["code"] == "invalid_api_key" and plain.status == 401
    await world.admin(f"POST /back/{ID}")
    await world.residency.wait_for(0)
    for what, code in ((f"gone/{ID}", b"invalid_api_key"), ("cut/one", b"service_unavailable")):
        async with woken_stream(world, SLOW, KEY, port=world.port + 1) as stream:
            await stream.until(b'"one 2 ')
            await world.admin(f"POST /{what}")
            await asyncio.wait_for(stream.end(), 5)
            assert not stream.is_complete and code in stream.came
        await world.admin(f"POST /back/{ID}")
        await world.admin("POST /stay/one")
    await idle(world)


@asleep
async def an_instance_that_is_out_for_a_fault_is_not_woken(world: World) -> None:
    fall_asleep(world)
    (world.folder / "rotation/one").write_text('{"reasons": []}')
    assert (await world.post(PLAIN))[0] == 503
    assert not world.residency.came
    health = b"GET /health HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n"
    assert (await world.ask(health))[0] == 503
    (world.folder / "rotation/one").unlink()
    status, _, body = await world.ask(health)
    assert (status, json.loads(body)["models"]["tiny"]["instances"]) == (200, {"one": "asleep", "two": "down"})
    models = json.loads((await world.ask(health.replace(b"/health", b"/v1/models")))[2])
    assert [one["id"] for one in models["data"]] == ["tiny", "gpt-4o"]


@asleep
async def an_nginx_that_is_killed_leaves_no_count_and_withdraws(world: World) -> None:
    fall_asleep(world)
    async with Stream(world.port, ASKED) as stream:
        await stream.until(WAITING)
        for pid in world.workers():
            os.kill(pid, signal.SIGKILL)
        await world.residency.wait_for(0)
    await until(world.answers)
    await idle(world)
    assert (await world.state())["instances"]["one"]["waiting"] == 0  # type: ignore[index]
