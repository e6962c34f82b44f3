"""The benchmark tells a run that changed nothing from any other, and counts in ratios."""

import pytest

from benchmarks import converge
from benchmarks.__main__ import main
from rigwright.inventory import ROOT

DONE = """\
h1: nothing to do (44 steps, 0.6 s)
h2: {}
"""


@pytest.mark.parametrize(
    ("output", "unchanged"),
    [
        (DONE.format("nothing to do (44 steps, 0.7 s)"), True),
        (DONE.format("done: 1 of 44 steps changed something (0.9 s)"), False),
        (DONE.format("looked at"), False),
        ("", False),
    ],
)
def test_a_run_that_changed_nothing(output: str, unchanged: bool) -> None:
    assert converge.no_step_changed(2, output) is unchanged


def test_each_benchmark_is_run_by_the_stage_of_benchmarks() -> None:
    folder = ROOT / "tests" / "bench"
    assert {path.stem.removeprefix("test_") for path in folder.glob("test_*.py")} == {*main.commands, "serving"}
