"""Progress: one display with a row per host on a terminal, plain lines elsewhere."""

import io
import os
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.deep_reading import show_deep_reading
from roles import progress, progress_task, step_durations
from roles.download_progress import report_files
from roles.operations.jobs import _JobWatcher
from roles.progress import LiveDisplay
from roles.progress_task import ProgressTask
from roles.step_durations import RunEstimate, StepDurations


class FakeClock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock()
    for module in (progress, progress_task, step_durations):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


class SizedTerminal(io.StringIO):
    """A terminal in memory."""

    def isatty(self) -> bool:
        return True


def text_on(screen: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())


def set_size(monkeypatch: pytest.MonkeyPatch, *size: int) -> None:
    monkeypatch.setattr(progress, "shutil", SimpleNamespace(get_terminal_size=lambda: os.terminal_size(size)))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> SizedTerminal:
    """A terminal of 80x24 that the display draws on."""
    screen = SizedTerminal()
    monkeypatch.setattr(LiveDisplay, "stream", screen)
    set_size(monkeypatch, 80, 24)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


@pytest.mark.parametrize(
    ("reports", "unit", "total", "amount", "rate", "left"),
    [
        ([(0, 0)], "steps", 300, "0/300 steps", "", None),
        ([(0, 0), (60, 120)], "steps", 300, "120/300 steps", "2.0/s", 90),
        ([(0, 100), (50, 200)], "steps", 300, "200/300 steps", "2.0/s", 50),
        ([(0, 0), (10, 400)], "steps", 300, "300/300 steps", "30.0/s", 0),
        ([(0, 0), (20, 500_000_000)], "bytes", 2_000_000_000, "500/2000 MB", "25.0 MB/s", 60),
        ([(0, 50), (10, 50)], "steps", 300, "50/300 steps", "", None),
        # less than before is no change
        ([(0, 50), (10, 20)], "steps", 300, "50/300 steps", "", None),
        # a slower rate: the time left stands still
        ([(0, 0), (10, 100), (100, 110)], "steps", 300, "110/300 steps", "1.1/s", 20),
        ([(0, 0), (10, 37)], "%", 100, "37 %", "", None),
        ([], "steps", 300, "", "", None),
        ([(0, 5)], "steps", 0, "", "", None),
        # bytes of an unknown total
        ([(0, 0), (10, 400_000_000)], "bytes", 0, "400 MB", "40.0 MB/s", None),
    ],
)
def test_a_task_has_an_amount_a_rate_and_a_time_left(
    clock: FakeClock,
    reports: list[tuple[int, int]],
    unit: str,
    total: int,
    amount: str,
    rate: str,
    left: float | None,
) -> None:
    task = ProgressTask(LiveDisplay(), "h1", "Fetch")
    start = clock.now
    for seconds, done in reports:
        clock.now = start + seconds
        task.report_done(done, total, unit)
    assert (task.describe_amount(), task.describe_rate(), task.left) == (amount, rate, left)


def test_a_new_step_counts_anew(clock: FakeClock) -> None:
    task = ProgressTask(LiveDisplay(), "h1", "Fetch")
    task.report_done(0, 100, "bytes")
    clock.now += 10
    task.report_done(100, 100, "bytes")
    task.start_step("compiling")
    assert (task.describe_amount(), task.left) == ("", None)
    task.report_done(3, 10, "steps")
    clock.now += 1
    task.report_done(4, 10, "steps")
    assert (task.describe_amount(), task.left) == ("4/10 steps", 6)


