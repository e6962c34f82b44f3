"""Files on their way to a host: a shell of this machine stands in for the host, and a pipe to it for the connection."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import gevent
import gevent.monkey
import pytest

from rigwright.supply.bundle import LocalFile
from roles.operations import jobs, reconnecting_shell
from roles.operations.jobs import LocalFileMismatch, _JobWatcher, run_job
from roles.operations.reconnecting_shell import LOST, PART, HostLost, ReconnectingShell
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.ssh_host import ShellHost

CONTENT = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(40_000))  # five parts


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> ShellHost:
    made = ShellHost()
    monkeypatch.setattr(reconnecting_shell, "find_deploy_lock", lambda _: None)
    monkeypatch.setattr(reconnecting_shell, "time", SimpleNamespace(monotonic=lambda: made.now))
    monkeypatch.setattr(reconnecting_shell.gevent, "sleep", lambda _: None)
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a file of two words"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("there", [None, 0, 1, PART + 1, len(CONTENT) - 1])
def test_only_the_rest_of_a_file_is_sent(host: ShellHost, source: Path, tmp_path: Path, there: int | None) -> None:
    target = tmp_path / "target"
    if there is not None:
        target.write_bytes(CONTENT[:there])
    told: list[int] = []
    ReconnectingShell(host).append_file(source, str(target), told.append)
    assert target.read_bytes() == CONTENT
    assert host.sent == len(CONTENT) - (there or 0)
    assert told == sorted(told)
    assert told[-1] == len(CONTENT)


def test_a_file_that_is_whole_is_left_alone_and_one_that_is_too_long_is_sent_anew(host, source, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(CONTENT)
    ReconnectingShell(host).append_file(source, str(target), lambda _: None)
    assert host.commands == []
    target.write_bytes(b"x" * (len(CONTENT) + 1))
    ReconnectingShell(host).append_file(source, str(target), lambda _: None)
    assert target.read_bytes() == CONTENT


def test_after_a_cut_it_goes_on_where_it_was(host: ShellHost, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    host.cuts = [2 * PART, 4 * PART]
    ReconnectingShell(host).append_file(source, str(target), lambda _: None)
    assert target.read_bytes() == CONTENT
    assert (host.sent, host.connections) == (len(CONTENT), 2)
    places = zip((2 * PART, 4 * PART), host.commands[1:], strict=True)
    assert [f" seek={place} " in command for place, command in places] == [True, True]


def test_a_cut_after_hours_of_sending_is_a_cut_like_any_other(host: ShellHost, source: Path, tmp_path: Path) -> None:
    host.cuts, host.seconds_a_part = [2 * PART, 4 * PART], 10.0 * LOST
    ReconnectingShell(host).append_file(source, str(tmp_path / "target"), lambda _: None)
    assert host.sent == len(CONTENT)


def test_a_connection_that_brings_nothing_for_too_long_is_given_up(host, source, tmp_path):
    host.cuts = [0] * 1000
    with pytest.raises(HostLost, match="no connection for 20 s"):
        ReconnectingShell(host, 20.0).append_file(source, str(tmp_path / "target"), lambda _: None)
    assert 15 < host.connections < 25


def test_a_full_disk_is_no_lost_connection(host: ShellHost, source: Path) -> None:
    with pytest.raises(HostLost, match=r"/dev/full cannot be written: dd: .*No space left on device"):
        ReconnectingShell(host).append_file(source, "/dev/full", lambda _: None)
    assert host.connections == 0


def test_a_folder_that_is_not_there_is_no_lost_connection(host: ShellHost, source: Path, tmp_path: Path) -> None:
    with pytest.raises(HostLost, match=r"cannot be written: dd: .*No such file or directory"):
        ReconnectingShell(host).append_file(source, str(tmp_path / "gone" / "target"), lambda _: None)
    assert host.connections == 0


def test_a_writer_that_was_killed_is_not_tried_for_ever(host: ShellHost, source: Path, tmp_path: Path) -> None:
    host.status = -1  # SSH's signal
    with pytest.raises(HostLost, match="cannot be written: dd was ended"):
        ReconnectingShell(host).append_file(source, str(tmp_path / "target"), lambda _: None)


def test_a_host_that_says_nothing_at_the_end_is_asked_again(host: ShellHost, source: Path, tmp_path: Path) -> None:
    host.silent = True
    ReconnectingShell(host).append_file(source, str(tmp_path / "target"), lambda _: None)
    assert host.connections == 1  # and then it was found to be whole
    assert (tmp_path / "target").read_bytes() == CONTENT


def files(folder: Path, **contents: bytes) -> list[LocalFile]:
    folder.mkdir()
    found = []
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        found.append(LocalFile(folder / name, name, hashlib.sha256(content).hexdigest(), len(content)))
    return found


def test_complete_files_are_not_sent_again_nor_read(host: ShellHost, tmp_path: Path) -> None:
    two = files(tmp_path / "bundle", one=b"one", other=CONTENT)
    watcher = _JobWatcher(host, "rw-job-x", str(tmp_path / "jobs"), "")
    watcher.send_files(two)
    there = tmp_path / "jobs" / "files"
    assert {path.name: path.read_bytes() for path in there.iterdir()} == {"one": b"one", "other": CONTENT}
    assert there.stat().st_mode & 0o777 == 0o755  # apt reads it as a user of its own
    two[0].path.unlink()
    (there / "other").write_bytes(CONTENT[:PART])
    (there / "what somebody has left").write_bytes(b"")
    host.sent = 0
    watcher.send_files(two)
    assert host.sent == len(CONTENT) - PART
    assert (there / "other").read_bytes() == CONTENT


def test_nothing_is_sent_of_a_file_that_is_another_one(host: ShellHost, tmp_path: Path) -> None:
    two = files(tmp_path / "bundle", one=b"one", other=b"other")
    two[1].path.write_bytes(b"othre")
    with pytest.raises(LocalFileMismatch, match=r"other has SHA-256 .*, but its bundle says .*: recreate it"):
        _JobWatcher(host, "rw-job-x", str(tmp_path / "jobs"), "").send_files(two)
    assert not (tmp_path / "jobs" / "files" / "other").exists()


def test_a_job_without_files_takes_away_what_an_earlier_run_has_sent(host: ShellHost, tmp_path: Path) -> None:
    (tmp_path / "jobs/files").mkdir(parents=True)
    assert not _JobWatcher(host, "rw-job-x", str(tmp_path / "jobs"), "").needs_files([], "")
    assert not (tmp_path / "jobs/files").exists()


@pytest.mark.parametrize(("present", "lacks"), [("", True), ("false", True), ("[ -d / ]", False)])
def test_files_are_sent_unless_the_host_has_what_they_are_for(host, tmp_path, present, lacks):
    (one,) = files(tmp_path / "bundle", one=b"one")
    assert _JobWatcher(host, "rw-job-x", str(tmp_path / "jobs"), "").needs_files([one], present) is lacks


def test_sent_files_are_readable_for_apts_own_user_with_any_umask(host, tmp_path):
    before = os.umask(0o077)
    try:
        _JobWatcher(host, "rw-job-x", str(tmp_path / "jobs"), "").send_files(files(tmp_path / "bundle", one=b"one"))
    finally:
        os.umask(before)
    sent = tmp_path / "jobs/files/one"
    assert [oct(path.stat().st_mode)[-3:] for path in (sent, sent.parent, sent.parent.parent)] == ["644", "755", "755"]


def test_the_deploy_lock_gives_signs_of_life_while_a_large_file_is_read(host, tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(reconnecting_shell, "find_deploy_lock", lambda _: None)
    (one,) = files(tmp_path / "bundle", one=b"one")
    blocking: Callable[[float], None] = gevent.monkey.get_original("time", "sleep")
    monkeypatch.setattr(LocalFile, "refusal", lambda _: blocking(0.5) or "")
    beats = 0

    def beat() -> None:
        nonlocal beats
        while True:
            gevent.sleep(0.02)
            beats += 1

    heart = gevent.spawn(beat)
    _JobWatcher(host, "rw-job-x", str(tmp_path / "jobs"), "").send_files([one])
    heart.kill()
    assert beats > 10


@pytest.fixture
def output_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The operator's output about a job, on a host where no job runs and none can be started."""
    lines: list[str] = []
    monkeypatch.setattr(jobs, "logger", SimpleNamespace(error=lines.append, info=lines.append, warning=lines.append))
    write_stand_in(tmp_path / "bin", "systemctl", "echo ${STATE:-inactive}")
    write_stand_in(tmp_path / "bin", "systemd-run", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return lines


def run(host: ShellHost, folder: Path, *sent: LocalFile) -> bool:
    return run_job(None, host, "rw-job-x", "true", "false", str(folder), "", sent)


def test_a_job_that_has_not_begun_is_not_said_to_go_on(host, output_lines, tmp_path):
    (one,) = files(tmp_path / "bundle", one=b"one")
    (tmp_path / "jobs/rw-job-x/files/one").mkdir(parents=True)
    assert not run(host, tmp_path / "jobs", one)
    assert output_lines[-1].startswith(f"[box] {tmp_path}/jobs/rw-job-x/files/one cannot be written: dd: ")
    assert output_lines[-1].endswith("Is a directory; run it again to continue")


def test_a_running_job_goes_on_and_nothing_is_sent(host, output_lines, tmp_path):
    (one,) = files(tmp_path / "bundle", one=b"one")
    # which says something else the second time
    write_stand_in(
        tmp_path / "bin", "systemctl", '[ -e "$0.asked" ] && echo "no word" || { : > "$0.asked"; echo active; }'
    )
    assert not run(host, tmp_path / "jobs", one)
    assert output_lines[0] == "[box] rw-job-x is already running: watching it"
    assert output_lines[-1].endswith("; the job continues on the host: run it again to watch it")
    assert not (tmp_path / "jobs").exists()


def test_a_file_that_is_another_one_ends_the_job_before_it_begins(host, output_lines, tmp_path):
    (one,) = files(tmp_path / "bundle", one=b"one")
    one.path.write_bytes(b"two")
    assert not run(host, tmp_path / "jobs", one)
    assert len(output_lines) == 1
    assert output_lines[0].startswith(f"[box] {one.path} has SHA-256 ")
    assert not (tmp_path / "jobs/rw-job-x/script").exists()


@pytest.mark.parametrize("there", [True, False], ids=["progress file", "none yet"])
def test_a_job_of_many_files_is_watched_by_its_progress_file(host, output_lines, tmp_path, monkeypatch, there):
    shown: list[object] = []
    monkeypatch.setattr(jobs, "report_files", lambda task, document: shown.append((task.text, document)))
    folder = tmp_path / "jobs/rw-job-x"
    folder.mkdir(parents=True)
    (folder / "log").write_text("==> fetching 2 files\nplain\n")
    row = {"path": "it's a $(name).gguf", "from": "", "state": "fetching", "size": 2, "done": 1}
    document = {"done": 1, "total": 2, "files": [row]}
    if there:
        (tmp_path / "progress.json").write_text(json.dumps(document))
    watcher = _JobWatcher(host, "rw-job-x", str(folder), f"files {tmp_path}/progress.json")
    assert not watcher.watch_to_end("false")
    assert shown == ([("fetching 2 files", document)] if there else [])


def test_a_job_that_failed_has_failed_though_its_result_is_there(host, output_lines, tmp_path, monkeypatch):
    (tmp_path / "rw-job-x").mkdir()
    write_stand_in(tmp_path / "bin", "systemd-run", f"echo broken > {tmp_path}/rw-job-x/log")
    monkeypatch.setenv("STATE", "failed")
    assert not run_job(None, host, "rw-job-x", "false", "true", str(tmp_path))
    assert output_lines == [f"[box] rw-job-x failed; the end of {tmp_path}/rw-job-x/log:", "[box]   broken"]
