"""Bringing weights from a box nearby, which may be fetching them itself, die on the way, or wait for this one."""

import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from roles.weights.host.peers import PeerBox
from roles.weights.host.spec import FetchRefused, TransferLimits
from tests.unit.file_server import (
    AnswerHandler,
    FileServerHandler,
    complete_file,
    error_status,
    run_file_server,
    truncated_file,
)
from tests.unit.polling import wait_until
from tests.unit.weights_world import (
    CONTENT,
    HALF,
    Source,
    WeightsFixture,
    wanted_file,
)
from tests.unit.weights_world import host as host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")

PROGRESS = ".progress.json"


def peer(host: WeightsFixture) -> Source:
    return {"kind": "peer", "base": host.server.url}


def mirror(host: WeightsFixture) -> list[Source]:
    return host.url_sources(host.server.serve("mirror", complete_file(CONTENT)))


def peer_requests(host: WeightsFixture, path: str = "") -> list[str | None]:
    return [one.range for one in host.server.asked if one.path == (path or wanted_file().path)]


def progress(
    updated: float, state: str = "fetching", identity: str = "0" * 16, done: float | None = None
) -> AnswerHandler:
    """A peer's progress file that has one file in work; without `done`, it gets on with it."""
    done = updated if done is None else done
    rows = [{"path": wanted_file().path, "size": len(CONTENT), "done": done, "state": state, "from": "hub"}]
    document = {"updated": updated, "identity": identity, "done": done, "total": len(CONTENT), "files": rows}
    return complete_file(json.dumps(document).encode())


def test_a_peer_that_has_it_is_asked_alone(host: WeightsFixture) -> None:
    host.server.serve(wanted_file().path, complete_file(CONTENT))
    host.fetch({wanted_file(): [peer(host), *mirror(host)]})
    assert peer_requests(host, "mirror") == []


def test_a_peer_that_has_it_not_gives_way(host: WeightsFixture) -> None:
    host.fetch({wanted_file(): [peer(host), *mirror(host)]})
    assert peer_requests(host) == [None]
    assert host.is_fetched(wanted_file())


def test_a_peer_that_is_not_there_is_tried_for_one_file_only(host: WeightsFixture) -> None:
    gone = {"kind": "peer", "base": "http://127.0.0.1:1"}
    wanted = {wanted_file(CONTENT, f"m/{n}.gguf"): [gone, *mirror(host)] for n in range(6)}
    host.settings["parallel"] = 1
    done = host.fetch(wanted)
    assert done.stdout.count("peer 127.0.0.1:1: not reached: ") == 6
    assert all(host.is_fetched(one) for one in wanted)


def test_where_a_peer_dies_the_next_source_goes_on(host: WeightsFixture) -> None:
    host.server.serve(wanted_file().path, truncated_file(CONTENT, HALF), error_status(503))
    host.fetch({wanted_file(): [peer(host), *mirror(host)]})
    assert peer_requests(host, "mirror") == [f"bytes={HALF}-"]
    assert host.is_fetched(wanted_file())


def test_a_file_that_is_on_its_way_to_a_peer_is_waited_for(host: WeightsFixture) -> None:
    host.server.serve(wanted_file().path, error_status(404), complete_file(CONTENT))
    host.server.serve(PROGRESS, *(progress(n, state="fetching") for n in range(60)), error_status(404))
    host.fetch({wanted_file(): [peer(host), *mirror(host)]})
    assert peer_requests(host) == [None, None]
    assert peer_requests(host, "mirror") == []
    assert len(peer_requests(host, PROGRESS)) == 61
    assert host.is_fetched(wanted_file())


def test_waiting_for_a_peer_is_shown(host: WeightsFixture) -> None:
    shown, end = threading.Event(), threading.Event()

    def tell(handler: FileServerHandler, start: int) -> None:
        progress(handler.files.asked.__len__())(handler, start)
        if end.is_set():
            host.server.serve(PROGRESS, error_status(404))

    host.server.serve(wanted_file().path, error_status(404), complete_file(CONTENT))
    host.server.serve(PROGRESS, tell)
    with host.start_fetch({wanted_file(): [peer(host)]}) as process:
        wait_until(lambda: states(host) == ["waiting for peer"])
        shown.set()
        end.set()
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert host.leftover_paths() == []


