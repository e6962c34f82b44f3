"""Digests of a deploy's own state: the changes that change them, and root's record."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rigwright.plan.state_digests import OwnedStateFacts, parse_owned_state
from roles.owned_state.host import state_fingerprint
from tests.unit.channel_records import channel_lines

DECLARED = "d" * 64


@pytest.fixture
def question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A host with a folder of settings, one of sockets, and no unit."""
    monkeypatch.setattr(state_fingerprint, "_units", lambda word: {})
    monkeypatch.setattr(state_fingerprint, "UNIT_FOLDERS", (str(tmp_path / "systemd"),))
    for name in ("config", "run", "systemd"):
        (tmp_path / name).mkdir()
    (tmp_path / "config/rules.yml").write_text("a")
    (tmp_path / "run/api.sock").write_text("")
    (tmp_path / "dpkg").write_text("")
    words = {
        "word": "rigwright",
        "record": str(tmp_path / "run/agreed"),
        "exact": [str(tmp_path / "config")],
        "loose": [str(tmp_path / "run")],
        "without": [str(tmp_path / "run/agreed"), str(tmp_path / "run/locks")],
        "files": [str(tmp_path / "dpk*")],
    }
    return json.dumps(words)


def look(question: str, capsys: pytest.CaptureFixture[str]) -> OwnedStateFacts:
    state_fingerprint.main([question, "look"])
    fields = capsys.readouterr().out.split("\0")[:-1]
    return parse_owned_state(channel_lines(*(tuple(fields[at + 1 : at + 5]) for at in range(0, len(fields), 5))))


def edit_in_place(folder: Path) -> None:
    path = folder / "config/rules.yml"
    before = path.stat()
    path.write_text("b")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def add_drop_in(folder: Path) -> None:
    (folder / "systemd/rigwright-chat.service.d").mkdir()
    (folder / "systemd/rigwright-chat.service.d/x.conf").write_text("")


def unmask(folder: Path) -> None:
    (folder / "systemd/exporter.service").symlink_to("/dev/null")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (edit_in_place, "files"),
        (lambda folder: (folder / "config/rules.yml").chmod(0o600), "files"),
        (lambda folder: (folder / "config/added").write_text(""), "files"),
        (lambda folder: (folder / "run/api.sock").chmod(0o777), "folders"),
        (lambda folder: (folder / "run").chmod(0o777), "folders"),
        (add_drop_in, "unit files"),
        (unmask, "unit files"),
        (lambda folder: (folder / "dpkg").write_text("installed"), "host"),
    ],
)
def test_a_change_of_what_a_deploy_owns_changes_a_digest(
    question: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, change: Callable[[Path], object], part: str
) -> None:
    found = look(question, capsys)
    state_fingerprint.main([question, "seal", json.dumps(dict(found.digests)), DECLARED])
    assert look(question, capsys).is_agreed(DECLARED)
    change(tmp_path)
    assert look(question, capsys).find_changes(DECLARED) == [part]


def test_changes_by_locks_and_the_record_are_no_difference(
    question: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = look(question, capsys)
    state_fingerprint.main([question, "seal", json.dumps(dict(found.digests)), DECLARED])
    (tmp_path / "run/locks").mkdir()
    (tmp_path / "systemd/other.service").write_text("")
    (tmp_path / "run/api.sock").write_text("more")
    assert look(question, capsys).is_agreed(DECLARED)
    assert (tmp_path / "run/agreed").stat().st_mode & 0o777 == 0o600


def test_changes_during_checks_are_not_recorded_as_checked(
    question: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = look(question, capsys)
    edit_in_place(tmp_path)
    state_fingerprint.main([question, "seal", json.dumps(dict(found.digests)), DECLARED])
    assert not (tmp_path / "run/agreed").exists()


def test_another_declaration_is_not_the_one_that_was_checked(question: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = look(question, capsys)
    state_fingerprint.main([question, "seal", json.dumps(dict(found.digests)), DECLARED])
    assert look(question, capsys).find_changes("e" * 64) == ["declared"]


def test_a_host_with_nothing_of_ours_agrees_with_nothing() -> None:
    assert not OwnedStateFacts().is_agreed(DECLARED)


def test_a_process_that_was_changed_by_hand_has_another_digest() -> None:
    pid = str(os.getpid())
    before = state_fingerprint._process(pid)
    assert state_fingerprint._process(pid) == before
    mask = os.umask(0o077)
    try:
        assert state_fingerprint._process(pid) != before
    finally:
        os.umask(mask)


def test_a_timer_that_elapses_and_what_it_runs_change_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemctl"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def units(timer: str, group: str, nice: str) -> dict[str, str]:
        text = (
            f"Id=rigwright_x.timer\nTimersCalendar={{ OnCalendar=hourly ; next_elapse={timer} }}\nActiveState=active\n"
        )
        text += f"\nId=rigwright_x.service\nType=oneshot\nControlGroup={group}\nNice={nice}\nActiveState=inactive\n"
        program.write_text(f"#!/bin/sh\n[ \"$2\" = -- ] || exit 0\ncat << 'END'\n{text}END\n")
        program.chmod(0o755)
        return state_fingerprint._units("rigwright")

    before = units("Sat 10:00", "", "0")
    assert units("Sat 11:00", "/system.slice/rigwright_x.service", "0") == before
    assert units("Sat 11:00", "", "5") != before
