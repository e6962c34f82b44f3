"""Answers of an instance to streams that have waited for it: passed on piece by piece, or told as an error."""

import asyncio
import json

from door.answering import ASKED, SLOW, idle
from door.clients import Stream, posting
from door.counting import _has
from door.residency import WaitingRequest
from door.waking import ID, KEY, WAITING, _wake_up, asleep, fall_asleep, stream_error, stream_events, woken_stream
from door.world import World, until, with_model_settings

CHUNKED = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BROKEN_ENGINES = {
    "no HTTP": "hello\r\n\r\n",
    "a long head": "HTTP/1.1 200 OK\r\n" + "X: y\r\n" * 5000 + "\r\n",
    "an endless head": "HTTP/1.1 200 OK\r\nX: " + "y" * 70000,
    "two lengths": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "a length and chunks": CHUNKED[:-2] + "Content-Length: 5\r\n\r\n0\r\n\r\n",
    "a length that is none": "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "another coding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a folded header": "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
    "a name with a space": "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
    "a status of four": "HTTP/1.1 2000 OK\r\n\r\n",
    "a status below": "HTTP/1.1 101 Switching\r\n\r\n",
    "a page": "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n<b>",
    "JSON": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    "a kind that begins alike": "HTTP/1.1 200 OK\r\nContent-Type: text/event-streams\r\nContent-Length: 1\r\n\r\nx",
    "nothing": "",
}


@asleep
async def what_an_instance_says_that_is_no_stream_becomes_an_error(world: World) -> None:
    for what, raw in BROKEN_ENGINES.items():
        how = {"raw": raw} if raw else {"closes": True}
        async with woken_stream(world, ASKED | {"stand_in": how}, KEY, port=world.port + 1) as stream:
            await stream.end()
        assert stream.is_complete, (what, stream.came)
        assert stream_error(stream)["type"] == "server_error", what
        assert b"<b>" not in stream.came and b"hello" not in stream.came
    # its own refusal: the message, without addresses, and bounded
    text = json.dumps({"error": {"message": "the context is 4096 tokens, at 0x7f00beef", "type": "x"}})
    long = json.dumps({"error": {"message": "ä" * 5000}}, ensure_ascii=False)
    for status, said, kind, message in (
        ("400 Bad", text, "invalid_request_error", "the context is 4096 tokens, at 0x"),
        ("500 Bad", "<html>", "server_error", "the request was refused"),
        ("500 Bad", long, "server_error", "ä" * 1023),
    ):
        data = said.encode()
        raw = f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n\r\n" + data.decode("latin-1")
        async with woken_stream(world, ASKED | {"stand_in": {"raw": raw}}, KEY, port=world.port + 1) as stream:
            await stream.end()
        assert (stream_error(stream)["type"], stream_error(stream)["message"]) == (kind, message), stream.came
    # as such requests do, it counts for nothing
    assert (await world.post({"model": "tiny"}, KEY, port=world.port + 1))[0] == 200
    await _has(world, "alice tiny 1 7 3 0 0")
    await idle(world)


CUT_OFF = {
    "a chunk": CHUNKED + "20\r\ndata: {}\n\n",
    "a size": CHUNKED + "a\r\ndata: {}\n\n\r\nxyz\r\n",
    "a large size": CHUNKED + "a\r\ndata: {}\n\n\r\nffffffff\r\n",
    "a long size": CHUNKED + "a\r\ndata: {}\n\n\r\n" + "0" * 5000,
    "no end of a chunk": CHUNKED + "a\r\ndata: {}\n\nXX",
    "trailers": CHUNKED + "a\r\ndata: {}\n\n\r\n0\r\n" + "X: y\r\n" * 5000,
    "a length": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\ndata: {}\n\n",
}


@asleep
async def an_answer_that_breaks_off_is_not_taken_for_a_whole_one(world: World) -> None:
    for what, raw in CUT_OFF.items():
        async with woken_stream(world, ASKED | {"stand_in": {"raw": raw}}) as stream:
            await stream.end()
        assert not stream.is_complete, what
        assert b"data: {}\n\n" in stream.came and b"before its answer was complete" in stream.came, (what, stream.came)
    async with woken_stream(world, SLOW) as stream:
        await stream.until(b'"one 2 ')
        await world.engines["one"].kill()
        await stream.end()
    assert not stream.is_complete and b"before its answer was complete" in stream.came
    await idle(world)


