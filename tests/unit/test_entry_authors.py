"""The time and author of an entry's state, as far as logs tell."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from checks.failure_authors import name_subjects
from checks.failure_causes import CheckFailure
from checks.survey.host import dpkg, entry_authors, failure_authors
from checks.survey.host.entry_authors import UTMP, parse_apt_history, parse_dpkg_log, parse_journal, parse_wtmp
from checks.survey.host.host_entry import HostEntry

MOMENT = 1_790_000_000.0


def _local(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _login(line: bytes, user: bytes, host: bytes, moment: float, kind: int = 7) -> bytes:
    return UTMP.pack(kind, 1, line, b"", user, host, 0, 0, 0, int(moment), 0, b"", b"")


JOURNAL = (
    f"{MOMENT - 100:.6f} h sshd[1]: Accepted publickey for alice from 10.0.0.5 port 1 ssh2\n"
    f"{MOMENT - 5:.6f} h sudo[2]:    alice : TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/usr/bin/tee /etc/x.conf\n"
)
SESSIONS = (
    f"{MOMENT - 100:.6f} h sshd-session[1]: Accepted publickey for alice from 10.0.0.5 port 1 ssh2\n"
    f"{MOMENT - 100:.6f} h sshd-session[1]: pam_unix(sshd:session): session opened for user alice(uid=0) by x\n"
    f"{MOMENT - 90:.6f} h sshd-session[2]: Accepted publickey for bob from 10.0.0.6 port 1 ssh2\n"
    f"{MOMENT - 10:.6f} h sshd-session[1]: pam_unix(sshd:session): session closed for user alice\n"
    f"{MOMENT + 10:.6f} h sshd-session[2]: pam_unix(sshd:session): session closed for user bob\n"
)
"""Two sessions at the same time, of which the first ends first."""
AUDIT = (
    f'type=SYSCALL msg=audit({MOMENT:.3f}:7): arch=c000003e uid=0 auid=1000 ses=3 exe="/usr/bin/vim" key=(null)\n'
    f'type=PATH msg=audit({MOMENT:.3f}:7): item=1 name="/etc/x.conf" inode=1 nametype=CREATE\n'
)
BEGIN, END = f"\nStart-Date: {_local(MOMENT - 60)}\n", f"End-Date: {_local(MOMENT + 1)}\n"
HISTORY = f"{BEGIN}Commandline: apt install tool\nRequested-By: alice (1000)\n{END}"
UNATTENDED = f"{BEGIN}Commandline: /usr/bin/unattended-upgrade\n{END}"
SESSION = _login(b"pts/0", b"alice", b"10.0.0.5", MOMENT - 50) + _login(b"pts/0", b"", b"", MOMENT + 50, 8)
CLOCK = entry_authors.clock
INSTALLATION = "apt install tool, requested by alice (1000)"


def _author(
    root: Path, monkeypatch: pytest.MonkeyPatch, moment: float, journal: str = "", **logs: str | bytes
) -> tuple[float, str]:
    monkeypatch.setattr(dpkg, "ROOT", str(root))
    monkeypatch.setattr(entry_authors, "read_journal", lambda first, last, limit: parse_journal(journal))
    monkeypatch.setattr(entry_authors, "BUDGET", 30.0)
    places = {"history": "apt/history.log", "audit": "audit/audit.log", "wtmp": "wtmp", "dpkg": "dpkg.log"}
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("alice:x:1000:1000::/home/alice:/bin/bash\n")
    for name, content in logs.items():
        place = root / "var/log" / places[name]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    job = root / "var/lib/rigwright/jobs/rw-job-packages"
    job.mkdir(parents=True)
    for name, at in (("script", MOMENT + 1000), ("log", MOMENT + 1100)):
        (job / name).touch()
        os.utime(job / name, (at, at))
    entry = HostEntry("etc", "/etc/x.conf", "file", "/etc/x.conf")
    entry.ctime = moment
    return entry_authors.describe([entry])[0]


@pytest.mark.parametrize(
    ("moment", "journal", "logs", "author"),
    [
        (MOMENT, "", {}, ""),
        (MOMENT, JOURNAL, {"audit": AUDIT}, "audit log: /usr/bin/vim in the login of alice"),
        (MOMENT, JOURNAL, {}, f"sudo of alice at {CLOCK(MOMENT - 5)}: /usr/bin/tee /etc/x.conf"),
        (
            MOMENT,
            JOURNAL.replace("x.conf", "x.conf.old"),
            {},
            f"at about the same time: sudo of alice at {CLOCK(MOMENT - 5)}: /usr/bin/tee /etc/x.conf.old; "
            f"while alice was logged in by ssh from 10.0.0.5 since {CLOCK(MOMENT - 100)}",
        ),
        (
            MOMENT,
            SESSIONS,
            {},
            f"while bob was logged in by ssh from 10.0.0.6 since {CLOCK(MOMENT - 90)}",
        ),
        (
            MOMENT - 20,
            SESSIONS,
            {},
            f"while alice was logged in by ssh from 10.0.0.5 since {CLOCK(MOMENT - 100)}; "
            f"while bob was logged in by ssh from 10.0.0.6 since {CLOCK(MOMENT - 90)}",
        ),
        (
            MOMENT + 40,
            SESSIONS,
            {},
            f"at about the same time: bob was logged in by ssh from 10.0.0.6 since {CLOCK(MOMENT - 90)}, "
            f"until {CLOCK(MOMENT + 10)}",
        ),
        (MOMENT + 90, SESSIONS, {}, ""),
        (
            MOMENT,
            f"{MOMENT - 3:.6f} h CRON[9]: (root) CMD (/usr/local/bin/nightly)\n",
            {},
            f"at about the same time: cron job of root at {CLOCK(MOMENT - 3)}: /usr/local/bin/nightly",
        ),
        (
            MOMENT,
            f"{MOMENT - 30:.6f} h login[4]: pam_unix(login:session): session opened for user carol by carol\n",
            {},
            f"while carol was logged in by login since {CLOCK(MOMENT - 30)}",
        ),
        (MOMENT - 200, JOURNAL.replace("x.conf", "y"), {}, ""),
        (
            MOMENT,
            "",
            {"history": HISTORY},
            f"while apt ran at {CLOCK(MOMENT - 60)}: {INSTALLATION}",
        ),
        (MOMENT, "", {"history": UNATTENDED}, f"while apt ran at {CLOCK(MOMENT - 60)} (unattended)"),
        (MOMENT + 100, "", {"history": HISTORY}, ""),
        (MOMENT + 1050, "", {}, "while a deploy of Rigwright ran its job packages"),
        (
            MOMENT,
            "",
            {"wtmp": SESSION},
            "while alice was logged in by ssh from 10.0.0.5",
        ),
        (
            MOMENT + 60,
            "",
            {"wtmp": SESSION},
            "",
        ),
    ],
)
def test_authors(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: float,
    journal: str,
    logs: dict[str, str | bytes],
    author: str,
) -> None:
    """The strongest evidence there is; a process that only ran at that time is no author."""
    assert _author(tmp_path, monkeypatch, moment, journal, **logs) == (moment, author)


def test_parsers() -> None:
    """Logs that are cut off or foreign have no rows."""
    assert parse_apt_history("Commandline: x\n\nnonsense") == []
    assert parse_wtmp(b"x" * (UTMP.size - 1)) == []
    log = f"{_local(MOMENT)} install tool:amd64 <none> 1\n{_local(MOMENT + 1)} configure tool:amd64 1 <none>\n"
    assert parse_dpkg_log(log) == {"tool": (MOMENT + 1, "installation")}
    assert parse_journal("no line\n") == []


def _describe(
    root: Path, monkeypatch: pytest.MonkeyPatch, entry: HostEntry, begin: float = 0.0
) -> tuple[float, str] | None:
    monkeypatch.setattr(dpkg, "ROOT", str(root))
    monkeypatch.setattr(entry_authors, "read_journal", lambda first, last, limit: parse_journal(_now_journal()))
    return entry_authors.describe([entry], begin=begin).get(0)


def _now_journal() -> str:
    begin = time.time() - 100
    return f"{begin:.6f} h sshd[4199999]: Accepted publickey for alice from 10.0.0.5 port 1 ssh2\n"


def _place(root: Path, path: str) -> Path:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("x")
    return place


ALICE = "while alice was logged in by ssh from 10.0.0.5 since "


@pytest.mark.parametrize(
    ("entry", "begins"),
    [
        # of a row, the file that has changed last of those that it is in
        (HostEntry("accounts", "user eve", "x", "/etc/passwd"), "/etc/shadow changed last at "),
        # of what is gone, its folder
        (HostEntry("cron", "/etc/cron.d/job", "", "/etc/cron.d/job"), "/etc/cron.d changed last at "),
    ],
)
def test_a_row_and_a_missing_file_have_the_time_of_their_file_or_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: HostEntry, begins: str
) -> None:
    os.utime(_place(tmp_path, "etc/passwd"), (1, 1))
    older = os.lstat(tmp_path / "etc/passwd").st_ctime
    _place(tmp_path, "etc/cron.d/other")
    shadow = _place(tmp_path, "etc/shadow")
    while os.lstat(shadow).st_ctime <= older:
        shadow.chmod(0o600)
    since, author = _describe(tmp_path, monkeypatch, entry) or (1.0, "")
    assert since == 0.0
    assert author.startswith(begins)
    assert ALICE in author


def test_without_a_time_all_logins_since_the_acceptance_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = HostEntry("sysctl", "parameters in force", "x")
    assert _describe(tmp_path, monkeypatch, entry) is None
    begin = time.time() - 1000
    since, author = _describe(tmp_path, monkeypatch, entry, begin) or (1.0, "")
    assert since == 0.0
    assert author.startswith(
        f"between {CLOCK(begin)} and now; meanwhile alice was logged in by ssh from 10.0.0.5 since "
    )
    # a session that this process is part of is the look itself
    monkeypatch.setattr(entry_authors, "ancestors", lambda: {"4199999"})
    assert _describe(tmp_path, monkeypatch, entry, begin) == (0.0, "")


def test_a_failure_names_what_changed_last_of_that_which_it_is_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dpkg, "ROOT", str(tmp_path))
    monkeypatch.setattr(entry_authors, "read_journal", lambda first, last, limit: parse_journal(_now_journal()))
    text = "drop-in /etc/systemd/system/rigwright-chat.service.d/x.conf, and rigwright_gw.service is failed."
    failure = CheckFailure("U02", "", (("none", text),))
    names = name_subjects(failure)
    assert names == ["/etc/systemd/system/rigwright-chat.service.d/x.conf", "rigwright_gw.service"]
    assert name_subjects(CheckFailure("S01", "chat", (("a", "b"),))) == ["rigwright-chat.service"]
    _place(tmp_path, names[0][1:])
    nothing = ["/nowhere/at/all"]
    answer = failure_authors.look({"failures": [names, nothing], "state": "/var/lib/rigwright"})
    assert isinstance(answer["authors"], list)
    first, second = answer["authors"]
    assert first.startswith(f"{names[0]} changed last at ")
    assert ALICE in first
    assert second == ""


def test_a_failure_that_names_a_process_has_the_time_of_its_start() -> None:
    text = "sleep (pid 12) in /system.slice/ssh.service, process 13 of it, and process x"
    assert name_subjects(CheckFailure("A08", "", (("none", text),))) == ["pid 12", "process 13"]
    began = time.time()
    with subprocess.Popen(["sleep", "60"]) as process:
        found = [*failure_authors.list_subjects([f"process {process.pid}", "pid 0"], {})]
        process.kill()
    assert [(one.key, one.state) for one in found] == [(f"process {process.pid}", "started")]
    assert abs(found[0].ctime - began) < 5
