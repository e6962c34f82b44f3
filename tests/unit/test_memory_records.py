"""Records of starts: the host's program."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rigwright import memory_records
from rigwright.memory_records import parse_host_records
from rigwright.project_root import ROOT
from roles.memory_records.host import process_memory, record, start_log
from roles.memory_records.host.process_memory import CardSample, DriverLibrary, PeakUse

COMPUTED = {
    **{"engine": "llama.cpp 0.3.36", "model": "a" * 64, "options": "c" * 64, "driver": ""},
    **{"cards": [], "context": 4096, "parallel": 1, "weights": 1000, "cache": 100, "work": 10, "later": 0, "host": 0},
    "share": 0.0,
}
DECLARATION = {
    **{"fingerprint": "b" * 64, "computed": COMPUTED},
    **{"patterns": ["n_ctx_slot"], "failure_patterns": ["unable to allocate "]},
}


def sample_record(invocation: str = "1" * 32, **changes: object) -> dict[str, object]:
    """A record as the host's program writes it, of this process."""
    watch = record.StartWatch(DECLARATION, invocation)
    watch.peaks = PeakUse(DriverLibrary("no such library"))
    watch.peaks.look([os.getpid()])
    watch.take_ready(12.34, is_there=False)
    return {**watch.build(["n_slots = 1, n_ctx_slot = 4096"]), **changes}


def test_the_controller_reads_what_the_host_writes(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    record.write_record(str(path), sample_record())
    record.write_record(str(path), sample_record("2" * 32))
    first, last = parse_host_records(path.read_bytes())
    assert (first.invocation, last.invocation) == ("1" * 32, "2" * 32)
    assert last.seconds == 12.3
    assert last.host.peak >= last.host.settled > 0
    assert last.free_ram > 0
    found = last.as_measured()
    assert found is not None
    assert (found.peak, found.computed.floor) == (last.host.peak, 1110)
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_record_is_replaced_within_one_start_and_kept_over_starts(tmp_path: Path) -> None:
    path = str(tmp_path / "chat.json")
    for invocation in ("1", "1", "2", "3", "4", "5", "6", "7"):
        record.write_record(path, sample_record(invocation * 32))
    kept = [one["invocation"][0] for one in json.loads(Path(path).read_text())["history"]]
    assert kept == ["3", "4", "5", "6"]
    for number in range(record.FINGERPRINTS + 3):
        record.write_record(path, sample_record(f"{number:032x}", fingerprint=f"{number:064x}"))
    marks = {one["fingerprint"] for one in json.loads(Path(path).read_text())["history"]}
    assert len(marks) == record.FINGERPRINTS - 1


def test_records_are_in_the_order_of_their_starts(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    later, earlier = (
        sample_record("2" * 32, moment="2026-06-10T12:00:09Z"),
        sample_record(moment="2026-06-10T12:00:00Z"),
    )
    for one in (earlier, later, {**earlier, "seconds": 3.0}):
        record.write_record(str(path), one)
    assert [(one.invocation[0], one.seconds) for one in parse_host_records(path.read_bytes())] == [
        ("1", 3.0),
        ("2", 12.3),
    ]


def test_recorders_of_one_instance_lose_no_record(tmp_path: Path) -> None:
    path = str(tmp_path / "chat.json")
    # one that was killed
    (tmp_path / f".chat.json.{'9' * 32}").write_text("{")
    rows = [sample_record(f"{number:032x}", fingerprint=f"{number:064x}") for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(lambda one: record.write_record(path, one), rows)) == [None] * 12
    assert len(parse_host_records(Path(path).read_bytes())) == 12
    assert {one.name for one in tmp_path.iterdir()} == {"chat.json", ".chat.lock"}
    assert (tmp_path / ".chat.lock").stat().st_mode & 0o777 == 0o600


def test_the_moment_of_a_record_is_that_of_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "gmtime", lambda: time.struct_time((2026, 6, 10, 12, 0, 0, 2, 161, 0)))
    started = record.StartWatch(DECLARATION, "1" * 32)
    monkeypatch.undo()
    assert started.build([])["moment"] == "2026-06-10T12:00:00Z"


def test_a_damaged_file_of_earlier_records_is_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    for text in ("{", "[]", '{"history": 7}', '{"history": [1, {"fingerprint": []}]}', "[" * 100_000):
        path.write_text(text)
        record.write_record(str(path), sample_record())
        assert json.loads(path.read_text())["invocation"] == "1" * 32


def test_memory_of_other_instances_is_free_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "CGROUPS", str(tmp_path))
    for name, size in (("rigwright-chat", 5), ("rigwright-embed", 7), ("other", 9)):
        (tmp_path / f"rigwright.slice/{name}.slice").mkdir(parents=True)
        (tmp_path / f"rigwright.slice/{name}.slice/memory.stat").write_text(f"anon {size}\nfile 100\nshmem 1\n")
    group = "/rigwright.slice/rigwright-chat.slice/rigwright-chat.service"
    assert record.read_others(group) == {"others": 8}
    assert record.read_others("/x.service") == {}
    values = sample_record(machine={"MemAvailable": 100, "others": 8}, host={"peak": 9, "settled": 9, "anon": 6})
    (one,) = parse_host_records(json.dumps(values))
    assert one.free_ram == 114


