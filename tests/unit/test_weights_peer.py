"""Bringing weights from a box nearby, which may be fetching them itself, die on the way, or wait for this one."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from roles.weights.host.peers import Peer
from roles.weights.host.spec import Pace, Refused
from tests.unit.file_server import Answer, Handler, cut, file_server, status, whole
from tests.unit.weights_world import CONTENT, HALF, LYING, Source, World, file, until, world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")

PROGRESS = ".progress.json"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def peer(host: World) -> Source:
    return {"kind": "peer", "base": host.server.url}


def mirror(host: World) -> list[Source]:
    return host.url(host.server.serve("mirror", whole(CONTENT)))


def asked(host: World, path: str = "") -> list[str | None]:
    return [one.range for one in host.server.asked if one.path == (path or file().path)]


def progress(updated: float, state: str = "fetching", identity: str = "0" * 16, done: float | None = None) -> Answer:
    """A peer's progress file that has one file in work; without `done`, it gets on with it."""
    done = updated if done is None else done
    rows = [{"path": file().path, "size": len(CONTENT), "done": done, "state": state, "from": "hub"}]
    document = {"updated": updated, "identity": identity, "done": done, "total": len(CONTENT), "files": rows}
    return whole(json.dumps(document).encode())


def test_a_peer_that_has_it_is_asked_alone(host: World) -> None:
    host.server.serve(file().path, whole(CONTENT))
    done = host.bring({file(): [peer(host), *mirror(host)]})
    assert done.returncode == 0, done.stdout
    assert host.there(file())
    assert asked(host, "mirror") == []


def test_a_peer_that_has_it_not_gives_way(host: World) -> None:
    done = host.bring({file(): [peer(host), *mirror(host)]})
    assert done.returncode == 0, done.stdout
    assert asked(host) == [None]
    assert host.there(file())


def test_a_peer_that_is_not_there_is_tried_for_one_file_only(host: World) -> None:
    gone = {"kind": "peer", "base": "http://127.0.0.1:1"}
    wanted = {file(CONTENT, f"m/{n}.gguf"): [gone, *mirror(host)] for n in range(6)}
    host.settings["parallel"] = 1
    done = host.bring(wanted)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("peer 127.0.0.1:1: not reached: ") == 6
    assert all(host.there(one) for one in wanted)


def test_where_a_peer_dies_the_next_source_goes_on(host: World) -> None:
    host.server.serve(file().path, cut(CONTENT, HALF), status(503))
    done = host.bring({file(): [peer(host), *mirror(host)]})
    assert done.returncode == 0, done.stdout
    assert asked(host, "mirror") == [f"bytes={HALF}-"]
    assert host.there(file())


def test_a_peer_that_lied_and_died_does_not_spoil_the_hub(host: World) -> None:
    host.server.serve(file().path, cut(LYING, HALF), status(503))
    done = host.bring({file(): [peer(host), *mirror(host)]})
    assert done.returncode == 0, done.stdout
    assert asked(host, "mirror") == [f"bytes={HALF}-", None]
    assert host.there(file())


def test_a_file_that_is_on_its_way_to_a_peer_is_waited_for(host: World) -> None:
    host.server.serve(file().path, status(404), whole(CONTENT))
    host.server.serve(PROGRESS, *(progress(n, state="fetching") for n in range(60)), status(404))
    done = host.bring({file(): [peer(host), *mirror(host)]})
    assert done.returncode == 0, done.stdout
    assert asked(host) == [None, None]
    assert asked(host, "mirror") == []
    assert len(asked(host, PROGRESS)) == 61
    assert host.there(file())


def test_waiting_for_a_peer_is_shown(host: World) -> None:
    shown, end = threading.Event(), threading.Event()

    def tell(handler: Handler, start: int) -> None:
        progress(handler.files.asked.__len__())(handler, start)
        if end.is_set():
            host.server.serve(PROGRESS, status(404))

    host.server.serve(file().path, status(404), whole(CONTENT))
    host.server.serve(PROGRESS, tell)
    with host.start({file(): [peer(host)]}) as process:
        until(lambda: states(host) == ["waiting for peer"])
        shown.set()
        end.set()
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert host.left_over() == []


