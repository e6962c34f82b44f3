"""The README's first command, as a newcomer runs it."""

import fcntl
import re
import subprocess

import pytest

from lab.machine_requirements import STATE
from lab.throwaway_lab import ThrowawayLab
from lab.tiny_model import ANSWER
from rigwright.project_root import ROOT


def test_the_demo_answers_is_found_again_and_comes_down(release: str) -> None:
    demo = [str(ROOT / "rig"), "demo", "--release", release]
    # tests of the other release run at the same time, and the demo's lab has one name
    with open(STATE / ".demo.lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if ThrowawayLab("demo").exists:
            pytest.skip("a demo is up on this machine, and it is not this test's to end")
        _answers(demo)


def _answers(demo: list[str]) -> None:
    try:
        first = subprocess.run(demo, capture_output=True, text=True)
        assert first.returncode == 0, first.stdout + first.stderr
        assert f"It answered: {ANSWER}" in first.stdout
        assert "Booted a" in first.stdout
        # nothing is kept of earlier hosts, and nothing is compiled
        assert len((first.stdout + first.stderr).splitlines()) <= 60, first.stdout + first.stderr
        again = subprocess.run(demo, capture_output=True, text=True)
        assert again.returncode == 0, again.stdout + again.stderr
        assert "Found a" in again.stdout
        assert re.search(r"^h1: nothing to do \([0-9]+ steps, [0-9.]+ s\)$", again.stdout, re.MULTILINE)
        assert "\x1b" not in first.stdout + first.stderr + again.stdout + again.stderr
    finally:
        down = [str(ROOT / "rig"), "lab", "--name", "demo", "down"]
        assert "h1 ended" in subprocess.run(down, capture_output=True, text=True).stdout
