"""A start that the kernel ends for lack of memory leaves a record that says so, however soon its traces are gone."""

import json
import os
from pathlib import Path

import pytest

from rigwright.memory_records import parse_host_records
from roles.memory_records.host import record, start_log
from tests.unit.rendered_scripts import write_stand_in

# Recorded with systemd 257: a service with ExecStartPost=, whose control group had the mark of systemd-oomd when its
# first process was killed. Its control group is gone at once.
INVOCATION, LATER = "97f02723ea7e4276a66ecdc077c81d1d", "37647334b4a24248b0e3526fbff69ed0"
SHOWN = """MainPID={pid}
ControlPID={control}
Result={result}
ExecMainStartTimestampMonotonic={began}
ControlGroup={group}
MemoryPeak=[not set]
ActiveState={active}
SubState={sub}
ActiveEnterTimestampMonotonic=0
InvocationID={invocation}
"""
GONE = {"pid": 0, "control": 0, "group": ""}
FIRST = {"began": 61003546185, "invocation": INVOCATION}
STARTS = {
    "pid": 2957,
    "control": 2958,
    "group": "/system.slice/zz3.service",
    "active": "activating",
    "sub": "start-post",
}
STARTED = SHOWN.format(**STARTS, **FIRST, result="success")
RESTARTS = SHOWN.format(**GONE, **FIRST, active="activating", sub="auto-restart", result="oom-kill")
FAILED = SHOWN.format(**GONE, **FIRST, active="failed", sub="failed", result="oom-kill")
NEXT = SHOWN.format(**STARTS, began=61006420942, invocation=LATER, result="success")
# after `systemctl reset-failed`
UNLOADED = SHOWN.format(**GONE, began=0, invocation="", active="inactive", sub="dead", result="success")
ENTRIES = (
    {
        **{"_PID": "1", "_COMM": "systemd", "_SYSTEMD_UNIT": "init.scope", "UNIT": "zz3.service"},
        **{"INVOCATION_ID": INVOCATION, "MESSAGE_ID": "d989611b15e44c9dbf31e3c81256e4ed", "PRIORITY": "5"},
        "MESSAGE": "zz3.service: systemd-oomd killed some process(es) in this unit.",
    },
    {
        **{
            "_PID": "1",
            "_COMM": "systemd",
            "_SYSTEMD_UNIT": "init.scope",
            "UNIT": "zz3.service",
            "UNIT_RESULT": "oom-kill",
        },
        **{"INVOCATION_ID": INVOCATION, "MESSAGE_ID": "d9b373ed55a64feb8242e02dbe79a49c", "PRIORITY": "4"},
        "MESSAGE": "zz3.service: Failed with result 'oom-kill'.",
    },
    {
        **{
            "_PID": "1",
            "_COMM": "systemd",
            "_SYSTEMD_UNIT": "init.scope",
            "UNIT": "zz3.service",
            "UNIT_RESULT": "signal",
        },
        **{"INVOCATION_ID": LATER, "MESSAGE_ID": "d9b373ed55a64feb8242e02dbe79a49c", "PRIORITY": "4"},
        "MESSAGE": "zz3.service: Failed with result 'signal'.",
    },
)
JOURNALCTL = """exec python3 -I - "$@" <<'PROGRAM'
# a stand-in: prints a field of the entries that have all of FIELD=VALUE; it has none before it was told to sync
import json, os, sys
if "--sync" in sys.argv:
    sys.exit(open("ENTRIES.synced", "w").close())
if not os.path.exists("ENTRIES.synced"):
    sys.exit()
options = [word for word in sys.argv[1:] if word.startswith("--")]
values = [word.split("=", 1) for word in sys.argv[1:] if not word.startswith("--")]
field = next((word.partition("=")[2] for word in options if word.startswith("--output-fields=")), "MESSAGE")
entries = json.load(open("ENTRIES"))
for entry in reversed(entries) if "--reverse" in options else entries:
    if field in entry and all(entry.get(name) == value for name, value in values):
        print(entry[field])
PROGRAM"""
DECLARATION = {
    "fingerprint": "b" * 64,
    "failure_patterns": ["unable to allocate "],
    "computed": {
        **{"engine": "llama.cpp 0.3.36", "model": "a" * 64, "options": "c" * 64, "cards": [], "share": 0.0},
        **{"context": 4096, "parallel": 1, "weights": 1000, "cache": 100},
    },
}


