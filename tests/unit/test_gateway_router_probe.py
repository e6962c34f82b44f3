"""Which instances are out, which are in again, and what nginx learns of keys: a real router beside what stands in for
nginx."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import socket

import pytest

from tests.unit.gateway_router import (
    RouterFixture,
    StandInNginx,
    key_entry,
    model_entry,
    router_settings,
    run_stand_in_nginx,
)
from tests.unit.polling import wait_until

OFTEN = {"every": 0.05, "timeout": 0.5}
TWO = {"qwen3": model_entry("chat", "chat2")}


class ProbedRouter:
    """A router that looks often, and instances."""

    def __init__(self, world: RouterFixture, stack: ExitStack) -> None:
        self.world = world
        self._stack = stack
        self.nginx = StandInNginx()

    def nginx_starts(self) -> None:
        self.nginx = self._stack.enter_context(run_stand_in_nginx(self.world.folder / "admin.sock"))

    def ready(self, name: str) -> socket:
        return self._stack.enter_context(self.world.link_instance(name))

    def out(self, name: str) -> bool:
        return (self.world.out_folder / name).exists()

    def wait_for_probes(self, name: str) -> None:
        """Wait until the instance was asked twice more, so that what the first said has been heard."""
        before = self.nginx.count_request(f"/probe/{name}")
        wait_until(lambda: self.nginx.count_request(f"/probe/{name}") >= before + 2)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ProbedRouter]:
    listeners = {"lan": {"keys": True, "models": None}}
    settings = router_settings(listeners=listeners, models=TWO, probe=dict(OFTEN))
    world = RouterFixture(tmp_path, settings, [key_entry("a", "a")])
    with ExitStack() as stack:
        made = ProbedRouter(world, stack)
        made.nginx_starts()
        stack.callback(world.stop)
        yield made


def test_an_instance_that_gives_no_token_is_out_until_it_does(box: ProbedRouter) -> None:
    box.nginx.probes = {"chat": 0}
    box.ready("chat"), box.ready("chat2")
    box.world.out_folder.rmdir()
    box.world.start()
    wait_until(lambda: box.out("chat"))
    wait_until(lambda: (box.world.out_folder / "chat").read_text() == "no answer within 0.5 s\n")
    # for nginx's user, too
    wait_until(
        lambda: (
            [one.stat().st_mode & 0o777 for one in (box.world.out_folder, box.world.out_folder / "chat")]
            == [0o755, 0o644]
        )
    )
    assert box.world.ask("/health").json["models"]["qwen3"]["instances"] == {"chat": "wedged", "chat2": "ok"}
    assert not box.out("chat2")
    asked = next(asked for target, asked in box.nginx.asked if target == "/probe/chat")
    assert b'"model": "chat.gguf"' in asked and b'"max_tokens": 1' in asked
    box.nginx.probes = {}
    wait_until(lambda: not box.out("chat"))
    assert "router: chat is out: no answer within 0.5 s\nrouter: chat answers again\n" in box.world.read_stderr


@pytest.mark.parametrize(
    ("status", "out"), [(200, False), (400, False), (404, False), (501, False), (500, True), (502, True)]
)
def test_answers_of_an_instance_show_its_health(box: ProbedRouter, status: int, out: bool) -> None:
    box.nginx.probes = {"chat": status}
    box.ready("chat")
    box.world.start()
    box.wait_for_probes("chat")
    assert box.out("chat") is out


def test_an_instance_at_work_is_not_asked(box: ProbedRouter) -> None:
    box.nginx.probes = {"chat": 0}
    box.nginx.instances = {"chat": {"under_way": 1, "progress": time.monotonic() + 3600}}
    box.ready("chat"), box.ready("chat2")
    (box.world.out_folder / "chat").touch()
    box.world.start()
    box.wait_for_probes("chat2")
    assert not box.nginx.count_request("/probe/chat") and not box.out("chat")


def test_progress_of_others_is_an_answer_while_one_waits(box: ProbedRouter) -> None:
    box.nginx.probes = {"chat": 0}
    box.ready("chat")
    box.world.settings["probe"]["timeout"] = 3600
    box.world.start()
    wait_until(lambda: box.nginx.count_request("/probe/chat") == 1)
    (box.world.out_folder / "chat").touch()
    box.nginx.instances = {"chat": {"under_way": 1, "progress": time.monotonic() + 3600}}
    wait_until(lambda: not box.out("chat"))


def test_a_stopped_or_ready_or_unknown_instance_is_not_out(box: ProbedRouter) -> None:
    box.nginx.probes = {"chat": 0}
    for name in ("chat", "chat2", "former"):
        (box.world.out_folder / name).touch()
        os.utime(box.world.out_folder / name, (1, 1))
    box.ready("chat")
    box.world.settings["probe"]["timeout"] = 3600
    box.world.start()
    wait_until(lambda: not any(box.world.out_folder.iterdir()))


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_clock_that_is_set_takes_no_instance_out_or_in(box: ProbedRouter, hours: int) -> None:
    """It was set after chat became ready."""
    box.nginx.probes = {"chat": 0}
    box.ready("chat"), box.ready("chat2")
    moved = time.time() - 3600 * hours
    os.utime(box.world.folder / "links/chat", (moved, moved), follow_symlinks=False)
    box.world.start()
    wait_until(lambda: box.out("chat"))
    before = box.nginx.count_request("/probe/chat2")
    seen = set()
    while box.nginx.count_request("/probe/chat2") < before + 5:
        seen.add(box.out("chat"))
        time.sleep(0.01)
    assert (seen, box.out("chat2")) == ({True}, False)


def test_one_that_was_started_anew_meanwhile_is_not_out(box: ProbedRouter) -> None:
    box.nginx.probes = {"chat": 0}
    box.ready("chat")
    box.world.start()
    wait_until(lambda: box.nginx.count_request("/probe/chat") == 1)
    box.ready("chat")
    box.nginx.probes = {}
    box.wait_for_probes("chat")
    assert "is out" not in box.world.read_stderr


def test_while_nginx_is_silent_no_instance_is_taken_out_or_in(tmp_path: Path) -> None:
    settings = router_settings(listeners={}, models=TWO, probe=dict(OFTEN))
    world = RouterFixture(tmp_path, settings, [key_entry("a", "a")])
    with ExitStack() as stack:
        box = ProbedRouter(world, stack)
        stack.callback(world.stop)
        box.ready("chat"), box.ready("chat2")
        os.utime(world.folder / "links/chat", (1, 1), follow_symlinks=False)
        (world.out_folder / "chat").touch()
        os.utime(world.out_folder / "chat", (1, 1))
        world.start()
        wait_until(lambda: "nginx's socket" in world.read_stderr)
        assert box.out("chat") and not box.out("chat2")
        box.nginx_starts()
        wait_until(lambda: not box.out("chat"))
        assert world.read_stderr.count("nginx's socket") == 1


def test_nginx_learns_which_keys_are_gone_and_which_are_back(box: ProbedRouter) -> None:
    first, second = str(key_entry("a", "a")["id"]), str(key_entry("b", "b")["id"])
    unknown = "0123456789abcdef"
    box.nginx.keys = {unknown: 1, "../odd": 1}
    box.world.settings["probe"]["every"] = 3600
    box.world.start()
    wait_until(lambda: bool(box.nginx.count_request(f"/back/{first}")))
    # its streams go on, though its owner is unknown: it was revoked while no router ran
    assert [target for target, _ in box.nginx.asked] == [f"/gone/{unknown}", f"/back/{first}"]
    box.nginx.keys = {}
    box.world.keys = [key_entry("b", "b")]
    box.world.write_settings()
    box.world.send_hup()
    wait_until(lambda: len(box.nginx.asked) == 4)
    assert [target for target, _ in box.nginx.asked[2:]] == [f"/gone/{first}", f"/back/{second}"]
    box.world.keys = [key_entry("a", "a"), key_entry("b", "b")]
    box.world.write_settings()
    box.world.send_hup()
    wait_until(lambda: len(box.nginx.asked) == 5)
    assert box.nginx.asked[4][0] == f"/back/{first}"


def test_a_key_whose_time_is_over_is_gone_for_what_runs_too(box: ProbedRouter) -> None:
    # within which it has to start
    ending = key_entry("b", "b", until=int(time.time()) + 5)
    box.world.ending = [ending]
    box.world.start()
    wait_until(lambda: bool(box.nginx.count_request(f"/back/{ending['id']}")))
    wait_until(lambda: bool(box.nginx.count_request(f"/gone/{ending['id']}")))
    assert [target for target, _ in box.nginx.asked if str(key_entry("a", "a")["id"]) in target] == [
        f"/back/{key_entry('a', 'a')['id']}"
    ]


def test_an_instance_of_another_box_is_out_until_it_answers_through_nginx(tmp_path: Path) -> None:
    models = {"qwen3": model_entry("chat", "two/chat")}
    settings = router_settings(
        listeners={"lan": {"keys": False, "models": None}}, models=models, probe=dict(OFTEN), digest="1"
    )
    world = RouterFixture(tmp_path, settings)
    with ExitStack() as stack:
        box = ProbedRouter(world, stack)
        box.nginx_starts()
        box.nginx.probes = {"two/chat": 503}
        stack.callback(world.stop)
        box.ready("chat")
        world.start()
        wait_until(lambda: box.out("two_chat"))
        assert world.ask("/health").json["models"]["qwen3"]["instances"] == {"chat": "ok", "two/chat": "down"}
        # it has no link here whose time could say that it was started anew
        box.wait_for_probes("two/chat")
        assert box.out("two_chat")
        box.nginx.probes = {}
        wait_until(lambda: not box.out("two_chat"))
        assert world.ask("/health").json["models"]["qwen3"]["instances"] == {"chat": "ok", "two/chat": "ok"}