def states(host: World) -> list[str]:
    try:
        return [row["state"] for row in json.loads((host.root / PROGRESS).read_text())["files"]]
    except FileNotFoundError:
        return []


def test_a_peer_whose_own_download_stands_still_gives_way(host: World) -> None:
    host.pace["stall"] = 0.5
    host.server.serve(PROGRESS, progress(5))
    done = host.bring({file(): [peer(host), *mirror(host)]})
    assert done.returncode == 0, done.stdout
    assert "its own download is slower than " in done.stdout
    assert host.there(file())


@pytest.mark.parametrize(
    ("state", "pace", "why"),
    [
        ("fetching", {"stall": 3.0}, "its own download is slower than 64 KiB/s, measured over 3 s"),
        ("verifying", {"peer": 1.0, "stall": 3.0}, "its own downloads have been waited for"),
    ],
)
def test_a_peer_that_gets_on_byte_by_byte_gives_way_within_its_bound(
    host: World, state: str, pace: dict[str, float], why: str
) -> None:
    def crawl(handler: Handler, start: int) -> None:
        progress(len(host.server.asked), state)(handler, start)

    host.pace |= pace
    host.server.serve(PROGRESS, crawl)
    began = time.monotonic()
    with host.start({file(): [peer(host), *mirror(host)]}) as process:
        try:
            said, _ = process.communicate(timeout=15)
        finally:
            process.kill()
    assert (process.returncode, why in said) == (0, True), said
    assert time.monotonic() - began < 2 * pace["stall"]
    assert host.there(file())


def test_a_peer_s_clock_does_not_matter(host: World) -> None:
    host.server.serve(file().path, status(404), whole(CONTENT))
    host.server.serve(PROGRESS, progress(4e9), progress(1), progress(-5), status(404))
    done = host.bring({file(): [peer(host), *mirror(host)]})
    assert done.returncode == 0, done.stdout
    assert asked(host, "mirror") == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"files": 3}', b'{"files": [3, {}]}', b'{"files": [{"behind": 3}]}', b"\xff"], ids=repr
)
def test_a_progress_file_that_makes_no_sense_is_none(host: World, body: bytes) -> None:
    host.server.serve(PROGRESS, whole(body))
    done = host.bring({file(): [peer(host), *mirror(host)]})
    assert done.returncode == 0, done.stdout
    assert host.there(file())


def from_root(root: Path, path: str) -> Answer:
    """A box that shares its root, as it is at the moment."""

    def answer(handler: Handler, start: int) -> None:
        try:
            found = whole((root / path).read_bytes())
        except FileNotFoundError:
            found = status(404)
        found(handler, start)

    return answer


@pytest.mark.parametrize("ring", [False, True], ids=["row", "ring"])
def test_hosts_that_wait_for_each_other_draw_the_file_once(host: World, tmp_path: Path, ring: bool) -> None:
    """Each is the next one's peer while it is fetching: real progress files, served as a box serves its root."""
    content = CONTENT * 40
    one = file(content, "m/v1/x.gguf")
    hosts = [World(tmp_path / f"host{n}", host.server, host.hub, pace=host.pace) for n in range(4)]
    for each in hosts:
        each.folder.mkdir()
    commit = host.hub.repository("org/name", {"x.gguf": content})
    host.hub.bytes_a_second = len(content) // 2

    processes = []
    for n, each in enumerate(hosts):
        for path in (one.path, PROGRESS):
            host.server.serve(f"{n}/{path}", from_root(each.root, path))
        before = [{"kind": "peer", "base": f"{host.server.url}/{(n - 1) % 4}"}] if n or ring else []
        processes.append(each.start({one: [*before, each.of_hub(commit)]}))
        if not ring:
            until(lambda each=each: states(each))  # type: ignore[misc]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0], said
    assert all(each.there(one) for each in hosts)
    # in a ring one that starts late is not waited for: what counts is that not all wait for ever, nor all fetch
    assert host.hub.sent_bytes < 4 * len(content) if ring else host.hub.sent_bytes == len(content)