def states(host: WeightsFixture) -> list[str]:
    try:
        return [row["state"] for row in json.loads((host.root / PROGRESS).read_text())["files"]]
    except FileNotFoundError:
        return []


@pytest.mark.parametrize(
    ("state", "pace", "why"),
    [
        ("fetching", {"stall": 3.0}, "its own download is slower than 64 KiB/s, measured over 3 s"),
        ("verifying", {"peer": 1.0, "stall": 3.0}, "its own downloads have been waited for"),
    ],
)
def test_a_peer_that_gets_on_byte_by_byte_gives_way_within_its_bound(
    host: WeightsFixture, state: str, pace: dict[str, float], why: str
) -> None:
    def crawl(handler: FileServerHandler, start: int) -> None:
        progress(len(host.server.asked), state)(handler, start)

    host.pace |= pace
    host.server.serve(PROGRESS, crawl)
    began = time.monotonic()
    with host.start_fetch({wanted_file(): [peer(host), *mirror(host)]}) as process:
        try:
            said, _ = process.communicate(timeout=15)
        finally:
            process.kill()
    assert (process.returncode, why in said) == (0, True), said
    assert time.monotonic() - began < 2 * pace["stall"]
    assert host.is_fetched(wanted_file())


def test_a_peer_s_clock_does_not_matter(host: WeightsFixture) -> None:
    host.server.serve(wanted_file().path, error_status(404), complete_file(CONTENT))
    host.server.serve(PROGRESS, progress(4e9), progress(1), progress(-5), error_status(404))
    host.fetch({wanted_file(): [peer(host), *mirror(host)]})
    assert peer_requests(host, "mirror") == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"files": 3}', b'{"files": [3, {}]}', b'{"files": [{"behind": 3}]}', b"\xff"], ids=repr
)
def test_a_progress_file_that_makes_no_sense_does_not_count(host: WeightsFixture, body: bytes) -> None:
    host.server.serve(PROGRESS, complete_file(body))
    host.fetch({wanted_file(): [peer(host), *mirror(host)]})


def from_root(root: Path, path: str) -> AnswerHandler:
    """A box that shares its root, as it is at the moment."""

    def answer(handler: FileServerHandler, start: int) -> None:
        try:
            found = complete_file((root / path).read_bytes())
        except FileNotFoundError:
            found = error_status(404)
        found(handler, start)

    return answer


@pytest.mark.parametrize("ring", [False, True], ids=["row", "ring"])
def test_hosts_that_wait_for_each_other_draw_the_file_once(host: WeightsFixture, tmp_path: Path, ring: bool) -> None:
    """Each is the next one's peer while it is fetching: real progress files, served as a box serves its root."""
    content = CONTENT * 40
    one = wanted_file(content, "m/v1/x.gguf")
    hosts = [WeightsFixture(tmp_path / f"host{n}", host.server, host.hub, pace=host.pace) for n in range(4)]
    for each in hosts:
        each.folder.mkdir()
    commit = host.hub.add_commit("org/name", {"x.gguf": content})
    host.hub.bytes_a_second = len(content) // 2

    processes = []
    for n, each in enumerate(hosts):
        for path in (one.path, PROGRESS):
            host.server.serve(f"{n}/{path}", from_root(each.root, path))
        before = [{"kind": "peer", "base": f"{host.server.url}/{(n - 1) % 4}"}] if n or ring else []
        processes.append(each.start_fetch({one: [*before, each.hub_source(commit)]}))
        if not ring:
            wait_until(lambda each=each: states(each))  # type: ignore[misc]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0], said
    assert all(each.is_fetched(one) for each in hosts)
    # in a ring one that starts late is not waited for: the point is that not all wait for ever, nor all fetch
    assert host.hub.sent_bytes < 4 * len(content) if ring else host.hub.sent_bytes == len(content)


