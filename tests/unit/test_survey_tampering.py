"""Texts of a host's users, services and files that would fool the survey, or silence it."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from checks.survey.host import common, foreign_proxies, frontend_services, network_sockets, processes, units

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="asks as nobody")


def test_a_line_ends_where_programs_end_it() -> None:
    # cron runs all of it
    line = "* * * * * root rm -rf \x0b /opt/rigwright \u2028 \x1c"
    assert common.lines(f"{line}\nx\n\n") == [line, "x", ""]
    assert common.lines("") == []


def test_an_oversized_file_does_not_count_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "sudoers"
    path.write_text("#" * 100 + "\nALL ALL=(ALL) ALL\n")
    with pytest.raises(RuntimeError, match="sudoers is longer than 100 bytes"):
        common.read(path, 100)
    assert common.read(path, path.stat().st_size) == path.read_text()
    assert common.begin(path, 3) == "###"
    assert common.begin(tmp_path / "none") == ""


def test_a_read_error_of_a_disk_does_not_count_as_absence(tmp_path: Path) -> None:
    with patch.object(common, "_bytes", side_effect=OSError(5, "Input/output error")):
        with pytest.raises(RuntimeError, match="Input/output error"):
            common.read(tmp_path / "a")
        assert common.read("/sys/class/x") is None


KILLED = """
import os, signal, socket
from checks.survey.host.listener_probe import StrangerRequests
silent = socket.create_server(("127.0.0.1", 0))
asking = StrangerRequests([f"127.0.0.1:{silent.getsockname()[1]}"])
os.kill(asking.pid, signal.SIGKILL)
print(asking.answers())
"""


@ROOT
def test_an_ended_prober_has_heard_nothing() -> None:
    # in a process of its own: it forks
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=30)
    assert "RuntimeError: the process that asks other listeners has died" in done.stderr


def test_a_link_local_address_is_one_of_its_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    table = "fe80000000000000000000000000000a 02 40 20 80     eth0\n" + "0" * 31 + "1 01 80 10 80       lo\n"
    monkeypatch.setattr(common, "read", lambda *_: table)
    assert (
        network_sockets.scope("fe80::a"),
        network_sockets.scope("fe80::b"),
        network_sockets.scope("::1"),
        network_sockets.scope("10.0.0.1"),
    ) == (2, 0, 0, 0)


def test_mounts_in_a_services_own_view_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    views = {
        1: "1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / /srv/models rw - xfs /dev/b rw\n",
        7: "1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / /srv/models rw - xfs /dev/b rw\n"
        "3 1 0:1 /tmp/evil /opt/rigwright/engines/a/lib\\040x.so rw - ext4 /dev/a rw\n"
        "4 1 0:3 /systemd/inaccessible/dir /opt/rigwright/tools ro - tmpfs t rw\n5 1 0:3 /x /run/x rw - tmpfs t rw\n",
    }
    monkeypatch.setattr(common, "read", lambda path, *_: views[int(path.split("/")[2])])
    assert processes._covered(7, ("/opt/rigwright/",)) == ["/opt/rigwright/engines/a/lib x.so"]


GATEWAY = "rigwright_gateway.service"
USERS = "/user.slice/user-1000.slice/user@1000.service"


@pytest.mark.parametrize(
    ("group", "unit"),
    [
        (f"/system.slice/{GATEWAY}", GATEWAY),
        ("/rigwright.slice/rigwright-chat.slice/rigwright-chat.service/worker", "rigwright-chat.service"),
        ("/init.scope", "init.scope"),
        (f"{USERS}/app.slice/{GATEWAY}", f"user@1000.service/{GATEWAY}"),
        (f"/docker/0123/system.slice/{GATEWAY}", f"docker/{GATEWAY}"),
        ("/user.slice/user-1000.slice/session-3.scope", "session-3.scope"),
        ("/", ""),
    ],
)
def test_a_users_unit_is_not_ours_whatever_it_is_called(group: str, unit: str) -> None:
    assert foreign_proxies.HostProcess(7, 1, "/usr/bin/x", (), group, ours=False).unit == unit


@pytest.mark.parametrize(
    ("group", "ours"),
    [
        ("0::/rigwright.slice/rigwright-chat.slice/rigwright-chat.service", True),
        ("0::/system.slice/rw-job-build.service", True),
        (f"0::{USERS}/rigwright.slice/x.service", False),
        (f"0::{USERS}/app.slice/rw-job-build.service", False),
    ],
)
def test_a_users_slice_is_not_ours_whatever_it_is_called(group: str, ours: bool) -> None:
    assert bool(processes.OURS.search(f"1:name=x:/\n{group}\n")) == ours


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("curl -H 'Authorization: Bearer abc123' http://x", "curl -H 'Authorization: Bearer ...' http://x"),
        ("ngrok http 8020 --authtoken=2Xa_9", "ngrok http 8020 --authtoken=..."),
        ('Environment=HF_TOKEN=hf_x API_KEY="k"', 'Environment=HF_TOKEN=... API_KEY="..."'),
        ("sshpass --password hunter2 ssh -R 1:localhost:8020 x", "sshpass --password ... ssh -R 1:localhost:8020 x"),
        ("cp /etc/rigwright/credentials /backup", "cp /etc/rigwright/credentials /backup"),
        ("rigwright-chat ALL=(ALL) NOPASSWD: ALL", "rigwright-chat ALL=(ALL) NOPASSWD: ALL"),
        ("systemctl stop rigwright.target", "systemctl stop rigwright.target"),
    ],
)
def test_no_secret_of_a_foreign_line_is_reported(line: str, shown: str) -> None:
    assert common.masked(line) == shown


def test_many_harmless_entries_hide_no_others() -> None:
    assert units.few(["x"] * units.MANY)
    with pytest.raises(RuntimeError, match="more than"):
        units.few(["x"] * (units.MANY + 1))


def test_a_secret_that_goes_while_it_is_looked_at_does_not_count(tmp_path: Path) -> None:
    with patch("os.walk", return_value=[(str(tmp_path), [], ["gone.key"])]):
        assert frontend_services.loose(str(tmp_path)) == []


def test_a_log_that_others_read_or_write_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.touch()
    log.chmod(0o640)
    tmp_path.chmod(0o750)
    assert frontend_services.opened(str(tmp_path)) == []
    for path, mode in ((log, 0o644), (log, 0o660), (tmp_path, 0o770), (tmp_path, 0o751)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert frontend_services.opened(str(tmp_path)) == [str(path)]
        path.chmod(before)


def test_a_setting_of_the_kernels_is_read() -> None:
    path = Path("/proc/sys/kernel/pid_max")
    assert common.read(path) == path.read_text()
