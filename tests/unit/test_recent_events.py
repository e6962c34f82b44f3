"""Events of a host, from a folder that stands in for it: logs of dpkg and apt, routes, resolver, fstab."""

import time
from pathlib import Path

import pytest

from checks.survey.answers import SurveyAnswers
from checks.survey.host import recent_events
from checks.survey.recent_events import EVENTS, PackageChange, RecentEvents

AT = int(time.time()) // 60 * 60 - 7200
HISTORY = """
Start-Date: {start}
Commandline: /usr/bin/unattended-upgrade --verbose
Requested-By: ana (1000)
Upgrade: libc6:amd64 (2.41-11, 2.41-12)
End-Date: {end}
"""
ROUTES = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
DEFAULT = "eth0\t00000000\t0103A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
LOCAL = "eth0\t0003A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"


def stamp(moment: float, between: str = " ") -> str:
    return time.strftime(f"%Y-%m-%d{between}%H:%M:%S", time.localtime(moment))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(recent_events, "ROOT", tmp_path)
    for name in ("var/log/apt", "var/lib/dpkg/info", "proc/net", "proc/self", "etc"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def look() -> RecentEvents:
    found = recent_events.look({})
    return SurveyAnswers({"recent_events": {"told": found}}).read(EVENTS)


def test_a_change_has_its_program_user_versions_and_files(host: Path) -> None:
    (host / "var/log/dpkg.log").write_text(
        f"{stamp(AT - 60)} install htop:amd64 <none> 3.4.0\n"
        f"{stamp(AT)} upgrade libc6:amd64 2.41-11 2.41-12\n"
        f"{stamp(AT)} status installed libc6:amd64 2.41-12\n"
        f"{stamp(AT + 1)} remove nano:amd64 8.4-1 <none>\n"
        f"{stamp(AT - 90 * 86400)} upgrade curl:amd64 1 2\n"
    )
    (host / "var/log/apt/history.log").write_text(HISTORY.format(start=stamp(AT, "  "), end=stamp(AT + 2, "  ")))
    (host / "var/lib/dpkg/info/libc6:amd64.list").write_text(
        "/.\n/lib/x86_64-linux-gnu/libc.so.6\n/usr/bin/ld.so\n/usr/share/doc/libc6/copyright\n"
    )
    (host / "var/lib/dpkg/info/nano.list").write_text("/usr/bin/nano\n")
    files = ["/usr/bin/ld.so", "/usr/lib/x86_64-linux-gnu/libc.so.6"]
    assert look().changes == [
        PackageChange(AT - 60, "install", "htop", "", "3.4.0", "", "", []),
        PackageChange(AT, "upgrade", "libc6", "2.41-11", "2.41-12", "unattended-upgrade", "ana", files),
        PackageChange(AT + 1, "remove", "nano", "8.4-1", "", "unattended-upgrade", "ana", []),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "upgrade libc6:amd64 2.41-11",
        "upgrade libc6:amd64 2.41-11 2.41-12 more",
        "upgrade ../etc:amd64 1 2",
        "upgrade lib\x1b[2J:amd64 1 2",
        "upgrade libc6:amd64 1;reboot 2",
        "configure libc6:amd64 1 2",
        f"upgrade {'a' * 200}:amd64 1 2",
    ],
)
def test_a_line_of_another_form_is_no_change(host: Path, line: str) -> None:
    (host / "var/log/dpkg.log").write_text(f"{stamp(AT)} {line}\n")
    assert look().changes == []


def test_only_the_end_of_a_log_is_read_and_only_complete_lines(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_events, "TAIL", 100)
    rows = [f"{stamp(AT + number)} upgrade pkg{number}:amd64 1 2\n" for number in range(4)]
    (host / "var/log/dpkg.log").write_text("".join(rows) + f"{stamp(AT)} upgrade cut:amd64 1 2")
    assert [one.package for one in look().changes] == ["pkg3"]


def test_a_log_that_is_no_file_does_not_count(host: Path) -> None:
    (host / "var/log/dpkg.log").mkdir()
    (host / "var/log/apt/history.log").symlink_to("/nowhere")
    assert look().changes == []


def test_routes_resolver_and_mounts(host: Path) -> None:
    (host / "proc/net/route").write_text(ROUTES + LOCAL)
    (host / "etc/fstab").write_text(
        "# comment\n/dev/sda1 / ext4 defaults 0 1\n/dev/sdb1 /srv/models ext4 defaults 0 2\n"
        "/dev/sdc1 /srv/a\\040b ext4 nofail 0 2\n/dev/sdd1 /mnt/usb ext4 noauto 0 0\n/dev/sde1 none swap sw 0 0\n"
    )
    (host / "proc/self/mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
    found = look()
    assert (found.default_routes, found.nameservers) == (0, 0)
    assert found.unmounted == ["/srv/a b", "/srv/models"]
    (host / "proc/net/route").write_text(ROUTES + DEFAULT + LOCAL)
    (host / "etc/resolv.conf").write_text("# none\nnameserver 192.0.2.1\n")
    assert (look().default_routes, look().nameservers) == (1, 1)
