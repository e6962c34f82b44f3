"""How the gateway's router begins, reads its files again and ends."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.gateway_router import ALICE, BOB, World, bearer, key, model, until


def small(folder: Path) -> World:
    return World(
        folder,
        {
            "listeners": {"wan": {"keys": True, "models": None}},
            "models": {"qwen3": model("chat", "chat2"), "other": model("other")},
            "aliases": {},
            "origins": [],
            "probe": {"every": 3600, "timeout": 60},
            "digest": "1",
        },
        [key(ALICE, "alice")],
    )


@pytest.fixture
def own(tmp_path: Path) -> Iterator[World]:
    """A router of the test's own."""
    made = small(tmp_path)
    try:
        made.start()
        until(lambda: made.ask("/state").status == 200)
        yield made
    finally:
        made.stop()


def test_health_says_who_answers(own: World) -> None:
    assert (own.ask("/health").status, own.ask("/health").json["status"]) == (503, "down")
    chat = own.link("chat")
    said = own.ask("/health")
    assert (said.status, said.json["status"]) == (200, "degraded")
    assert said.json["models"]["qwen3"] == {"status": "degraded", "instances": {"chat": "ok", "chat2": "down"}}
    sockets = [own.link(name) for name in ("chat2", "other")]
    assert own.ask("/health").json["status"] == "ok"
    (own.out / "other").touch()
    assert own.ask("/health").json["models"]["other"] == {"status": "down", "instances": {"other": "wedged"}}
    # the link alone is not an instance
    (own.folder / "chat.sock").unlink()
    assert own.ask("/health").json["models"]["qwen3"]["instances"]["chat"] == "down"
    for one in [chat, *sockets]:
        one.close()


def test_both_processes_go_on_with_what_is_new(own: World) -> None:
    bob = key(BOB, "bob")
    own.settings.update(digest="2", aliases={"gpt-4o": "other"})
    own.keys[:] = [bob]
    own.write()
    own.hup()
    for to in ("light", "heavy"):
        until(lambda to=to: own.ask("/state", to=to).json["digest"] == "2")  # type: ignore[misc]
        assert own.route({"model": "gpt-4o"}, to=to, listener="wan", **{"X-Rw-Key": str(bob["id"])}).status == 204
    assert own.ask("/auth", listener="wan", **bearer(ALICE)).status == 401
    assert own.ask("/auth", listener="wan", **bearer(BOB)).status == 204


@pytest.mark.parametrize("file", ["settings.json", "keys.json"])
def test_a_broken_file_changes_nothing(own: World, file: str) -> None:
    before = own.ask("/state").body
    (own.folder / file).write_text("{")
    own.hup()
    until(lambda: "goes on with what it knew" in own.stderr)
    assert f"{file}: it is not JSON" in own.stderr
    assert own.ask("/state").body == own.ask("/state", to="heavy").body == before
    assert own.ask("/auth", listener="wan", **bearer(ALICE)).status == 204


def other_process(own: World) -> int:
    (child,) = Path(f"/proc/{own.pid}/task/{own.pid}/children").read_text().split()
    return int(child)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_if_the_second_process_ends_the_first_does_and_says_so(own: World) -> None:
    os.kill(other_process(own), signal.SIGKILL)
    assert own.ended() == 1
    assert "the other process has ended" in own.stderr


def test_without_its_prober_it_does_not_go_on(tmp_path: Path) -> None:
    made = small(tmp_path)
    try:
        made.settings["out"] = "\0"
        made.start()
        assert made.ended() == 1
        assert "light ends: the prober has failed" in made.stderr
    finally:
        made.stop()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0)])
def test_if_the_first_process_ends_the_second_does(own: World, number: int, status: int) -> None:
    child = other_process(own)
    os.kill(own.pid, number)
    assert own.ended() == status
    until(lambda: gone(child))


def test_a_stop_of_all_processes_is_no_failure(own: World) -> None:
    child = other_process(own)
    os.kill(child, signal.SIGTERM)
    os.kill(own.pid, signal.SIGTERM)
    assert own.ended() == 0
    until(lambda: gone(child))


def test_the_sockets_outlive_the_router(own: World) -> None:
    os.kill(own.pid, signal.SIGTERM)
    own.ended()
    own.start()
    assert own.ask("/state").status == own.ask("/state", to="heavy").status == 200


def test_without_its_files_or_sockets_it_does_not_start(tmp_path: Path) -> None:
    made = small(tmp_path)
    try:
        made.settings["aliases"] = {"gpt-4o": "nothing"}
        made.start()
        assert made.ended() == 1
        assert made.stderr == "router: cannot start: settings.json: aliases/gpt-4o: there is no model nothing\n"
        made.start(("/usr/bin/env", "-u", "LISTEN_PID", "/usr/bin/python3", "-I", "roles/gateway/host/router"))
        assert made.ended() == 1
        assert "systemd must pass two sockets" in made.stderr
    finally:
        made.stop()


def test_without_a_file_of_keys_nobody_has_one(tmp_path: Path) -> None:
    made = small(tmp_path)
    try:
        made.write()
        (tmp_path / "keys.json").unlink()
        made.start(write=False)
        assert made.ask("/auth", listener="wan", **bearer(ALICE)).status == 401
        assert "where a key is needed, there is none" in made.stderr
    finally:
        made.stop()


def test_systemd_is_told_when_it_serves(tmp_path: Path) -> None:
    made = small(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.settimeout(30)
        notify.bind(str(tmp_path / "notify"))
        try:
            made.start(NOTIFY_SOCKET=str(tmp_path / "notify"))
            assert notify.recv(100) == b"READY=1"
        finally:
            made.stop()
