"""How requests are answered, by which instance, and what becomes of them when it goes."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from door.clients import Stream, posting
from door.world import ALICE, World, until, with_model_settings

ASKED = {"model": "tiny", "stream": True}
SLOW = ASKED | {"stand_in": {"every": 0.1, "chunks": 600}}


async def idle(world: World) -> None:
    """Wait until nothing is under way, by nginx's own account and by the engines'."""
    for _ in range(300):
        state = await world.state()
        counts = {name: one["under_way"] for name, one in state["instances"].items()}
        if not any(counts.values()) and not state["keys"] and not any(one.open for one in world.engines.values()):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{state}, {[(one.name, one.open) for one in world.engines.values()]}")


async def words_come_as_they_are_said(world: World) -> None:
    for bare in (False, True):
        for engine in world.engines.values():
            engine.sent = 0
        # without chunks, nothing but the connection's end ends it
        async with Stream(world.port, ASKED | {"stand_in": {"every": 0.1, "chunks": 600, "bare": bare}}) as stream:
            await stream.until(b" 2 ")
            assert sum(engine.sent for engine in world.engines.values()) <= 6
            assert sum((await world.under_way()).values()) == 1
        await idle(world)


async def a_client_that_goes_is_gone_for_the_engine(world: World) -> None:
    async with Stream(world.port, SLOW) as stream:
        await stream.until(b" 1 ")
    await until(lambda: not any(engine.open for engine in world.engines.values()), 1)
    await idle(world)
    assert world.lines()[-1]["first"] < 1


async def a_client_that_goes_before_the_first_word_is_too(world: World) -> None:
    async with Stream(world.port, {"model": "tiny", "stand_in": {"waits": 60}}):
        await until(lambda: any(engine.open for engine in world.engines.values()))
    await until(lambda: not any(engine.open for engine in world.engines.values()), 1)
    await idle(world)
    assert world.lines()[-1]["status"] == 499


async def words_are_timed_by_a_clock_that_nobody_sets(world: World) -> None:
    async with Stream(world.port, SLOW) as stream:
        name = await stream.whose()
        instances = (await world.state())["instances"]
        assert 0 <= time.monotonic() - instances[name]["progress"] < 5, instances


async def an_engine_that_dies_ends_its_streams_alone(world: World) -> None:
    async with Stream(world.port, SLOW) as one, Stream(world.port, SLOW) as two:
        first, second = await one.whose(), await two.whose()
        assert {first, second} == {"one", "two"}
        await world.engines[first].kill()
        await one.end()
        assert not one.is_complete
        await two.until(b" 5 ")
    await idle(world)


async def a_request_that_ends_an_engine_reaches_no_other(world: World) -> None:
    for closes in ("one", "two", True):
        for engine in world.engines.values():
            engine.reached.clear()
        reached = 0
        while reached == 0:
            status, headers, body = await world.post({"model": "tiny", "stand_in": {"closes": closes}})
            reached = sum(len(engine.reached) for name, engine in world.engines.items() if closes in (True, name))
        assert (status, reached) == (503, 1) and int(headers["retry-after"]) > 0, (status, headers)
        assert json.loads(body)["error"]["type"] == "server_error"
        assert "was not sent to another" in json.loads(body)["error"]["message"]
    await idle(world)


async def what_one_that_is_stopped_has_not_answered_is_asked_for_elsewhere_once(world: World) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        waiting = [asyncio.ensure_future(world.post({"model": "tiny", "stand_in": {"waits": 1}})) for _ in range(2)]
        while not all(engine.open for engine in world.engines.values()):
            await asyncio.sleep(0.01)
        await world.admin(f"POST /leave/{name}")
        await world.engines[name].kill()
        answers = await asyncio.gather(*waiting)
        texts = [json.loads(body)["choices"][0]["message"]["content"] for status, _, body in answers if status == 200]
        assert texts == [f"from {other}"] * 2, answers
        await world.engines[name].start()
        await world.admin(f"POST /stay/{name}")
    sent = {
        engine.name: {json.loads(body)["model"] for *_, body in engine.reached} for engine in world.engines.values()
    }
    assert sent == {"one": {"tiny"}, "two": {"tiny-of-two.gguf"}}, sent
    await idle(world)


async def who_was_asked_in_vain_has_nothing_to_do(world: World) -> None:
    async with Stream(world.port, SLOW) as one, Stream(world.port, SLOW) as two:
        # one more than the other has: that has fewer, and does not listen
        busy = await one.whose()
        await two.__aexit__()
        other = "two" if busy == "one" else "one"
        counts = {busy: 1, other: 0}
        await world.counts(**counts)
        await world.engines[other].kill()
        async with Stream(world.port, SLOW | {"stand_in": {"every": 0.1, "chunks": 600}}) as third:
            assert await third.whose() == busy
            assert await world.under_way() == {busy: 2, other: 0}
    await idle(world)


async def an_engines_own_answer_is_the_answer(world: World) -> None:
    for status in (400, 404, 429, 500, 502, 503, 504):
        got, _, body = await world.post({"model": "tiny", "stand_in": {"status": status}})
        assert got == status and b"from " in body, (got, body)
    assert world.reached() == 7
    await idle(world)


async def an_answer_that_is_none_is_not_passed_on(world: World) -> None:
    for raw in ("nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nX-A: " + "a" * 40000 + "\r\n\r\n", "HTTP/1.1 200 OK\r\n"):
        status, _, body = await world.post({"model": "tiny", "stand_in": {"raw": raw}})
        assert status in (0, 503) and b"nonsense" not in body, (status, body)
    await idle(world)


async def what_follows_an_answer_is_nobodys(world: World) -> None:
    second = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    raw = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}" + second
    text = posting(json.dumps({"model": "tiny", "stand_in": {"raw": raw}}).encode()).replace(b"close", b"keep-alive")
    status, _, body = await world.ask(text + posting(b'{"model": "tiny"}'))
    assert status == 200 and b"poison" not in body and body.count(b"HTTP/1.1 200") == 1, body


async def an_instance_without_a_link_is_not_asked(world: World) -> None:
    world.unlink("one")
    for _ in range(4):
        assert b"from two" in (await world.post({"model": "tiny"}))[2]
    (world.folder / "out/two").touch()
    status, headers, _ = await world.post({"model": "tiny"})
    assert status == 503 and int(headers["retry-after"]) > 0
    (world.folder / "out/two").unlink()
    assert (await world.post({"model": "tiny"}))[0] == 200
    world.link("one")
    assert {(await world.post({"model": "tiny"}))[2].count(b"from one") for _ in range(4)} == {0, 1}
    assert world.stderr() == ""


async def a_socket_that_nobody_listens_on_costs_no_request(world: World) -> None:
    await world.engines["one"].kill()
    for _ in range(4):
        assert b"from two" in (await world.post({"model": "tiny"}))[2]
    world.engines["two"].socket.unlink()
    status, headers, _ = await world.post({"model": "tiny"})
    assert status == 503 and int(headers["retry-after"]) > 0
    await idle(world)


async def a_body_is_passed_on_to_the_byte(world: World) -> None:
    world.unlink("one")  # the other one's engine has another name for the model
    for size in (0, 1000, 60_000, 70_000, 3_000_000, 20_000_000):
        for before in (True, False):
            filler = '"filler": "' + "é" * (size // 2) + '"'
            parts = (filler, '"model" : "tiny"') if before else ('"model" : "tiny"', filler)
            text = ("{" + ", ".join(parts) + ', "messages": []}').encode()
            wanted = text.replace(b'"tiny"', b'"tiny-of-two.gguf"')
            assert (await world.post(text))[0] == 200
            chunks = b"".join(
                b"%x\r\n%s\r\n" % (len(part), part)
                for at in range(0, len(text), 50_000)
                for part in [text[at : at + 50_000]]
            )
            head = posting(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
            assert (await world.ask(head + chunks + b"0\r\n\r\n"))[0] == 200
            reached = world.engines["two"].reached
            assert [body for *_, body in reached] == [wanted, wanted], (size, before)
            assert all(headers["content-length"] == str(len(wanted)) for _, headers, _ in reached)
            reached.clear()
    await until(lambda: not list((world.folder / "run/body").iterdir()))


async def the_log_says_what_the_answer_says(world: World) -> None:
    for stream in (False, True):
        for pieces in (1, 3, 7, 1 << 20):
            asked = {"model": "tiny", "stream": stream, "stand_in": {"pieces": pieces, "chunks": 12}}
            status, _, body = await world.post(asked, f"Authorization: Bearer {ALICE}", port=world.port + 1)
            assert status == 200
            line = await world.line()
            tokens = {key: line[key] for key in ("prompt_tokens", "completion_tokens")}
            assert tokens == {"prompt_tokens": 7, "completion_tokens": 12}, (pieces, line)
            assert 0 <= line["first"] <= line["duration"] and line["sent"] > len(body)
            assert (line["key"], line["model"], line["listener"], line["status"]) == ("alice", "tiny", "keyed", 200)


@with_model_settings(sticky="header:x-session-id")
async def requests_of_one_session_stay_together(world: World) -> None:
    async def whose(session: int) -> bytes:
        return (await world.post({"model": "tiny"}, f"X-Session-Id: {session}"))[2].partition(b"from ")[2][:3]

    first = {session: await whose(session) for session in range(30)}
    assert set(first.values()) == {b"one", b"two"}
    assert {session: await whose(session) for session in range(30)} == first
    world.unlink("one")
    assert {await whose(session) for session in range(30)} == {b"two"}
    world.link("one")
    assert {session: await whose(session) for session in range(30)} == first


async def a_reload_loses_no_stream(world: World) -> None:
    asked = ASKED | {"stand_in": {"every": 0.05, "chunks": 30}}
    streams = [Stream(world.port, asked) for _ in range(20)]
    for stream in streams:
        await stream.__aenter__()
    for stream in streams:
        await stream.until(b" 1 ")
    before = world.workers()
    await world.reload("d2")
    assert sum((await world.under_way()).values()) == 20
    async with Stream(world.port, SLOW) as later:
        await later.until(b" 1 ")
        for stream in streams:
            await stream.end()
            assert stream.is_complete
        assert sum((await world.under_way()).values()) == 1
    await idle(world)
    for stream in streams:
        await stream.__aexit__()
    await until(lambda: not set(before) & set(world.workers()))


async def what_a_worker_counted_that_is_killed_is_forgotten(world: World) -> None:
    async with Stream(world.port, SLOW) as one, Stream(world.port, SLOW) as two:
        await one.until(b" 1 ")
        await two.until(b" 1 ")
        before = world.workers()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        await one.end()
        await two.end()
        await until(lambda: len(set(world.workers()) - set(before)) == len(before))
    await idle(world)
    assert (await world.post({"model": "tiny"}))[0] == 200


async def four_hundred_streams_take_less_than_a_hundred_megabytes(world: World) -> None:
    asked = ASKED | {"stand_in": {"every": 1, "chunks": 60}}
    for port in (world.port, world.port + 2):
        streams = [Stream(port, asked, tls=world.trusted(port)) for _ in range(400)]
        for at in range(0, len(streams), 50):
            await asyncio.gather(*(one.__aenter__() for one in streams[at : at + 50]))
            await asyncio.gather(*(one.until(b" 1 ") for one in streams[at : at + 50]))
        assert sum((await world.under_way()).values()) == len(streams)
        most = world.resident()
        print(f"400 streams, port {port - world.port}: {most / 1e6:.1f} MB", file=sys.stderr)
        assert most < 100e6
        for one in streams:
            await one.__aexit__()
        await idle(world)


async def memory_does_not_grow_with_a_stream(world: World) -> None:
    def resident() -> int:
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in world.workers()]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")

    async with Stream(world.port, ASKED | {"stand_in": {"every": 0, "chunks": 30_000}}) as stream:
        await stream.until(b" 3000 ")
        before = resident()
        await stream.until(b" 29000 ")
        assert resident() - before < 2 << 20, (before, resident())
