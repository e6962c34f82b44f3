"""How the gateway's router begins, reads its files again and ends."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.gateway_router import (
    ALICE,
    BOB,
    RouterFixture,
    bearer_header,
    key_entry,
    model_entry,
    router_settings,
)
from tests.unit.polling import wait_until


def small(folder: Path) -> RouterFixture:
    models = {"qwen3": model_entry("chat", "chat2"), "other": model_entry("other")}
    settings = router_settings(listeners={"wan": {"keys": True, "models": None}}, models=models)
    return RouterFixture(folder, settings, [key_entry(ALICE, "alice")])


@pytest.fixture
def own_router(tmp_path: Path) -> Iterator[RouterFixture]:
    """A router of the test's own."""
    with small(tmp_path).running() as made:
        yield made


def test_health_names_the_instances_that_answer(own_router: RouterFixture) -> None:
    assert (own_router.ask("/health").status, own_router.ask("/health").json["status"]) == (503, "down")
    chat = own_router.link_instance("chat")
    said = own_router.ask("/health")
    assert (said.status, said.json["status"]) == (200, "degraded")
    assert said.json["models"]["qwen3"] == {"status": "degraded", "instances": {"chat": "ok", "chat2": "down"}}
    sockets = [own_router.link_instance(name) for name in ("chat2", "other")]
    assert own_router.ask("/health").json["status"] == "ok"
    (own_router.out_folder / "other").touch()
    assert own_router.ask("/health").json["models"]["other"] == {"status": "down", "instances": {"other": "wedged"}}
    # the link alone is not an instance
    (own_router.folder / "chat.sock").unlink()
    assert own_router.ask("/health").json["models"]["qwen3"]["instances"]["chat"] == "down"
    for one in [chat, *sockets]:
        one.close()


def test_health_names_the_reasons_of_root(own_router: RouterFixture) -> None:
    sockets = [own_router.link_instance(name) for name in ("chat", "chat2", "other")]
    rows = [{"reason": "xid 79", "text": "Xid 79 of card 1 at /secret", "since": 5.0, "ended": None}]
    folder = own_router.folder / "rotation"
    (folder / "chat2").write_text(json.dumps({"schema": 1, "reasons": rows}))
    (folder / "other.last").write_text("{")
    models = own_router.ask("/health").json["models"]
    assert models["qwen3"] == {
        "status": "degraded",
        "instances": {"chat": "ok", "chat2": "out of rotation"},
        "out_of_rotation": {"chat2": [{"reason": "xid 79", "since": 5.0}]},
    }
    # it still answers what no other can
    assert models["other"] == {"status": "degraded", "instances": {"other": "last resort"}}
    (folder / "chat").touch()
    assert own_router.ask("/health").json["models"]["qwen3"]["status"] == "down"
    for one in sockets:
        one.close()


def test_both_processes_go_on_with_what_is_new(own_router: RouterFixture) -> None:
    bob = key_entry(BOB, "bob")
    own_router.settings.update(digest="2", aliases={"gpt-4o": "other"})
    own_router.keys[:] = [bob]
    own_router.write_settings()
    own_router.send_hup()
    for to in ("light", "heavy"):
        wait_until(lambda to=to: own_router.ask("/state", to=to).json["digest"] == "2")  # type: ignore[misc]
        assert (
            own_router.route({"model": "gpt-4o"}, to=to, listener="wan", **{"X-Rw-Key": str(bob["id"])}).status == 204
        )
    assert own_router.ask("/auth", listener="wan", **bearer_header(ALICE)).status == 401
    assert own_router.ask("/auth", listener="wan", **bearer_header(BOB)).status == 204


@pytest.mark.parametrize("file", ["settings.json", "keys.json"])
def test_a_broken_file_changes_nothing(own_router: RouterFixture, file: str) -> None:
    before = own_router.ask("/state").body
    (own_router.folder / file).write_text("{")
    own_router.send_hup()
    wait_until(lambda: "goes on with what it knew" in own_router.read_stderr)
    assert f"{file}: it is not JSON" in own_router.read_stderr
    assert own_router.ask("/state").body == own_router.ask("/state", to="heavy").body == before
    assert own_router.ask("/auth", listener="wan", **bearer_header(ALICE)).status == 204


def other_process(own: RouterFixture) -> int:
    (child,) = Path(f"/proc/{own.pid}/task/{own.pid}/children").read_text().split()
    return int(child)


def has_exited(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_if_the_second_process_ends_the_first_does_and_says_so(own_router: RouterFixture) -> None:
    os.kill(other_process(own_router), signal.SIGKILL)
    assert own_router.wait_for_exit() == 1
    assert "the other process has ended" in own_router.read_stderr


def test_without_its_prober_it_does_not_go_on(tmp_path: Path) -> None:
    made = small(tmp_path)
    try:
        made.settings["out"] = "\0"
        made.start()
        assert made.wait_for_exit() == 1
        assert "light ends: the prober has failed" in made.read_stderr
    finally:
        made.stop()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0)])
def test_if_the_first_process_ends_the_second_does(own_router: RouterFixture, number: int, status: int) -> None:
    child = other_process(own_router)
    os.kill(own_router.pid, number)
    assert own_router.wait_for_exit() == status
    wait_until(lambda: has_exited(child))


def test_a_stop_of_all_processes_is_no_failure(own_router: RouterFixture) -> None:
    child = other_process(own_router)
    os.kill(child, signal.SIGTERM)
    # it has had the signal once it is not pending any more
    wait_until(lambda: f"ShdPnd:\t{0:016x}" in Path(f"/proc/{child}/status").read_text())
    assert not has_exited(child)
    os.kill(own_router.pid, signal.SIGTERM)
    assert own_router.wait_for_exit() == 0
    wait_until(lambda: has_exited(child))


def test_the_sockets_outlive_the_router(own_router: RouterFixture) -> None:
    os.kill(own_router.pid, signal.SIGTERM)
    own_router.wait_for_exit()
    own_router.start()
    assert own_router.ask("/state").status == own_router.ask("/state", to="heavy").status == 200


def test_without_its_files_or_sockets_it_does_not_start(tmp_path: Path) -> None:
    made = small(tmp_path)
    try:
        made.settings["aliases"] = {"gpt-4o": "nothing"}
        made.start()
        assert made.wait_for_exit() == 1
        assert made.read_stderr == "router: cannot start: settings.json: aliases/gpt-4o: there is no model nothing\n"
        made.start(("/usr/bin/env", "-u", "LISTEN_PID", "/usr/bin/python3", "-I", "roles/gateway/host/router"))
        assert made.wait_for_exit() == 1
        assert "systemd must pass two sockets" in made.read_stderr
    finally:
        made.stop()


def test_without_a_file_of_keys_there_are_no_keys(tmp_path: Path) -> None:
    made = small(tmp_path)
    try:
        made.write_settings()
        (tmp_path / "keys.json").unlink()
        made.start(write=False)
        assert made.ask("/auth", listener="wan", **bearer_header(ALICE)).status == 401
        assert "where a key is needed, there is none" in made.read_stderr
    finally:
        made.stop()


def test_systemd_learns_when_it_serves(tmp_path: Path) -> None:
    made = small(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.settimeout(30)
        notify.bind(str(tmp_path / "notify"))
        try:
            made.start(NOTIFY_SOCKET=str(tmp_path / "notify"))
            assert notify.recv(100) == b"READY=1"
        finally:
            made.stop()