def test_lines_of_a_log_are_cut_and_printable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    journal = tmp_path / "journalctl"
    journal.write_text("#!/bin/sh\nprintf 'n_ctx_slot \\033[2J%0400d\\nother\\n' 7\n")
    journal.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (line,) = start_log.read_lines("1" * 32, ["n_ctx_slot"])
    assert len(line) == start_log.LINE_LENGTH
    assert line.startswith("n_ctx_slot ?[2J0")


def test_memory_of_this_process_and_machine() -> None:
    found = process_memory.read_ram([os.getpid(), 1 << 30])
    assert found.peak >= found.now > 0
    machine = process_memory.read_machine()
    assert machine["MemTotal"] >= machine["MemAvailable"] > 0
    assert memory_records.MachineMemory.model_validate(machine).MemTotal == machine["MemTotal"]


def test_pages_that_processes_share_count_once() -> None:
    size = 64 << 20
    # another process has the same pages of a file, and its own copy of what both have had since
    program = (
        f"import mmap, os, sys; m = mmap.mmap(-1, {size}); [m.write(b'x' * 4096) for _ in range({size >> 12})]; "
        "os.fork(); sum(m[::4096]); print(1, flush=True)"
    )
    words = [sys.executable, "-I", "-S", "-c", f"{program}; sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as one:
        assert one.stdout
        for _ in range(2):
            one.stdout.readline()
        children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
        pair = [one.pid, *map(int, children)]
        assert len(pair) == 2
        every = process_memory.read_ram(pair)
        counted = process_memory.read_ram(pair, {"anon": 1 << 20, "file_mapped": 1 << 20, "shmem": size})
        alone = process_memory.read_ram(pair[:1], {"anon": 0, "file_mapped": 0, "shmem": 0})
        os.killpg(one.pid, signal.SIGKILL)
    assert every.peak > 2 * size
    assert size <= counted.shmem < counted.peak < size + (32 << 20)
    # of one process the kernel knows the most that it has had
    assert alone.peak >= alone.now > size


@pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of other users")
def test_the_program_that_asks_for_the_first_answer_is_not_the_engine() -> None:
    def start(command: str, user: int) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            ["sh", "-c", f"{command} & echo $!; wait"],
            stdout=subprocess.PIPE,
            text=True,
            user=user,
            start_new_session=True,
        )
        started.append(made)
        return made

    started: list[subprocess.Popen[str]] = []
    try:
        engine, ready, orphan = start("sleep 60", 1234), start("sleep 60", 0), start("sleep 60", 65534)
        children = [int(one.stdout.readline()) for one in started if one.stdout]
        every = [*(one.pid for one in started), *children]
        own = [engine.pid, children[0]]
        assert process_memory.engine_processes(every, engine.pid, ready.pid) == own
        # as root, only by descent: a container's
        kept = process_memory.engine_processes(every, ready.pid, orphan.pid)
        assert kept == [engine.pid, ready.pid, *children[:2]]
        assert process_memory.engine_processes(every, ready.pid, 0) == every
        assert process_memory.engine_processes([1 << 30], 1 << 30, 0) == [1 << 30]
    finally:
        for one in started:
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()