@asleep
async def a_large_body_is_passed_on_to_the_byte(world: World) -> None:
    asked = ASKED | {"messages": "ä\u20ac" * 500_000}
    async with woken_stream(world, asked) as stream:
        await stream.end()
    assert stream.is_complete
    assert json.loads(world.reached_bodies()[-1]) == asked


LARGE = ASKED | {"messages": "x" * 8_000_000}


@asleep
async def a_large_body_waits_for_an_instance_that_does_not_read_and_its_client_for_neither_end(world: World) -> None:
    world.engines["one"].reads_after = 7
    async with woken_stream(world, LARGE) as stream:
        # of a request of which the instance has taken a part
        await stream.until(b": waiting for the first token\n\n")
        await stream.end()
    assert stream.is_complete and stream.came.count(b'"content"') == 4
    assert json.loads(world.reached_bodies()[-1]) == LARGE
    world.engines["one"].reads_after = 60
    for way, told in ((f"gone/{ID}", b"invalid_api_key"), ("cut/one", b"server_error")):
        async with woken_stream(world, LARGE, KEY, port=world.port + 1) as stream:
            await until(lambda: world.engines["one"].open)
            await world.admin(f"POST /{way}")
            await asyncio.wait_for(stream.end(), 4)
            assert told in stream.came, stream.came
        await world.admin("POST /stay/one")
        await world.admin(f"POST /back/{ID}")
        await until(lambda: not world.engines["one"].open)
    # when a client disconnects, its request ends, and only nginx itself had the file of the body open
    async with woken_stream(world, LARGE) as stream:
        await until(lambda: world.engines["one"].open)
        await stream.until(b": waiting for the first token\n\n")
        assert world.open_bodies() == 1
    await until(lambda: not world.engines["one"].open)
    await idle(world)
    await until(lambda: not world.open_bodies(), 1)


@asleep
async def an_instance_that_ends_while_it_reads_a_request_has_it_reach_no_other(world: World) -> None:
    world.engines["one"].reads_after = 60
    async with woken_stream(world, LARGE) as stream:
        await until(lambda: world.engines["one"].open)
        world.link("two")
        await world.engines["one"].kill()
        await stream.end()
    assert "was not sent to another" in str(stream_error(stream)["message"]), stream.came
    assert not world.engines["two"].reached
    await idle(world)


@asleep
async def an_instance_that_takes_no_byte_for_long_is_given_up_and_one_that_refuses_early_is_heard(world: World) -> None:
    path = world.folder / "conf/relay.lua"
    text = path.read_text()
    assert "STALL = 10000, 300000" in text
    try:
        path.write_text(text.replace("STALL = 10000, 300000", "STALL = 10000, 2000"))
        await world.reload("short", on_demand=["one"])
        # a little at a time is no silence
        world.engines["one"].reads_each = 1
        async with woken_stream(world, ASKED | {"messages": "x" * 1_500_000}) as stream:
            await stream.end()
        assert stream.is_complete, stream.came
        world.engines["one"].reads_after, world.engines["one"].reads_each = 60, 0
        async with woken_stream(world, LARGE) as stream:
            await asyncio.wait_for(stream.end(), 8)
        assert stream_error(stream)["message"] == "the instance does not take the request", stream.came
        # the instance answers before it has read the body
        world.engines[
            "one"
        ].refuses = b'HTTP/1.1 413 Large\r\nContent-Length: 36\r\n\r\n{"error": {"message": "it is long"}}'
        async with woken_stream(world, LARGE) as stream:
            await asyncio.wait_for(stream.end(), 8)
        assert stream_error(stream)["message"] == "it is long", stream.came
    finally:
        path.write_text(text)
    await idle(world)


