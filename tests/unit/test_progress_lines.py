"""Lines beside the rows of the live display: of silent work, and of other output."""

import io
import os
import re
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from roles import progress
from roles.progress import LiveDisplay
from tests.unit.polling import wait_until
from tests.unit.pseudo_terminal import run_on_terminal


def test_a_thread_writes_lines_of_silent_work_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(LiveDisplay, "stream", written)
    monkeypatch.setattr(progress, "BEAT", 0.01)
    monkeypatch.setattr(progress, "LINE_INTERVAL", 0.05)
    display = LiveDisplay()
    with display.task("checks", "running all checks"):
        ended = display.beats
        wait_until(written.getvalue, 30)
    assert written.getvalue().startswith("checks: running all checks: running for 0:00\n")
    assert ended
    assert ended.is_set()


def test_silent_work_on_many_hosts_has_one_line_of_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(LiveDisplay, "stream", written)
    monkeypatch.setattr(progress, "BEAT", 3600.0)
    monkeypatch.setattr(progress, "LINE_INTERVAL", 0.0)
    display = LiveDisplay()
    display.begin_run([f"h{number}" for number in range(20)])
    display.report_silent_work()
    display.end_run()
    assert written.getvalue() == "20 waiting\n"


def test_a_closed_stream_ends_the_thread_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    monkeypatch.setattr(LiveDisplay, "stream", closed)
    monkeypatch.setattr(progress, "BEAT", 0.01)
    monkeypatch.setattr(progress, "LINE_INTERVAL", 0.02)
    before = set(threading.enumerate())
    with LiveDisplay().task("checks", "running all checks", quiet=True):
        (beat,) = set(threading.enumerate()) - before
        beat.join(30)
    assert (beat.is_alive(), raised) == (False, [])


def test_a_line_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=written.append, flush=lambda: None, isatty=lambda: False))
    with LiveDisplay().task("h1", "a") as task:
        task.start_step("b")
    assert written == ["h1: b\n"]


PRINTS_WITH_ROWS = """
import click
from cli.safe_output import install_streams
from roles.progress import progress

install_streams()
with progress.task("h1", "working"):
    click.echo("a line \\x1b]8;;http://evil.example\\x07 of a host")
    print("another")
"""


def test_lines_that_are_printed_meanwhile_stand_above_the_rows_and_are_escaped() -> None:
    _, written = run_on_terminal([sys.executable, "-c", PRINTS_WITH_ROWS], os.environ)
    # the row before a line is erased, so both lines begin at the left
    assert re.findall(r"\n\x1b\[2K([a-z][^\n]*)\n", written) == [
        r"a line \u001b]8;;http://evil.example\u0007 of a host",
        "another",
    ]
