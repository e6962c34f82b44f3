"""The recap of a run: a line for each host on a pipe, one table on a terminal."""

import pytest

from cli import run_recap
from cli.run_recap import HostRecap, print_recap

DONE = HostRecap("h1", "changed", 12, 44, 90.0, 1, {"chat": "restarted"}, 1_200_000_000, 152)
SAME = HostRecap("h2", "unchanged", 0, 44, 2.0)
FAILED = HostRecap("h0", "failed", 3, 10, 12.0, checks_failed=1)
AWAY = HostRecap("a", "not reached")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [AWAY, FAILED, SAME, DONE],
            [
                "h2: nothing to do (44 steps, 2.0 s)",
                "h1: 1 repair, 12 of 44 steps changed something (90.0 s); chat restarted; fetched 1.2 GB; "
                "checks 152 ok, 1 repaired",
                "h0: failed; 3 of 10 steps changed something (12.0 s)",
                "a: not reached",
            ],
        ),
        ([SAME], ["h2: nothing to do (44 steps, 2.0 s)"]),
        # its error is all that is printed
        ([FAILED], []),
        ([AWAY], []),
    ],
)
def test_a_pipe_has_a_line_for_each_host(
    capsys: pytest.CaptureFixture[str], rows: list[HostRecap], said: list[str]
) -> None:
    print_recap(rows)
    assert capsys.readouterr().out.splitlines() == said


def test_a_terminal_has_one_table_with_failed_hosts_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_recap, "is_terminal", lambda: True)
    print_recap([AWAY, FAILED, SAME, DONE])
    assert capsys.readouterr().out.splitlines() == [
        "",
        "host  result       steps  services        fetched  minutes  checks",
        "h2    unchanged    0/44                                0.0",
        "h1    changed      12/44  chat restarted   1.2 GB      1.5  152 ok, 1 repaired",
        "h0    failed       3/10                                0.2",
        "a     not reached",
    ]
