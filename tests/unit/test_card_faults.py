"""Faults of cards: messages of the kernel's log, and a program that hangs."""

import json
import os
import subprocess
import time
import tracemalloc
from pathlib import Path

import pytest

from rigwright.nvidia.cards.xids import RECOVERED, UNUSABLE_XIDS, XID
from roles.gateway.host.rotation import card_faults
from roles.gateway.host.rotation.card_faults import CardConditions, XidLog
from tests.unit.rendered_scripts import write_stand_in

SLOT = "0000:02:00"
FELL = f"NVRM: Xid (PCI:{SLOT}): 79, pid=1, name=python3, GPU has fallen off the bus."
BACK = f"NVRM: Xid (PCI:{SLOT}): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


def xid_log(folder: Path) -> XidLog:
    names = {str(code): text for code, text in UNUSABLE_XIDS.items()}
    return XidLog(names, XID.pattern, RECOVERED.pattern, str(folder / "record"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stand-ins of programs, in which they write."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


JOURNAL = """
echo "$*" >> asked
case $* in *after-cursor=gone*) exit 1 ;; *after-cursor*) cat later ;; *) cat first ;; esac
"""


def test_the_journal_is_read_from_the_place_of_the_last_run(folder: Path) -> None:
    rows = [{"MESSAGE": FELL, "__REALTIME_TIMESTAMP": "5000000", "__CURSOR": "c1"}, {"MESSAGE": [1, 2]}, []]
    rows += [{"MESSAGE": "x" * 100_000, "__REALTIME_TIMESTAMP": "6", "__CURSOR": "c2"}]
    (folder / "first").write_bytes(b"\n".join(json.dumps(one).encode() for one in rows) + b"\n{\n\xff\n")
    (folder / "later").write_text("")
    write_stand_in(folder / "bin", "journalctl", JOURNAL)

    def read() -> dict[tuple[str, str], float]:
        log = xid_log(folder)
        log.update()
        return log.found

    assert read() == {(SLOT, "79"): 5.0}
    # the journal has lost the message meanwhile
    (folder / "first").write_text("")
    assert read() == {(SLOT, "79"): 5.0}
    assert "--after-cursor=c2" in (folder / "asked").read_text().splitlines()[-1]
    (folder / "later").write_text(json.dumps({"MESSAGE": BACK, "__REALTIME_TIMESTAMP": "7", "__CURSOR": "gone"}))
    assert read() == {}
    (folder / "first").write_text(json.dumps(rows[0]))
    assert read() == {(SLOT, "79"): 5.0}


def test_a_long_journal_takes_little_memory(folder: Path) -> None:
    row = {"MESSAGE": "x" * 10_000, "__REALTIME_TIMESTAMP": "6", "__CURSOR": "c1"}
    (folder / "first").write_text(f"{json.dumps(row)}\n" * 2000)
    write_stand_in(folder / "bin", "journalctl", JOURNAL)
    log = xid_log(folder)
    tracemalloc.start()
    log.update()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert log.cursor == "c1"
    assert peak < 2 << 20


def test_the_next_run_goes_on_where_a_run_ended_for_want_of_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = json.dumps({"MESSAGE": FELL, "__REALTIME_TIMESTAMP": "5000000", "__CURSOR": "c1"})
    write_stand_in(folder / "bin", "journalctl", f"echo \"$*\" >> asked; echo '{row}'; exec sleep 60")
    monkeypatch.setattr(card_faults, "JOURNAL_S", 1.0)
    for _ in range(2):
        log = xid_log(folder)
        with pytest.raises(subprocess.TimeoutExpired):
            log.update()
        assert log.found == {(SLOT, "79"): 5.0}
    asked = (folder / "asked").read_text().splitlines()
    assert ["--after-cursor=c1" in line for line in asked] == [False, True]


def test_an_nvidia_smi_that_hangs_is_killed_and_asked_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stand_in(folder, "nvidia-smi", "echo run >> runs; exec sleep 60")
    monkeypatch.setattr(card_faults, "SMI", str(folder / "nvidia-smi"))
    monkeypatch.setattr(card_faults, "SMI_LIMIT_S", 0.2)
    for _ in range(2):
        cards = CardConditions(str(folder / "cards"))
        cards.ask()
        assert not cards.is_unlisted(SLOT)
    assert (folder / "runs").read_text() == "run\n"


def test_a_clock_that_was_ahead_stops_no_question_to_nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stand_in(folder, "nvidia-smi", "echo run >> runs")
    monkeypatch.setattr(card_faults, "SMI", str(folder / "nvidia-smi"))
    for ahead in (86_400, 0, 0):
        now = time.time() + ahead
        with monkeypatch.context() as clock:
            clock.setattr(card_faults.time, "time", lambda now=now: now)
            CardConditions(str(folder / "cards")).ask()
    # the third time it was asked just before
    assert (folder / "runs").read_text() == "run\n" * 2
