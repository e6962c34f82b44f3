"""The ready script: returns once a server has answered a completion, and not when the server has ended."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rigwright.render import render
from rigwright.serving.units import Unit
from tests.unit.file_server import FileServer, file_server, status, whole

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the script gives root away before it connects")

COMPLETIONS = "v1/chat/completions"
KEY = "sk-0123456789abcdef"
UNIT = "rigwright-chat.service"
TEXT = "[Unit]\nDescription=chat\n"
ENVIRONMENT = "CUDA_VISIBLE_DEVICES=\nRW_DIGEST=0123456789abcdef\n"


@dataclass
class Start:
    """An instance that has just been started."""

    folder: Path
    server: FileServer

    def ready(
        self, main_pid: int, key: str = KEY, unread: bool = False, cards: int = 0
    ) -> subprocess.CompletedProcess[str]:
        environment = self.folder / "config" / "current" / "env" / "chat"
        environment.parent.mkdir(parents=True)
        environment.write_text(ENVIRONMENT)
        (self.folder / UNIT).write_text(TEXT)
        (self.folder / "key").write_text(key + "\n")
        places = {"units": self.folder, "started_from": self.folder / "run", "config": self.folder / "config"}
        script = render("serving/ready.j2", **places)
        port = self.server.url.rpartition(":")[2]
        # a stand-in for systemd, which knows no such unit here: whether it has read the unit file
        (self.folder / "systemctl").write_text(f"#!/bin/sh\necho {'yes' if unread else 'no'}\n")
        (self.folder / "systemctl").chmod(0o755)
        return subprocess.run(
            ["sh", "-c", script, "ready", UNIT, port, str(self.folder / "key"), str(cards)],
            env={"PATH": f"{self.folder}:{os.environ['PATH']}", "MAINPID": str(main_pid)},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with file_server() as server:
        yield Start(tmp_path, server)


def test_it_waits_for_an_answer_to_a_completion_of_one_token(start: Start) -> None:
    start.server.serve(COMPLETIONS, status(503), status(401), whole(b"{}"))
    done = start.ready(os.getpid())
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert [(one.path, one.authorization) for one in start.server.asked] == [(COMPLETIONS, f"Bearer {KEY}")] * 3
    assert json.loads(start.server.asked[0].body)["max_tokens"] == 1


def test_it_does_not_wait_for_a_server_that_has_ended(start: Start) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    start.server.serve(COMPLETIONS, status(503))
    assert start.ready(ended.pid).returncode != 0
    assert len(start.server.asked) == 1


def test_it_notes_which_texts_the_process_was_started_from(start: Start) -> None:
    start.server.serve(COMPLETIONS, whole(b"{}"))
    assert start.ready(os.getpid()).returncode == 0
    wanted = Unit("chat", UNIT, TEXT, ENVIRONMENT, "0123456789abcdef", 8020, frozenset())
    assert (start.folder / "run" / UNIT).read_text().strip() == wanted.slot.started_from


def test_it_notes_nothing_when_systemd_has_not_read_the_file_that_is_there(start: Start) -> None:
    start.server.serve(COMPLETIONS, whole(b"{}"))
    note = start.folder / "run" / UNIT
    note.parent.mkdir()
    note.write_text("of an earlier start\n")
    assert start.ready(os.getpid(), unread=True).returncode == 0
    assert not note.exists()


def test_an_empty_key_is_never_ready(start: Start) -> None:
    start.server.serve(COMPLETIONS, whole(b"{}"))
    assert start.ready(os.getpid(), key="").returncode != 0


@pytest.mark.parametrize(
    ("opened", "cards", "ready"),
    [
        (["nvidia0", "nvidiactl", "nvidia-uvm"], 1, True),
        (["nvidia0", "nvidia1", "nvidia0", "nvidia-uvm"], 2, True),
        (["nvidia0", "nvidia0", "nvidiactl", "nvidia-uvm"], 2, False),
        (["nvidia0", "nvidiactl"], 1, False),
        (["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"], 1, False),
        ([], 1, False),
        ([], 0, True),
    ],
)
def test_an_answer_that_does_not_come_from_its_cards_is_none(
    start: Start, opened: list[str], cards: int, ready: bool
) -> None:
    """Stand-ins for device files: what lies at the end of such a path."""
    devices = start.folder / "dev"
    devices.mkdir()
    start.server.serve(COMPLETIONS, whole(b"{}"))
    with ExitStack() as stack:
        for name in opened:
            (devices / name).touch()
            stack.enter_context((devices / name).open())
        done = start.ready(os.getpid(), cards=cards)
    assert (done.returncode == 0) is ready
    assert ready or f"of {cards} are open" in done.stderr + done.stdout