@asleep
async def an_answer_that_breaks_off_counts_as_it_does_the_ordinary_way(world: World) -> None:
    port, counted = world.port + 1, 0

    async def has_one_more() -> None:
        nonlocal counted
        counted += 1
        await _has(world, f"alice tiny {counted} 0 0 0 {counted}")

    broken = ASKED | {"stand_in": {"raw": CUT_OFF["a length"]}}
    world.unlink("two")
    async with Stream(port, broken, KEY) as stream:
        await stream.end()
    await has_one_more()
    async with woken_stream(world, broken, KEY, port=port) as stream:
        await stream.end()
    await has_one_more()
    for way in ("cut/one", f"gone/{ID}"):
        async with woken_stream(world, SLOW, KEY, port=port) as stream:
            await stream.until(b'"one 2 ')
            await world.admin(f"POST /{way}")
            await stream.end()
        await world.admin("POST /stay/one")
        await world.admin(f"POST /back/{ID}")
        await has_one_more()
    # a client that goes before the instance has answered has computed nothing
    async with woken_stream(world, ASKED | {"stand_in": {"waits": 60}}, KEY, port=port):
        await until(lambda: world.engines["one"].open)
    await idle(world)
    async with woken_stream(world, SLOW, KEY, port=port) as stream:
        await stream.until(b'"one 2 ')
    await has_one_more()


async def _trickle(one: WaitingRequest) -> None:
    while True:
        await one.send("w")
        await asyncio.sleep(0.3)


TRICKLED = {"a head": "HTTP/1.1 200 OK\r\nX: ", "a size": CHUNKED, "a later size": CHUNKED + "a\r\ndata: {}\n\n\r\n"}


@asleep
async def an_instance_that_trickles_escapes_neither_revocation_nor_the_end_of_a_drain(world: World) -> None:
    for what, raw in TRICKLED.items():
        how = {"raw": raw, "trickles": "0" * 200}
        for way, told in ((f"gone/{ID}", b"invalid_api_key"), ("cut/one", b"server_error")):
            async with woken_stream(world, ASKED | {"stand_in": how}, KEY, port=world.port + 1) as stream:
                await until(lambda: world.engines["one"].open)
                if what == "a later size":
                    await stream.until(b"data: {}\n\n")
                await world.admin(f"POST /{way}")
                await asyncio.wait_for(stream.end(), 4)
                assert told in stream.came, (what, stream.came)
                # one that has begun has no end
                assert what != "a later size" or not stream.is_complete
            await world.admin("POST /stay/one")
            await world.admin(f"POST /back/{ID}")
            await until(lambda: not world.engines["one"].open)
            await idle(world)
    # so does the service that loads models
    fall_asleep(world)
    async with Stream(world.port + 1, ASKED, KEY) as stream:
        await stream.until(WAITING)
        (one,) = world.residency.waiting
        trickling = asyncio.create_task(_trickle(one))
        await world.admin(f"POST /gone/{ID}")
        await asyncio.wait_for(stream.end(), 4)
        assert b"invalid_api_key" in stream.came
    trickling.cancel()


@asleep
async def a_stream_by_an_older_http_waits_and_goes_the_ordinary_way(world: World) -> None:
    # nginx sends nothing of an answer of Lua's by HTTP/1.0 before its end
    fall_asleep(world)
    text = posting(json.dumps(ASKED).encode()).replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)
    asking = asyncio.create_task(world.ask(text))
    await world.residency.wait_for(1)
    await _wake_up(world)
    status, _, body = await asking
    assert (status, body.count(b'"content"'), body.endswith(b"data: [DONE]\n\n")) == (200, 4, True), body
    fall_asleep(world)
    assert (await world.ask(text))[0] == 503
    assert (await world.line())["wake"] == "timeout"


@with_model_settings(on_demand=["one"], paths=["responses"])
async def a_stream_of_responses_fails_with_the_error_event_of_that_api(world: World) -> None:
    fall_asleep(world)
    async with Stream(world.port, ASKED, path="/v1/responses") as stream:
        await stream.until(WAITING)
        await world.residency.settle("refused failed 30 it ended: /run\n")
        await stream.end()
    (event,) = stream_events(stream)
    kind, _, text = event.partition(b"\ndata: ")
    flat = {"message": "it ended: /run", "code": "model_asleep", "param": None}
    nested = {"error": flat | {"type": "server_error"}}
    assert (kind.strip(), json.loads(text)) == (
        b"event: error",
        flat | nested | {"type": "error", "sequence_number": 0},
    )
    assert stream.is_complete
