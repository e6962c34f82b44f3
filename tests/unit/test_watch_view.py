"""An output again and again: in place on a terminal, one after the other elsewhere."""

import os
import sys

import pytest

from cli import watch_view
from cli.watch_view import fit_screen
from rigwright.project_root import ROOT
from tests.unit.pseudo_terminal import run_on_terminal

PROGRAM = """
import sys
from cli.tables import print_prose
from cli.watch_view import watch_output
looks = []
def look():
    looks.append(1)
    if len(looks) > 3:
        raise KeyboardInterrupt
    print_prose(f"look {len(looks)} " + "of a long line " * 8, fg="green")
try:
    watch_output(look, 0.0)
except KeyboardInterrupt:
    sys.exit(130)
"""


def run(**environment: str) -> tuple[int, str]:
    command = ["env", *(f"{key}={value}" for key, value in environment.items()), sys.executable, "-c", PROGRAM]
    return run_on_terminal(command, {**os.environ, "PYTHONPATH": str(ROOT)})


def test_a_terminal_is_redrawn_in_place_and_left_as_it_was() -> None:
    status, said = run()
    assert status == 130
    assert "look 3" in said and "\x1b[2K" in said and "\x1b[32m" in said
    assert "\x1b[?25l" not in said


def test_without_colours_each_look_follows_the_one_before() -> None:
    status, said = run(NO_COLOR="1")
    assert (status, said.count("look "), "\x1b" in said) == (130, 3, False)


def test_a_screen_has_a_line_that_counts_those_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_view.shutil, "get_terminal_size", lambda: os.terminal_size((80, 6)))
    assert fit_screen("a\nb\nc\nd\n", "12:00:00").splitlines() == ["12:00:00", "a", "b", "c", "d"]
    assert fit_screen("a\nb\nc\nd\ne\n", "12:00:00").splitlines() == ["12:00:00", "a", "b", "c", "and 2 lines more"]
