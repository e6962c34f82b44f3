"""Progress: plain lines with rate and time left, and a row a host on a terminal."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from roles import progress
from roles.operations.jobs import _JobWatcher
from roles.progress import FileProgress, ProgressTask, ProgressWriter


class FakeClock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


def writer(*, terminal: bool) -> tuple[ProgressWriter, io.StringIO]:
    screen = io.StringIO()
    made = ProgressWriter()
    made.console = Console(file=screen, force_terminal=terminal, width=140, _environ={})
    return made, screen


def text_on(screen: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())


@pytest.mark.parametrize(
    ("reports", "unit", "total", "text"),
    [
        ([(0, 0)], "steps", 300, "0/300 steps"),
        ([(0, 0), (60, 120)], "steps", 300, "120/300 steps, 2.0/s, 90 s left"),
        ([(0, 100), (50, 200)], "steps", 300, "200/300 steps, 2.0/s, 50 s left"),
        ([(0, 0), (10, 300)], "steps", 300, "300/300 steps, 30.0/s, 0 s left"),
        ([(0, 0), (10, 400)], "steps", 300, "300/300 steps, 30.0/s, 0 s left"),
        ([(0, 0), (20, 500_000_000)], "bytes", 2_000_000_000, "500/2000 MB, 25.0/s, 60 s left"),
        ([(0, 50), (10, 50)], "steps", 300, "50/300 steps"),
        ([(0, 50), (10, 20)], "steps", 300, "20/300 steps"),
        ([(0, 0), (10, 37)], "%", 100, "37 %"),
        ([], "steps", 300, ""),
        ([(0, 5)], "steps", 0, ""),
    ],
)
def test_a_task_tells_how_much_at_what_rate_and_how_long_still(
    clock: FakeClock, reports: list[tuple[int, int]], unit: str, total: int, text: str
) -> None:
    task = ProgressTask(writer(terminal=False)[0], "h1", "Fetch")
    start = clock.now
    for seconds, done in reports:
        clock.now = start + seconds
        task.report_done(done, total, unit)
    assert task.describe() == text


def test_a_new_step_counts_anew(clock: FakeClock) -> None:
    task = ProgressTask(writer(terminal=False)[0], "h1", "Fetch")
    task.report_done(0, 100, "bytes")
    clock.now += 10
    task.report_done(100, 100, "bytes")
    task.start_step("compiling")
    assert task.describe() == ""
    task.report_done(3, 10, "steps")
    clock.now += 1
    task.report_done(4, 10, "steps")
    assert task.describe() == "4/10 steps, 1.0/s, 6 s left"


def test_without_a_terminal_a_line_comes_for_each_step_and_now_and_then(
    clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    made, screen = writer(terminal=False)
    with made.task("h1", "rw-job-x") as task:
        task.start_step("compiling")
        task.start_step("compiling")
        for done in range(1, 25):
            clock.now += 1
            task.report_done(done, 100, "steps")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "    [h1] compiling",
        "    [h1] compiling: 10/100 steps, 1.0/s, 90 s left",
        "    [h1] compiling: 20/100 steps, 1.0/s, 80 s left",
    ]
    assert screen.getvalue() == ""


def test_on_a_terminal_a_bar_shows_host_step_and_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    made, screen = writer(terminal=True)
    with made.task("h1", "rw-job-x") as first, made.task("h2", "rw-job-y") as second:
        first.start_step("compiling")
        first.report_done(212, 300, "steps")
        second.report_done(5_000_000, 10_000_000, "bytes")
        assert made.bars is not None
        made.bars.refresh()
    shown = text_on(screen)
    assert re.search(r"\[h1\] compiling .*212/300 steps", shown)
    assert re.search(r"\[h2\] rw-job-y .*5/10 MB", shown)
    assert capsys.readouterr().err == ""


def test_the_bars_are_gone_after_the_last_task_also_when_it_fails() -> None:
    made, screen = writer(terminal=True)
    with pytest.raises(RuntimeError, match="boom"), made.task("h1", "a"):
        with made.task("h2", "b"):
            pass
        assert made.bars is not None
        raise RuntimeError("boom")
    assert made.bars is None
    assert screen.getvalue().rstrip("\r").endswith("\x1b[?25h")  # the cursor is back
    with made.task("h1", "again"):
        assert made.bars is not None


@pytest.mark.parametrize("text", ["==> step [/] x", "[red]x", "[/red]", "\\\\[x]", "[link=http://h]x[/link]"])
def test_what_looks_like_markup_is_shown_as_it_is(text: str) -> None:
    made, screen = writer(terminal=True)
    with made.task("h[/]1", text) as first, made.task("h2", "plain") as second:
        second.start_step(text)
        first.report_done(1, 2, "steps")
        assert made.bars is not None
        made.bars.refresh()
    shown = text_on(screen)
    assert f"[h[/]1] {text}" in shown
    assert f"[h2] {text}" in shown


def document(*rows: tuple[str, int, str], done: int = 0) -> dict[str, object]:
    listed = [{"path": path, "size": 10**8, "done": at, "state": state, "from": "hub"} for path, at, state in rows]
    return {"updated": 1.0, "done": done, "total": 10**9, "files": listed}


A, B = f"org/name/{'c' * 40}/a.gguf", "mine/v1/b.gguf"


def test_on_a_terminal_a_host_has_one_row_with_the_file_in_work() -> None:
    made, screen = writer(terminal=True)
    with made.task("h1", "rw-job-weights") as task:
        files = FileProgress(task)
        files.update_files(document((A, 10**7, "fetching"), ("mine/v1/c.gguf", 0, "waiting"), done=10**8))
        assert made.bars is not None
        made.bars.refresh()
        shown = text_on(screen)
        assert re.search(r"\[h1\] rw-job-weights \(org/name/a\.gguf: fetching from hub\) .*100/1000 MB", shown)
        assert "c.gguf" not in shown
        assert len(made.bars.tasks) == 1
    assert made.bars is None


def test_without_a_terminal_a_file_s_steps_are_said_and_how_far_all_are(
    clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    made, _ = writer(terminal=False)
    with made.task("h1", "rw-job-weights") as task:
        files = FileProgress(task)
        for second in range(11):
            clock.now += 1
            files.update_files(document((A, second * 10**6, "fetching"), done=second * 10**7))
        files.update_files(document((A, 10**8, "verifying"), done=10**8))
        files.update_files(document())
    assert capsys.readouterr().err.splitlines() == [
        "    [h1] rw-job-weights: 0/1000 MB",
        "    [h1] org/name/a.gguf: fetching from hub",
        "    [h1] rw-job-weights: 100/1000 MB, 10.0/s, 90 s left",
        "    [h1] org/name/a.gguf: verifying",
    ]


def test_alone_it_writes_fewer_lines_and_on_standard_output(
    clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    made = ProgressWriter()
    made.use_plain_stdout()
    with made.task("h1", "rw-job-x") as task:
        task.start_step("compiling")
        for done in range(1, 125):
            clock.now += 1
            task.report_done(done, 200, "steps")
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "h1: compiling",
        "h1: compiling: 60/200 steps, 1.0/s, 140 s left",
        "h1: compiling: 120/200 steps, 1.0/s, 80 s left",
    ]
    assert captured.err == ""


@pytest.mark.parametrize(
    ("log", "described"),
    [
        (["==> installing", "dlstatus:1:7.5:Retrieving file", "pmstatus:curl:25.0000:Preparing curl (amd64)"], "25 %"),
        (["==> installing", "pmstatus:dpkg-exec:100:Running dpkg", "Setting up curl"], "100 %"),
        (["pmstatus:curl:25.0:x", "==> compiling", "[3/10] a.o"], "3/10 steps"),
        (["==> installing", "pmstatus:curl"], ""),
    ],
)
def test_how_far_apt_is_comes_from_its_own_status(clock: FakeClock, log: list[str], described: str) -> None:
    watcher = _JobWatcher(SimpleNamespace(), "rw-job-x", "/run/x", "")
    task = ProgressTask(writer(terminal=False)[0], "h1", "rw-job-x")
    watcher._report(task, 0, log)
    assert task.describe() == described