def test_without_a_terminal_a_line_comes_for_each_step_and_every_ten_seconds_of_a_host(
    clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    display = LiveDisplay()
    with display.task("h1", "rw-job-x") as task, display.task("h2", "rw-job-y") as other:
        task.start_step("compiling")
        task.start_step("compiling")
        for done in range(1, 25):
            clock.now += 1
            task.report_done(done, 100, "steps")
        other.report_done(1, 2, "steps")
    assert capsys.readouterr().err.splitlines() == [
        "h1: compiling",
        "h1: compiling: 10/100 steps, 1.0/s, 1:30 left",
        "h1: compiling: 20/100 steps, 1.0/s, 1:20 left",
        "h2: rw-job-y: 1/2 steps",
    ]


def test_without_a_terminal_silent_work_has_a_line_every_ten_seconds(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(LiveDisplay, "stream", written)
    monkeypatch.setattr(progress, "BEAT", 3600.0)
    display = LiveDisplay()

    def wait(seconds: int) -> list[str]:
        for _ in range(seconds):
            clock.now += 1
            display.report_silent_work()
        lines = written.getvalue().splitlines()
        written.truncate(written.seek(0))
        return lines

    with display.task("checks", "running all checks"):
        assert wait(9) == []
        assert wait(16) == [f"checks: running all checks: running for {took}" for took in ("0:10", "0:20")]
    display.begin_run(["h1", "h2"])
    assert wait(10) == [f"{name}: connecting and reading the host: running for 0:10" for name in ("h1", "h2")]
    display.start_step("h1", "Base: Folders")
    display.start_step("h2", "Base: Folders")
    display.end_step("h2")
    assert wait(10) == ["h1: Base: Folders: running for 0:10"]
    with display.task("h1", "rw-job-x") as job:
        job.start_step("installing")
        assert wait(10) == ["h1: installing", "h1: installing: running for 0:10"]
    display.fail_host("h1")
    assert wait(30) == []
    display.end_run()
    assert wait(30) == []


def test_quiet_work_has_no_row_and_its_first_line_after_ten_seconds(clock: FakeClock, terminal: SizedTerminal) -> None:
    display = LiveDisplay()
    with display.task("h1", "connecting", quiet=True):
        assert not display.live
        for _ in range(12):
            clock.now += 1
            display.report_silent_work()
    assert terminal.getvalue() == "h1: connecting: running for 0:10\n"


def rows(display: LiveDisplay) -> list[str]:
    return display.render().plain.splitlines()


def test_on_a_terminal_a_row_has_host_step_bar_rate_and_clock(clock: FakeClock, terminal: SizedTerminal) -> None:
    display = LiveDisplay()
    with display.task("h1", "rw-job-x") as first, display.task("h2", "rw-job-y") as second:
        first.start_step("compiling")
        first.report_done(0, 300, "steps")
        second.report_done(5_000_000, 10_000_000, "bytes")
        clock.now += 100
        first.report_done(200, 300, "steps")
        assert rows(display) == [
            "h1  compiling                             [#####---]     2.0/s  0:50 left  1:40",
            "h2  rw-job-y                              [####----]   5/10 MB             1:40",
        ]
        assert display.live
    assert not display.live


def test_the_rows_are_gone_after_the_last_task_also_when_it_fails(terminal: SizedTerminal) -> None:
    display = LiveDisplay()
    with pytest.raises(RuntimeError, match="boom"), display.task("h1", "a"):
        with display.task("h2", "b"):
            pass
        assert display.live
        raise RuntimeError("boom")
    assert not display.live
    # a process that is killed leaves the cursor as it was
    assert "\x1b[?25l" not in terminal.getvalue()
    with display.task("h1", "again"):
        assert display.live


@pytest.mark.parametrize("text", ["==> step [/] x", "[red]x", "[/red]", "\\\\[x]", "[link=http://h]x[/link]"])
def test_text_that_looks_like_markup_is_shown_as_it_is(terminal: SizedTerminal, text: str) -> None:
    display = LiveDisplay()
    with display.task("h[/]1", text):
        assert display.live
        display.live.refresh()
    assert f"h[/]1  {text}" in text_on(terminal)


@pytest.mark.parametrize(
    ("environment", "size"),
    [({"NO_COLOR": "1"}, (80, 24)), ({"TERM": "dumb"}, (80, 24)), ({}, (40, 24)), ({}, (80, 3))],
)
def test_a_terminal_that_cannot_show_rows_has_plain_lines(
    monkeypatch: pytest.MonkeyPatch, terminal: SizedTerminal, environment: dict[str, str], size: tuple[int, int]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    set_size(monkeypatch, *size)
    with LiveDisplay().task("h1", "a") as task:
        task.start_step("b")
    assert terminal.getvalue() == "h1: b\n"


def test_of_more_hosts_than_lines_those_that_work_or_failed_come_first(terminal: SizedTerminal) -> None:
    display = LiveDisplay()
    display.begin_run([f"h{number:02}" for number in range(40)])
    display.start_step("h05", "Base: Packages")
    display.fail_host("h05")
    for name in ("h30", "h39"):
        display.start_step(name, "Engines: Install x")
    shown = rows(display)
    assert len(shown) == 22
    assert [line.split()[0] for line in shown[:4]] == ["h30", "h39", "h05", "h00"]
    assert shown[-1] == "2 running (2 in Engines: Install x), 1 failed, 37 waiting"
    assert max(map(len, shown)) < 80
    display.end_run()


def test_bar_and_time_left_of_a_run_never_go_back(clock: FakeClock) -> None:
    durations = StepDurations()
    durations.add("packages", "h1", {"installing": 40.0, "": 1.0})
    durations.add("engine", "h2", {"fetching": 10.0, "compiling": 600.0})
    estimate = RunEstimate(["folders", "packages", "engine"], "h1", durations)
    seen: list[tuple[float, float]] = []

    def look(*position: Any) -> None:
        estimate.update(*position)
        assert estimate.left is not None
        seen.append((estimate.fraction, estimate.left))

    look(0, "", {}, 0.0, None)
    assert 640 < seen[-1][1] < 660
    for second in range(60):  # slower than recorded
        clock.now += 1
        look(1, "installing", {}, float(second), min(second / 50, 1.0))
    look(2, "fetching", {}, 0.0, None)
    assert seen[-1][1] == 610
    for second in range(900):
        clock.now += 1
        # it stalls in the middle
        done = min(second / 300, 0.5) if second < 800 else second / 900
        look(2, "compiling", {"fetching": 10.0}, float(second), done)
    assert seen[-1][1] < 2
    assert all(after[0] >= before[0] and after[1] <= before[1] for before, after in pairwise(seen))
    assert seen[-1][0] > 0.99


def test_another_round_of_a_run_goes_on_where_the_bar_was(clock: FakeClock, terminal: SizedTerminal) -> None:
    display, durations = LiveDisplay(), StepDurations()
    durations.add("a", "h1", {"": 10.0})
    display.begin_run(["h1"])
    display.estimate_run("h1", ["a"], durations)
    display.start_step("h1", "a")
    clock.now += 5
    assert "[####----]" in rows(display)[0]
    display.estimate_run("h1", ["a", "a"], durations)
    assert "[####----]" in rows(display)[0] and "0:05 left" in rows(display)[0]
    display.end_run()
    assert rows(display) == []
    # a job after the run has a row of its own, which goes with it
    with display.task("h1", "verify"):
        assert len(rows(display)) == 1
    assert not display.live


def test_a_first_run_has_a_bar_by_its_steps_and_no_time_left(clock: FakeClock) -> None:
    estimate = RunEstimate(["a", "b"], "h1", StepDurations())
    estimate.update(1, "", {}, 30.0, None)
    assert (estimate.fraction, estimate.left) == (0.75, None)


def document(*rows: tuple[str, int, str], done: int = 0) -> dict[str, object]:
    listed = [{"path": path, "size": 10**8, "done": at, "state": state, "from": "hub"} for path, at, state in rows]
    return {"updated": 1.0, "done": done, "total": 10**9, "files": listed}


A, B = f"org/name/{'c' * 40}/a.gguf", "mine/v1/b.gguf"


def test_a_download_of_several_files_shows_the_one_in_work(
    clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    display = LiveDisplay()
    with display.task("h1", "rw-job-weights") as task:
        for second in range(11):
            report_files(task, document((A, second * 10**6, "fetching"), ("v/c", 0, "waiting"), done=second * 10**7))
            clock.now += 1
        assert task.last == "org/name/a.gguf: fetching from hub"
        report_files(task, document((B, 10**8, "verifying"), done=10**8))
        assert task.last == "mine/v1/b.gguf: verifying"
    assert capsys.readouterr().err.splitlines() == [
        "h1: rw-job-weights: 0/1000 MB",
        "h1: rw-job-weights: 100/1000 MB, 10.0 MB/s, 1:30 left",
    ]


@pytest.mark.parametrize(
    ("log", "described"),
    [
        (["==> installing", "dlstatus:1:7.5:Retrieving file", "pmstatus:curl:25.0000:Preparing curl (amd64)"], "62 %"),
        (["==> installing", "dlstatus:1:75.5:Retrieving file"], "37 %"),
        (["==> installing", "pmstatus:dpkg-exec:100:Running dpkg", "Setting up curl"], "100 %"),
        (["pmstatus:curl:25.0:x", "==> compiling", "[3/10] a.o"], "3/10 steps"),
        (["==> installing", "pmstatus:curl"], ""),
    ],
)
def test_how_far_apt_is_comes_from_its_own_status(clock: FakeClock, log: list[str], described: str) -> None:
    watcher = _JobWatcher(SimpleNamespace(), "rw-job-x", "/run/x", "")
    task = ProgressTask(LiveDisplay(), "h1", "rw-job-x")
    watcher._report(task, 0, log)
    assert task.describe_amount() == described


def test_check_deep_knows_how_much_is_left_from_its_last_run(
    clock: FakeClock, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for _ in range(2):
        with show_deep_reading("box1") as report:
            for done in (100, 300, 500):
                report(done * 10**6, ["weights"])
                clock.now += 11
    assert capsys.readouterr().err.splitlines() == [
        "box1: reading all files: 100 MB",
        "box1: reading all files: 300 MB, 18.2 MB/s",
        "box1: reading all files: 500 MB, 18.2 MB/s",
        "box1: reading all files: 100/500 MB",
        "box1: reading all files: 300/500 MB, 18.2 MB/s, 0:10 left",
        "box1: reading all files: 500/500 MB, 18.2 MB/s, 0:00 left",
    ]
