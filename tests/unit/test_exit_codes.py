"""How a verb ends on a terminal and at an interrupt."""

import os
import subprocess
import sys

import pytest

from rigwright.project_root import ROOT
from tests.unit.pseudo_terminal import run_on_terminal

LIMIT = 120  # seconds
# the interrupt comes from outside: a verb that says so where it is
WAITS = """
import os, signal
import click
from cli.exit_codes import ExitStatusGroup

@click.group(cls=ExitStatusGroup)
def main(): pass

@main.command()
def work(): os.kill(os.getpid(), signal.SIGINT)

@main.command()
def refused(): raise click.ClickException("box.instances.chat.variant: " + "so many words " * 12)

@main.command()
@click.option("--to", type=int)
def odd(to): pass

main()
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    ("words", "status", "ends"),
    [
        (["refused"], 2, "so many words"),
        (["odd", "--to", "no-number"], 2, "is not a valid integer."),
        (["refsed"], 2, "Did you mean 'refused'?"),
    ],
)
def test_an_error_fits_the_terminal_and_is_one_line_elsewhere(words: list[str], status: int, ends: str) -> None:
    command = [sys.executable, "-c", WAITS, *words]
    ended, said = run_on_terminal(command, ENVIRONMENT)
    lines = said.replace("\r", "").splitlines()
    assert (ended, [line for line in lines if len(line) > 80]) == (status, [])
    assert " ".join(" ".join(lines).split()).endswith(ends)
    piped = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert piped.returncode == status
    assert piped.stderr.splitlines()[-1].startswith("Error: ")
    assert piped.stderr.splitlines()[-1].rstrip().endswith(ends)


def test_an_interrupt_is_no_failure_of_a_verb() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAITS, "work"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nInterrupted.\n")


def test_an_interrupt_in_a_question_is_no_answer() -> None:
    program = WAITS.replace(
        "os.kill(os.getpid(), signal.SIGINT)",
        "signal.setitimer(signal.ITIMER_REAL, 1); click.confirm('Go on?', abort=True)",
    ).replace("@click.group", "signal.signal(signal.SIGALRM, signal.default_int_handler)\n@click.group", 1)
    with subprocess.Popen(
        [sys.executable, "-c", program, "work"], env=ENVIRONMENT, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.wait(LIMIT) == 130