def test_a_peer_that_begins_a_moment_later_is_waited_for(host: World, tmp_path: Path) -> None:
    """A deploy of a fleet starts its hosts' jobs at once, in any order."""
    host.pace["begin"] = 10.0
    one = file(CONTENT * 40, "m/v1/x.gguf")
    first = World(tmp_path / "first", host.server, host.hub, pace=host.pace)
    first.folder.mkdir()
    commit = host.hub.repository("org/name", {"x.gguf": CONTENT * 40})
    host.hub.bytes_a_second = len(CONTENT) * 20
    for path in (one.path, PROGRESS):
        host.server.serve(path, from_root(first.root, path))
    with host.start({one: [peer(host), host.of_hub(commit)]}) as second:
        until(lambda: asked(host, one.path))
        assert first.bring({one: [first.of_hub(commit)]}).returncode == 0
        said, _ = second.communicate(timeout=60)
    assert second.returncode == 0, said
    assert host.there(one)
    assert host.hub.sent_bytes == one.size


def test_a_peer_that_never_begins_is_not_waited_for_again(host: World) -> None:
    one = Peer(host.server.url, "1" * 16, Pace(begin=0.2, pause=0.05))
    until(lambda: not one.wait("m/0.gguf", lambda behind: None, last=False), seconds=5.0)
    assert one.wait("m/1.gguf", lambda behind: None, last=False) is False


def test_a_progress_file_without_end_is_not_read_to_its_end(host: World) -> None:
    """What is kept of it would be as much memory as comes in within five seconds."""
    sent = 0

    def endless(handler: Handler, start: int) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.end_headers()
        with suppress(OSError):
            while sent < 256 << 20:
                handler.send(bytes(1 << 20))
                sent += 1 << 20
        handler.close_connection = True

    host.server.serve(PROGRESS, endless)
    done = host.bring({file(): [peer(host), *mirror(host)]})
    assert done.returncode == 0, done.stdout
    assert host.there(file())
    assert sent < 64 << 20


@pytest.mark.parametrize("bad", [status(503), cut(b"x" * 100, 50)], ids=["busy", "cut"])
def test_one_bad_look_at_a_peer_is_no_reason_to_leave_it(host: World, bad: Answer) -> None:
    """Its nginx starts again, or serves as many as it may."""
    looks = [progress(0), bad, progress(2), progress(3)]

    def answer(handler: Handler, start: int) -> None:
        there = len(asked(host, PROGRESS)) > len(looks)
        (whole(CONTENT) if there else status(404))(handler, start)

    host.server.serve(file().path, answer)
    host.server.serve(PROGRESS, *looks, status(404))
    host.pace |= {"stall": 5.0, "pause": 0.5}
    done = host.bring({file(): [peer(host), *mirror(host)]})
    assert done.returncode == 0, done.stdout
    assert asked(host, "mirror") == []
    assert host.there(file())


def test_a_peer_that_only_says_that_it_is_alive_gives_way(host: World) -> None:
    """Its download is at a dead end, and it writes its progress twice a second nevertheless."""

    def alive(handler: Handler, start: int) -> None:
        progress(len(host.server.asked), done=1)(handler, start)

    host.pace["stall"] = 0.5
    host.server.serve(PROGRESS, alive)
    with host.start({file(): [peer(host), *mirror(host)]}) as process:
        try:
            said, _ = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert "its own download is slower than " in said
    assert host.there(file())


def test_a_peer_that_was_there_and_is_gone_is_asked_for_nothing_more() -> None:
    """Each of thousands of files would wait for a connection, five times."""
    pace = Pace(connect=1, stall=0.2, pause=0.0, begin=0.0)
    with file_server() as server:
        server.serve(PROGRESS, progress(0))
        one = Peer(server.url, "1" * 16, pace)
        one.reach()
    # it may only be starting again
    one.reach()

    def left() -> bool:
        try:
            one.reach()
        except Refused as error:
            return "not reached" in str(error)
        return False

    until(left)
