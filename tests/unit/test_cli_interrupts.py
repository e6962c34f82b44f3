"""Ctrl-C during a deploy ends it, with its own exit status, whatever the process is writing at that moment."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigwright.project_root import ROOT
from tests.unit.polling import wait_until
from tests.unit.pseudo_terminal import run_on_terminal

# a deploy that does nothing but write as pyinfra and our progress do, one greenlet a host
WRITING = """
import sys
import pyinfra_cli.cli
import click, gevent
from rich.console import Console
from cli import deploy_verbs

rich = Console(stderr=True)

def write():
    while True:
        click.echo("x" * 100, err=True)
        rich.print("y" * 100)
        click.echo("z" * 100)
        gevent.sleep(0)

def main(*_, **__):
    gevent.joinall([gevent.spawn(write) for _ in range(20)])

pyinfra_cli.cli.cli.main = main
sys.exit(deploy_verbs.run_pyinfra("rig.py"))
"""
LIMIT = 30  # seconds, for a machine with much else to do


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Ends to read and to write, as the operating system makes them."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("times", [1, 100])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_interrupts_end_it_in_the_middle_of_a_write(stream: str, times: int, pipe: tuple[int, int]) -> None:
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | {stream: pipe[1]}
    # Python's own buffers, as an operator has them, are what the interrupt finds in the middle of something
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", WRITING]
    with subprocess.Popen(command, env=environment, **streams) as process:  # type: ignore[call-overload]
        try:
            # without a reader it waits until there is one
            wait_until(lambda: "pipe_write" in Path(f"/proc/{process.pid}/wchan").read_text(), LIMIT)
            for _ in range(times):
                process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT) == 130
        finally:
            process.kill()


WORDS = "\\nStopped watching; box3 goes on reading package lists. The same command watches again.\\n"
TOLD = f"""
import os, signal
from cli.exit_codes import exit_on_interrupt
exit_on_interrupt(lambda: "{WORDS}")
os.kill(os.getpid(), signal.SIGINT)
"""


def test_on_a_terminal_the_words_of_an_interrupt_break_between_words() -> None:
    status, said = run_on_terminal([sys.executable, "-c", TOLD], {**os.environ, "PYTHONPATH": str(ROOT)})
    assert (status, said.split("\n")[1:3]) == (
        130,
        ["Stopped watching; box3 goes on reading package lists. The same command watches", "  again."],
    )