SYSTEMCTL = """#!/bin/sh
# a stand-in: each question has the next of these states, and the last one from then on
folder={folder}
count=$(cat $folder/count 2>/dev/null || echo 0); count=$((count + 1)); echo $count > $folder/count
set -- {states}
[ $count -lt $# ] || count=$#
shift $((count - 1))
printf 'ActiveState=%s\\nSubState=%s\\nResult=%s\\nInvocationID={invocation}\\n' $(echo $1 | tr , ' ')
printf 'ControlGroup=/unit\\nMainPID={pid}\\nControlPID=0\\nMemoryPeak=8192\\n'
printf 'ExecMainStartTimestampMonotonic=1000000\\n'
case $1 in activating*|*failed*|*stopped,*) end=500000 ;; *) end=3500000 ;; esac
printf 'ActiveEnterTimestampMonotonic=%s\\n' $end
"""
ACTIVATING, ACTIVE = "activating,start-post,success", "active,running,success"
KILLED = "error loading model: unable to allocate CUDA0 buffer"


def write_programs(folder: Path, *states: str, pid: int = 0) -> None:
    """Programs of the host, as stand-ins."""
    values = {"folder": folder, "states": " ".join(states), "invocation": "1" * 32, "pid": pid or os.getpid()}
    journal = f"#!/bin/sh\necho 'n_slots = 1, n_ctx_slot = 4096'\necho '{KILLED}'\n"
    for name, text in (("systemctl", SYSTEMCTL.format(**values)), ("journalctl", journal)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "unit").mkdir()
    (folder / "unit/cgroup.procs").write_text(f"{os.getpid()}\n")
    (folder / "unit/memory.current").write_text("4096\n")
    (folder / "unit/memory.events").write_text("oom 1\noom_kill 1\noom_group_kill 0\n")


def watch(folder: Path, monkeypatch: pytest.MonkeyPatch, *states: str, pid: int = 0, invocation: str = "1" * 32) -> int:
    """Record a start of the unit that the stand-ins show."""
    write_programs(folder, *states, pid=pid)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(record, "CGROUPS", str(folder))
    for name in ("INTERVAL", "YOUNG_INTERVAL", "USED_INTERVAL", "QUESTIONS", "ANSWERED_QUESTIONS", "SETTLING"):
        monkeypatch.setattr(record, name, 0.0)
    declaration = folder / "declaration.json"
    declaration.write_text(json.dumps(DECLARATION))
    return record.main(["rigwright-chat.service", "chat", str(declaration), str(folder), invocation])


def test_a_start_is_watched_until_it_has_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(tmp_path, monkeypatch, ACTIVATING, ACTIVATING, ACTIVE) == 0
    (one,) = parse_host_records((tmp_path / "chat.json").read_bytes())
    assert (one.seconds, one.invocation, one.fingerprint) == (2.5, "1" * 32, "b" * 64)
    assert one.host.peak > 0
    assert one.cgroup == {"current": 4096, "oom_kill": 1}
    assert one.lines == ("n_slots = 1, n_ctx_slot = 4096",)


@pytest.mark.parametrize("pid", [0, 1 << 22])
def test_a_start_that_is_stopped_as_soon_as_it_was_ready_has_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: int
) -> None:
    assert watch(tmp_path, monkeypatch, ACTIVATING, ACTIVATING, "inactive,dead,success", pid=pid) == 0
    (one,) = parse_host_records((tmp_path / "chat.json").read_bytes())
    assert (one.outcome, one.seconds) == ("ready", 2.5)
    # processes of a later start are in the same group: without the first process of this one none counts
    assert (one.host.peak > 0) == (pid == 0)


def test_the_mark_of_ready_is_taken_with_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / ".chat.answered"
    for marked, is_there in (("2", True), ("1", False)):
        mark.write_text(marked * 32 + "\n")
        # it has answered, and then not from its cards
        assert watch(tmp_path, monkeypatch, ACTIVATING, ACTIVATING, "failed,failed,exit-code") == 1
        assert mark.exists() == is_there
        shutil.rmtree(tmp_path / "unit")
        (tmp_path / "count").unlink()
    assert [one.outcome for one in parse_host_records((tmp_path / "chat.json").read_bytes())] == ["failed"]


@pytest.mark.parametrize("answers", [True, False])
def test_a_start_that_another_one_follows_at_once_is_known_by_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    if answers:
        (tmp_path / ".chat.answered").write_text("2" * 32 + "\n")
    assert watch(tmp_path, monkeypatch, ACTIVATING, ACTIVE, invocation="2" * 32) == (0 if answers else 1)
    (one,) = parse_host_records((tmp_path / "chat.json").read_bytes())
    assert (one.outcome, one.result, one.invocation) == ("ready" if answers else "failed", "", "2" * 32)