def test_a_peer_that_begins_a_moment_later_is_waited_for(host: WeightsFixture, tmp_path: Path) -> None:
    """A deploy of a fleet starts its hosts' jobs at once, in any order."""
    host.pace["begin"] = 10.0
    one = wanted_file(CONTENT * 40, "m/v1/x.gguf")
    first = WeightsFixture(tmp_path / "first", host.server, host.hub, pace=host.pace)
    first.folder.mkdir()
    commit = host.hub.add_commit("org/name", {"x.gguf": CONTENT * 40})
    host.hub.bytes_a_second = len(CONTENT) * 20
    for path in (one.path, PROGRESS):
        host.server.serve(path, from_root(first.root, path))
    with host.start_fetch({one: [peer(host), host.hub_source(commit)]}) as second:
        wait_until(lambda: peer_requests(host, one.path))
        assert first.run_fetch({one: [first.hub_source(commit)]}).returncode == 0
        said, _ = second.communicate(timeout=60)
    assert second.returncode == 0, said
    assert host.is_fetched(one)
    assert host.hub.sent_bytes == one.size


def test_a_peer_that_never_begins_is_not_waited_for_again(host: WeightsFixture) -> None:
    one = PeerBox(host.server.url, "1" * 16, TransferLimits(begin=0.2, pause=0.05))
    wait_until(lambda: not one.wait_for_file("m/0.gguf", lambda behind: None, last=False), seconds=5.0)
    assert one.wait_for_file("m/1.gguf", lambda behind: None, last=False) is False


def test_a_progress_file_without_end_is_not_read_to_its_end(host: WeightsFixture) -> None:
    """The kept part of it would be as much memory as comes in within five seconds."""
    sent = 0

    def endless(handler: FileServerHandler, start: int) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.end_headers()
        with suppress(OSError):
            while sent < 256 << 20:
                handler.send_body(bytes(1 << 20))
                sent += 1 << 20
        handler.close_connection = True

    host.server.serve(PROGRESS, endless)
    host.fetch({wanted_file(): [peer(host), *mirror(host)]})
    assert sent < 64 << 20


@pytest.mark.parametrize("bad", [error_status(503), truncated_file(b"x" * 100, 50)], ids=["busy", "cut"])
def test_one_bad_look_at_a_peer_is_no_reason_to_leave_it(host: WeightsFixture, bad: AnswerHandler) -> None:
    """Its nginx starts again, or serves as many as it may."""
    looks = [progress(0), bad, progress(2), progress(3)]

    def answer(handler: FileServerHandler, start: int) -> None:
        there = len(peer_requests(host, PROGRESS)) > len(looks)
        (complete_file(CONTENT) if there else error_status(404))(handler, start)

    host.server.serve(wanted_file().path, answer)
    host.server.serve(PROGRESS, *looks, error_status(404))
    host.pace |= {"stall": 5.0, "pause": 0.5}
    host.fetch({wanted_file(): [peer(host), *mirror(host)]})
    assert peer_requests(host, "mirror") == []
    assert host.is_fetched(wanted_file())


def test_a_peer_that_only_says_that_it_is_alive_gives_way(host: WeightsFixture) -> None:
    """Its download is at a dead end, and it writes its progress twice a second nevertheless."""

    def alive(handler: FileServerHandler, start: int) -> None:
        progress(len(host.server.asked), done=1)(handler, start)

    host.pace["stall"] = 0.5
    host.server.serve(PROGRESS, alive)
    with host.start_fetch({wanted_file(): [peer(host), *mirror(host)]}) as process:
        try:
            said, _ = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert "its own download is slower than " in said
    assert host.is_fetched(wanted_file())


def test_a_peer_that_was_there_and_is_gone_is_asked_for_nothing_more() -> None:
    """Each of thousands of files would wait for a connection, five times."""
    pace = TransferLimits(connect=1, stall=0.2, pause=0.0, begin=0.0)
    with run_file_server() as server:
        server.serve(PROGRESS, progress(0))
        one = PeerBox(server.url, "1" * 16, pace)
        one.require_reachable()
    # it may only be starting again
    one.require_reachable()

    def left() -> bool:
        try:
            one.require_reachable()
        except FetchRefused as error:
            return "not reached" in str(error)
        return False

    wait_until(left)
