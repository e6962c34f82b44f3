"""Instances of other boxes: the gateway of each world lends its engine `two` to itself, and two boxes are stand-ins."""

import asyncio
import json
import os
import signal
import socket
import ssl

from door.answering import SLOW, idle
from door.clients import Stream
from door.world import BOX_PORTS, LENDER, World, until, with_model_settings

LENT = f"{LENDER}/two"
PLAIN = {"model": "tiny"}
LASTING = PLAIN | {"stand_in": {"waits": 60}}
CHAT = b"POST /two/v1/chat/completions HTTP/1.1\r\nHost: box\r\nContent-Length: 2\r\n\r\n{}"


async def _renew(world: World, digest: str) -> None:
    """Give nginx other settings, and wait for the end of its processes with those of before."""
    before = set(world.workers())
    await world.reload(digest, instances=world.instances)
    await until(lambda: not before & set(world.workers()))


def _answered(body: bytes) -> str:
    return str(json.loads(body)["choices"][0]["message"]["content"])


async def _post(world: World, times: int) -> set[str]:
    """The answers to some requests, each of which has one."""
    answers = [await world.post(PLAIN) for _ in range(times)]
    assert {status for status, *_ in answers} == {200}, answers
    return {_answered(body) for *_, body in answers}


def _refusals(world: World) -> list[str]:
    return [str(line["refusal"]) for line in world.lines() if "refusal" in line]


async def _is_left_alone(world: World, refusal: str) -> None:
    """The box refuses this gateway: no probe finds an instance, and others answer its requests."""
    assert (await world.admin(f"POST /probe/{LENT}", b"{}"))[0] == 503
    assert _refusals(world)[-1].startswith(refusal), _refusals(world)
    assert await _post(world, 6) == {"from one"}


@with_model_settings(instances=["one", LENT])
async def a_box_with_the_longest_name_lends_an_instance(world: World) -> None:
    assert await _post(world, 8) == {"from one", "from two"}
    assert {line["instance"] for line in world.lines()} >= {"one", "two", LENT}
    assert not _refusals(world)
    await idle(world)


@with_model_settings(instances=["one", LENT])
async def a_box_that_does_not_know_a_gateway_is_left_alone(world: World) -> None:
    world.lent = {"two": []}
    await _renew(world, "d2")
    await _is_left_alone(world, "no gateway uses this here")
    for number, (name, refusal) in enumerate(
        (
            ("expired", "client certificate: FAILED:certificate has expired"),
            ("revoked", "client certificate: FAILED:certificate revoked"),
            ("stranger", "this gateway is not declared to use instances of this box"),
            ("foreign", "client certificate: FAILED:"),
        )
    ):
        world.give_certificate("_front", name)
        world.lent = {"two": [world.front]}
        await _renew(world, f"d{3 + number}")
        await _is_left_alone(world, refusal)
    # without TLS, and bytes of another protocol
    for text in (CHAT, b"\x00\x01\r\n\r\n"):
        assert (await world.ask(text, world.port + 3))[0] == 0


@with_model_settings(instances=["one", LENT])
async def a_gateway_asks_no_box_with_a_revoked_certificate(world: World) -> None:
    world.give_certificate("_fleet", "revoked-lender")
    await _renew(world, "d2")
    assert (await world.admin(f"POST /probe/{LENT}", b"{}"))[0] == 503
    assert await _post(world, 6) == {"from one"}
    assert len(world.engines["two"].reached) == 0


@with_model_settings(instances=["one", LENT])
async def a_gateway_has_its_bound_at_another_box(world: World) -> None:
    world.bound = 3
    await _renew(world, "d2")
    streams = [Stream(world.port, SLOW) for _ in range(8)]
    for stream in streams:
        await stream.__aenter__()
        await stream.until(b" 1 ")
    assert (await world.under_way())["two"] == 3
    assert "too many requests of this gateway are under way" in _refusals(world)
    for stream in streams:
        await stream.__aexit__()
    await idle(world)


