"""Tokens: their owners, their files, and the effect of their limits."""

import json
import os
import signal
from datetime import datetime, timezone
from pathlib import Path

from door.answering import ASKED, SLOW
from door.clients import Stream
from door.world import ALICE, THRIFTY, World, until, with_model_settings

KEY, LIMITED = f"Authorization: Bearer {ALICE}", f"Authorization: Bearer {THRIFTY}"
PLAIN = {"model": "tiny"}


def _lines(world: World) -> list[str]:
    file = world.folder / f"usage-{datetime.now(timezone.utc):%Y-%m-%d}"
    return file.read_text().splitlines() if file.exists() else []


async def _has(world: World, *lines: str) -> None:
    await until(lambda: _lines(world) == [*lines, "end"])


@with_model_settings(usage_on_request=True)
async def tokens_are_counted_by_key_and_outlive_nginx(world: World) -> None:
    port = world.port + 1
    assert (await world.post(PLAIN, KEY, port=port))[0] == 200
    await _has(world, "alice tiny 1 7 3 0 0")
    # asked for, and left out again: in whole pieces, and byte by byte
    for how in ({}, {"pieces": 7}, {"bare": True}):
        status, _, body = await world.post(ASKED | {"stand_in": how}, KEY, port=port)
        assert (status, b'"usage"' in body, body.endswith(b"data: [DONE]\n\n")) == (200, False, True), body
        assert body.count(b'"content"') == 4
        assert json.loads(world.reached_bodies()[-1])["stream_options"] == {"include_usage": True}
    for options in (None, {"include_usage": False, "continuous_usage_stats": True}):
        _, _, body = await world.post({"stream_options": options} | ASKED, KEY, port=port)
        assert b'"usage"' not in body
        assert json.loads(world.reached_bodies()[-1])["stream_options"]["include_usage"] is True
    _, _, body = await world.post(ASKED | {"stream_options": {"include_usage": True}}, KEY, port=port)
    assert body.count(b'"usage"') == 1
    await _has(world, "alice tiny 7 49 21 0 0")
    await world.reload("d2", usage_on_request=True)
    assert (await world.post(PLAIN))[0] == 200
    await _has(world, "- tiny 1 7 3 0 0", "alice tiny 7 49 21 0 0")
    assert world.nginx
    killed = (world.nginx.pid, *world.workers())
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    world.nginx.wait(10)
    # a worker that has yet to end still takes connections
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in killed))
    (world.folder / "run/admin.sock").unlink()
    await world.start_nginx()
    assert (await world.post(PLAIN, KEY, port=port))[0] == 200
    await _has(world, "- tiny 1 7 3 0 0", "alice tiny 8 56 24 0 0")
    metrics = (await world.admin("GET /metrics"))[1].decode()
    # counters begin anew with nginx
    assert 'rigwright_gateway_key_tokens_total{key="alice",model="tiny",kind="input"} 7\n' in metrics
    assert 'rigwright_gateway_key_unknown_total{key="alice",model="tiny"} 0\n' in metrics
    assert {oct(file.stat().st_mode)[-3:] for file in world.folder.glob("usage-*")} == {"640"}


async def a_stream_that_ends_early_is_unknown(world: World) -> None:
    async with Stream(world.port + 1, SLOW, KEY) as stream:
        await stream.until(b" 1 ")
    await _has(world, "alice tiny 1 0 0 0 1")


async def a_key_has_its_tokens_and_no_more(world: World) -> None:
    port = world.port + 1
    for _ in range(3):
        assert (await world.post(PLAIN, LIMITED, port=port))[0] == 200
    status, headers, body = await world.post(PLAIN, LIMITED, port=port)
    error = json.loads(body)["error"]
    assert (status, error["type"], error["code"]) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert error["message"] == "this key has used its 25 tokens of this day (UTC)"
    assert 0 < int(headers["retry-after"]) <= 86400
    assert (await world.post(PLAIN, KEY, port=port))[0] == 200
    await _has(world, "alice tiny 1 7 3 0 0", "thrifty tiny 3 21 9 0 0")
