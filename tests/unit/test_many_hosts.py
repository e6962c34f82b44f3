"""Output about many hosts: counts of their states, and each cause once."""

import re
import sys
from io import StringIO
from threading import Event
from types import SimpleNamespace

import pytest

from cli.run_recap import HostRecap, print_recap
from rigwright.host_selection import group_lines
from roles import progress as progress_module
from roles.host_counts import describe_states, show_counts
from roles.progress import LiveDisplay
from tests.unit.test_check_framework import MINE, CheckRunFolder, box  # noqa: F401 (fixtures)
from tests.unit.test_cli_output import REFUSE, LocalDeployFolder, boxes, ground  # noqa: F401 (fixtures)

NAMES = [f"n{number:02}" for number in range(1, 13)]


@pytest.mark.parametrize(
    ("states", "text"),
    [
        ([("waiting", "")] * 3, "3 waiting"),
        (
            [("done", "C")] * 612 + [("working", "B")] * 30 + [("failed", "A")] * 3 + [("waiting", "")] * 2,
            "612 done, 30 running (30 in B), 3 failed, 2 waiting",
        ),
        ([("waiting", "A"), ("working", "B"), ("working", "B")], "3 running (2 in B)"),
    ],
)
def test_hosts_are_counted_by_their_state(states: list[tuple[str, str]], text: str) -> None:
    assert describe_states([SimpleNamespace(state=state, step=step) for state, step in states]) == text


def test_a_pipe_has_one_line_of_counts_for_many_hosts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    display = LiveDisplay()
    display.begin_run(NAMES)
    for name in NAMES:
        display.start_step(name, "Engines: Install x")
    display.end_step(NAMES[0])
    for seconds in (5.0, 11.0, 12.0):
        now[0] = 100.0 + seconds
        with display.task(NAMES[1], "compiling") as task:
            task.start_step("linking")
    display.end_run()
    assert capsys.readouterr().out == "12 running (12 in Engines: Install x)\n"


def test_hosts_with_the_same_text_are_one_group_and_the_largest_comes_first() -> None:
    assert group_lines([("a", "x"), ("b", "y"), ("c", "y")]) == {"y": ["b", "c"], "x": ["a"]}


def test_a_recap_of_many_hosts_has_a_line_for_each_result(capsys: pytest.CaptureFixture[str]) -> None:
    same = [HostRecap(name, "unchanged", 0, 44, float(number)) for number, name in enumerate(NAMES)]
    print_recap([*same, HostRecap("odd", "changed", 2, 44, 9.0), HostRecap("x1", "not reached")])
    assert capsys.readouterr().out.splitlines() == [
        "n01 to n12 (12 hosts): nothing to do (44 steps, 0.0 to 11.0 s)",
        "odd: 2 of 44 steps changed something (9.0 s)",
        "x1: not reached",
    ]


def test_failures_of_a_deploy_are_grouped_by_their_cause(ground: LocalDeployFolder) -> None:  # noqa: F811
    for number, name in enumerate(NAMES, 1):
        ground.hosts[name] = {**ground.server.connection, "ssh_hostname": "127.0.0.3", "ssh_port": number}
    done = ground.run(before=f"if host.name == 'box1':\n    {REFUSE}\n", steps="made(name='Two', words='true')")
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert lines[0] == "Error: deploy failed on 13 of 13 hosts"
    assert lines[1].startswith("  n01 to n12 (12 hosts): cannot be reached: Connection refused")
    assert lines[2].startswith("  box1: refused: no room. Nothing was changed there")
    assert "n01:" not in done.stdout
    assert "n01 to n12 (12 hosts): not reached" in done.stdout


def test_failures_of_checks_are_grouped_by_their_cause(box: CheckRunFolder) -> None:  # noqa: F811
    ran = box.check(MINE, hosts=" ".join(NAMES), gone="n03 before n05 before")
    assert ran.status == 3
    text = re.sub(r"\s+", " ", ran.out)
    assert text.count("a disk is there") == 1
    assert "FAIL n01 Z03 a disk is there" in text
    assert "also on n02, n04, n06 to n12 (9 hosts)" in text
    assert "n03, n05: cannot be reached" in text
    assert "n01, n02, n04, n06 to n12 (10 hosts): does not match its rig (1 ok, 3 failed, 2 skipped)" in text


class TerminalLines(StringIO):
    """A terminal that a test waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.has_line = Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        self.has_line.set()
        return written


def test_a_terminal_shows_the_hosts_of_a_verb_by_their_state(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = TerminalLines()
    monkeypatch.setattr(sys, "stderr", terminal)

    def look(name: str) -> None:
        if name == "n2":
            raise ValueError(name)

    with show_counts([f"n{number}" for number in range(12)], 0.001) as counts:
        counts.run(look, "n1")
        with pytest.raises(ValueError, match="n2"):
            counts.run(look, "n2")
        counts.begun += 1
        terminal.has_line.clear()
        assert terminal.has_line.wait(20)
    assert counts.describe() == "1 done, 1 running, 1 failed, 9 waiting"
    assert counts.describe() in terminal.getvalue()


def test_few_hosts_and_pipes_have_no_line_of_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe = TerminalLines(), StringIO()
    for stream, hosts in ((terminal, 2), (pipe, 12)):
        monkeypatch.setattr(sys, "stderr", stream)
        with show_counts([str(number) for number in range(hosts)], 0.0) as counts:
            counts.run(len, "n1")
        assert stream.getvalue() == ""