@with_model_settings(instances=["one", LENT])
async def a_late_worker_takes_no_crash_of_an_instance_for_its_stop(world: World) -> None:
    two = world.engines["two"]
    asking = [asyncio.create_task(world.post(LASTING)) for _ in range(2)]
    while not all(engine.open for engine in world.engines.values()):
        await asyncio.sleep(0.01)
    workers = world.workers()
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    await two.kill()
    world.unlink("two")
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    done, waiting = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    status, _, body = done.pop().result()
    assert (status, "was not sent to another" in body.decode()) == (503, True), body
    assert len(world.engines["one"].reached) == 1
    for one in waiting:
        one.cancel()


@with_model_settings(instances=["east/chat", "west/chat"])
async def a_request_that_a_box_has_had_for_all_of_its_time_goes_to_no_other(world: World) -> None:
    assert world.nginx
    conf = world.folder / "conf"
    text = (conf / "fleet.conf").read_text()
    assert "proxy_read_timeout 1h;" in text
    (conf / "fleet.conf.kept").write_text(text)
    (conf / "fleet.conf").write_text(text.replace("proxy_read_timeout 1h;", "proxy_read_timeout 1s;"))
    try:
        await _renew(world, "d2")
        for box in world.boxes.values():
            box.does = "waits"
        status, _, body = await world.post(PLAIN)
        assert (status, "was not sent to another" in body.decode()) == (503, True), body
        assert sum(box.reached for box in world.boxes.values()) == 1
    finally:
        (conf / "fleet.conf.kept").rename(conf / "fleet.conf")


@with_model_settings(instances=["east/chat", "west/chat", "one"])
async def each_box_that_closes_connections_is_left_alone(world: World) -> None:
    for box in world.boxes.values():
        box.does = "closes"
    assert await _post(world, 12) == {"from one"}
    assert [box.reached for box in world.boxes.values()] == [1, 1]


def _resumes(world: World, version: ssl.TLSVersion) -> bool:
    """Whether the fleet's port goes on with the TLS session of an earlier connection."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version
    context.load_cert_chain(world.folder / "run/tls/declared.crt", world.folder / "run/tls/declared.key")
    session: ssl.SSLSession | None = None
    for _ in range(2):
        plain = socket.create_connection(("127.0.0.1", world.port + BOX_PORTS[LENDER]), 10)
        with context.wrap_socket(plain, session=session) as connection:
            connection.sendall(CHAT)
            assert connection.recv(4096).startswith(b"HTTP/1.1 "), version
            session, resumed = connection.session, connection.session_reused
    return bool(resumed)


@with_model_settings(instances=["one", LENT])
async def no_certificate_of_a_gateway_lives_on_in_a_session(world: World) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        assert not await asyncio.to_thread(_resumes, world, version), version


@with_model_settings(instances=["east/chat"])
async def a_box_that_closes_each_connection_is_asked_twice_by_a_request(world: World) -> None:
    east = world.boxes["east"]
    east.does = "closes"
    status, headers, _ = await world.post(PLAIN)
    # the second time as the last one, and to each later request that is all
    assert (status, east.reached, int(headers["retry-after"]) > 0) == (503, 2, True), headers
    assert (await world.post(PLAIN))[0] == 503
    assert east.reached == 3


@with_model_settings(instances=["east/chat", "one"])
async def connections_to_a_lost_box_end_in_processes_of_before_a_reload(world: World) -> None:
    east = world.boxes["east"]
    east.does = "waits"
    asking = [asyncio.create_task(world.post(PLAIN)) for _ in range(2)]
    while not east.reached:
        await asyncio.sleep(0.01)
    before = set(world.workers())
    await world.reload("d2", instances=["east/chat", "one"])
    # its connections stay open, and no other one comes about
    east.leave()
    for _ in range(2):
        assert (await world.admin("POST /probe/east/chat", b"{}"))[0] == 503
    answers = await asyncio.wait_for(asyncio.gather(*asking), 20)
    assert [(status, _answered(body)) for status, _, body in answers] == [(200, "from one")] * 2
    await until(lambda: not before & set(world.workers()))