def watch_shown(folder: Path, monkeypatch: pytest.MonkeyPatch, entries: object, *shown: str) -> int:
    """Record a start of the unit that systemd shows so, one text at each question and the last one from then on."""
    for number, text in enumerate((*shown, shown[-1])):
        (folder / f"shown.{number}").write_text(text)
    (folder / "entries").write_text(json.dumps(entries))
    last = len(shown)
    write_stand_in(
        folder,
        "systemctl",
        f"cd {folder}; n=$(cat n 2> /dev/null || echo 0); cat shown.$n; [ $n -ge {last} ] || echo $((n + 1)) > n",
    )
    write_stand_in(folder, "journalctl", JOURNALCTL.replace("ENTRIES", str(folder / "entries")))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    # its control group is gone before the first look
    monkeypatch.setattr(record, "CGROUPS", str(folder))
    monkeypatch.setattr(record, "YOUNG_INTERVAL", 0.0)
    return record.watch_start("zz3.service", DECLARATION, str(folder / "chat.json"), INVOCATION)


@pytest.mark.parametrize(
    ("entries", "end"),
    [
        pytest.param((), FAILED, id="failed"),
        pytest.param((), RESTARTS, id="restarts"),
        pytest.param(ENTRIES, NEXT, id="a later start has begun"),
        pytest.param(ENTRIES, UNLOADED, id="reset"),
    ],
)
def test_a_start_that_the_kernel_ends_bars_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: object, end: str
) -> None:
    assert watch_shown(tmp_path, monkeypatch, entries, STARTED, end) == 1
    (one,) = parse_host_records((tmp_path / "chat.json").read_bytes())
    assert (one.outcome, one.result, one.invocation) == ("failed", "oom-kill", INVOCATION)
    failure = one.as_failure()
    assert failure is not None
    assert failure.failure == "the kernel ended it for lack of memory"


@pytest.mark.parametrize("change", [{"_PID": "4242"}, {"INVOCATION_ID": LATER}, {"UNIT_RESULT": "OOM; reboot"}])
def test_only_systemd_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]) -> None:
    entries = [{**ENTRIES[1], **change}]
    assert watch_shown(tmp_path, monkeypatch, entries, STARTED, NEXT) == 1
    (one,) = parse_host_records((tmp_path / "chat.json").read_bytes())
    assert (one.outcome, one.result, one.as_failure()) == ("failed", "", None)


def test_the_reason_at_the_end_of_a_long_log_bars_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_log, "LOG_BYTES", 4096)
    words = ("loading", *(f"unable to allocate {number} of the first try" for number in range(300)))
    words += ("unable to allocate CUDA0 buffer", "exiting")
    entries = [{"_SYSTEMD_INVOCATION_ID": INVOCATION, "MESSAGE": text} for text in words]
    assert watch_shown(tmp_path, monkeypatch, entries, STARTED, UNLOADED) == 1
    (one,) = parse_host_records((tmp_path / "chat.json").read_bytes())
    assert len(one.failure_lines) == start_log.FAILURE_LINES
    assert one.failure_lines[-2:] == ("unable to allocate 299 of the first try", "unable to allocate CUDA0 buffer")


def test_a_journal_that_does_not_answer_delays_a_record_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stand_in(tmp_path, "journalctl", "exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(start_log, "SYNC", 0.1)
    start_log.sync_journal()
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    start_log.sync_journal()


def test_processes_of_the_next_command_beside_the_engine_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # systemd is asked anew once the first of two commands has gone, however late the next question would be
    monkeypatch.setattr(record, "QUESTIONS", 3600.0)
    monkeypatch.setattr(record, "LONGEST", 20.0)
    main, first, second = os.getpid(), 2957, 2958
    processes = tmp_path / "unit/cgroup.procs"
    processes.parent.mkdir()
    processes.write_text(f"{main}\n{first}\n")
    then = {first: f"{main}\n{second}\n", second: f"{main}\n"}
    beside: list[int] = []

    def take(_: object, __: int, control: int) -> list[int]:
        beside.append(control)
        processes.write_text(then.get(control, f"{main}\n"))
        return []

    monkeypatch.setattr(record, "engine_processes", take)
    values = {**STARTS, **FIRST, "pid": main, "group": "/unit", "result": "success"}
    shown = [SHOWN.format(**{**values, "control": number}) for number in (0, first, second)]
    later = SHOWN.format(**{**values, "control": first, "invocation": LATER})
    assert watch_shown(tmp_path, monkeypatch, (), *shown, later) == 1
    assert beside == [first, second]