def test_the_mark_of_another_start_is_not_awaited(tmp_path: Path) -> None:
    (tmp_path / "mark").write_text("2" * 32 + "\n")
    began = time.monotonic()
    record._await_mark(str(tmp_path / "mark"), "2" * 32, 60)
    assert time.monotonic() - began < 30
    record._await_mark(str(tmp_path / "mark"), "1" * 32, 0.05)
    assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize(
    ("state", "outcome", "result"),
    [
        ("failed,failed,oom-kill", "failed", "oom-kill"),
        ("activating,auto-restart,exit-code", "failed", "exit-code"),
        ("inactive,stopped,success", "stopped", "success"),
        ("failed,failed,REBOOT;x", "failed", ""),
    ],
)
def test_a_start_that_ends_without_an_answer_is_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, outcome: str, result: str
) -> None:
    path = tmp_path / "chat.json"
    record.write_record(str(path), sample_record("2" * 32))
    assert watch(tmp_path, monkeypatch, ACTIVATING, ACTIVATING, f"'{state}'") == 1
    failure, ready = parse_host_records(path.read_bytes())
    assert (ready.invocation, failure.as_measured()) == ("2" * 32, None)
    assert (failure.outcome, failure.result, failure.invocation) == (outcome, result, "1" * 32)
    assert failure.host.peak > 0
    assert failure.failure_lines == (KILLED,)
    assert (failure.cgroup["oom_kill"], failure.cgroup["peak"]) == (1, 8192)
    # residency and predictions read the newest start with an answer
    record.write_record(str(path), sample_record("3" * 32))
    assert [one["invocation"] for one in json.loads(path.read_text())["failures"]] == ["1" * 32]
    for number in range(record.FAILURES + 3):
        record.write_record(str(path), {**sample_record(f"{number:032x}"), "outcome": "failed"})
    kept = json.loads(path.read_text())
    assert (kept["invocation"], len(kept["failures"])) == ("3" * 32, record.FAILURES)


class OneCard(DriverLibrary):
    """A stand-in for the driver's library: one card, whose free bytes fall, and no process that it names."""

    def __init__(self, free: list[int]) -> None:
        self.free = free

    def read_cards(self, processes: Iterable[int], others: Iterable[int] = ()) -> list[CardSample]:
        """The next look."""
        free = self.free.pop(0) if len(self.free) > 1 else self.free[0]
        return [CardSample("GPU-12345678", "RTX", 24 << 30, 0, free)]


def test_where_the_driver_names_no_process_free_memory_counts() -> None:
    peaks = PeakUse(OneCard([20 << 30, 15 << 30, 16 << 30]))
    for _ in range(3):
        peaks.look([])
    assert peaks.cards == {}
    peaks.use_differences(1)
    assert (peaks.cards, peaks.names, peaks.by_difference) == ({"GPU-12345678": 5 << 30}, {"GPU-12345678": "RTX"}, True)
    peaks.look([])
    assert peaks.last_cards == {"GPU-12345678": 4 << 30}
    quiet = PeakUse(OneCard([20 << 30]))
    quiet.look([])
    quiet.use_differences(1)
    assert quiet.cards == {}


@pytest.mark.skipif(shutil.which("cc") is None, reason="no cc here")
def test_the_driver_s_library_names_the_memory_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "libnvidia-ml.so.1"
    source = ROOT / "tests/stand_ins/nvml.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("STAND_IN_PID", str(os.getpid()))
    driver = DriverLibrary(str(library))
    assert driver.driver == "595.91.07"
    (card,) = driver.read_cards([os.getpid()])
    assert card.index == 0
    assert card.uuid == "GPU-0123abcd-0000-1111-2222-333344445555"
    assert (card.name, card.total, card.used, card.free) == ("NVIDIA GeForce RTX 3090", 24 << 30, 13 << 30, 10 << 30)
    assert driver.read_cards([1])[0].used == 0


def test_without_a_driver_there_are_no_cards() -> None:
    driver = DriverLibrary("libno-such-library.so.1")
    assert (driver.driver, driver.read_cards([1])) == ("", [])
