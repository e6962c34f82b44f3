"""Which programs root starts that others can change, and whom sshd lets in."""

import grp
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from checks.survey.host import (
    dpkg,
    fs_responsiveness,
    privilege_escalation,
    program_paths,
    root_started_programs,
    scheduled_jobs,
    sshd,
)
from tests.unit.rendered_scripts import write_stand_in

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="what is root's cannot be made by others")
Write = Callable[..., Path]
CRON = "0 3 * * * root"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file of a host, which only root can change."""

    def made(name: str, text: str = "", mode: int = 0o644) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    for module in (root_started_programs, dpkg, sshd):
        monkeypatch.setattr(module, "ROOT", str(tmp_path))
    monkeypatch.setattr(dpkg, "ADMIN", "/var/lib/dpkg")
    for name in ("ETC", "RUN", "USR"):
        monkeypatch.setattr(scheduled_jobs, name, tmp_path / name.lower())
        monkeypatch.setattr(privilege_escalation, name, tmp_path / name.lower())
    monkeypatch.setattr(privilege_escalation, "VAR", tmp_path / "var/lib")
    monkeypatch.setattr(program_paths, "HELD", (f"{tmp_path}/usr/bin",))
    monkeypatch.setattr(program_paths, "BELOW", (f"{tmp_path}/srv",))
    (tmp_path / "var/tmp").mkdir(parents=True)
    (tmp_path / "var/tmp").chmod(0o1777)
    made("var/lib/dpkg/status", "Package: none\nStatus: install ok installed\n")
    made("opt/own", mode=0o755)
    return made


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("etc/cron.d/x", f"{CRON} cd / && A=1 nice -n 5 /var/tmp/x -a"),
        ("etc/crontab", "@reboot root sh -c 'true; /var/tmp/x'"),
        ("etc/crontab", "@reboot root bash -lc '/var/tmp/x'"),
        ("etc/crontab", "@reboot root flock -n /run/x.lock /var/tmp/x"),
        ("etc/crontab", "@reboot root /usr/bin/flock -w 10 /run/x.lock -c 'true && /var/tmp/x'"),
        ("etc/crontab", "@reboot root flock /run/x.lock sh -c /var/tmp/x"),
        ("etc/crontab", "@reboot root chroot --userspec=0:0 /var/tmp/ /bin/x"),
        ("etc/crontab", "@reboot root ionice -c 3 /var/tmp/x"),
        ("etc/crontab", "@reboot root (cd / && /var/tmp/x)"),
        ("etc/rc.local", "case $1 in\n  start|stop) /var/tmp/x ;;\nesac"),
        ("var/spool/cron/crontabs/root", "* * * * * /var/tmp/x"),
        ("etc/anacrontab", "1 5 name /var/tmp/x"),
        ("etc/udev/rules.d/x.rules", 'SUBSYSTEM=="net", RUN+="/var/tmp/x %k"'),
        ("etc/modprobe.d/x.conf", "install tun /var/tmp/x"),
        ("etc/binfmt.d/x.conf", ":zz:E::zzz::/var/tmp/x:"),
        ("etc/pam.d/common-session", "session optional pam_exec.so quiet /var/tmp/x"),
        ("usr/lib/pam.d/own", "account required pam_exec.so log=/var/log/x /var/tmp/x"),
        ("etc/network/interfaces", "iface lo inet loopback\n  post-up /var/tmp/x"),
        ("etc/systemd/system/x.service", "[Service]\nExecStartPre=-/var/tmp/x"),
        ("etc/systemd/system/x.service.d/y.conf", "[Service]\nExecStart=@/var/tmp/x y"),
        ("etc/systemd/system/x.service", "[Service]\nUser=www-data\nExecStart=/opt/own\nExecStartPre=-+/var/tmp/x"),
        ("etc/systemd/system/x.service", "[Service]\nUser=www-data\nExecStart=!/var/tmp/x"),
        ("etc/systemd/system/x.service", "[Service]\nUser=www-data\nUser=0\nExecStart=/var/tmp/x"),
        ("etc/systemd/system/x.service", "[Service]\nUser=www-data\nUser=\nExecStart=/var/tmp/x"),
        ("etc/systemd/system/x@root.service", "[Service]\nUser=%i\nExecStart=/var/tmp/x"),
        (
            "etc/systemd/system/x.service",
            "[Service]\nUser=a\nPermissionsStartOnly=true\nExecStartPre=/var/tmp/x\nExecStart=/var/tmp/y",
        ),
        ("usr/share/dbus-1/system-services/x.service", "[D-BUS Service]\nExec=/var/tmp/x\nUser=root"),
        ("etc/profile.d/x.sh", "export PATH=/var/tmp:$PATH"),
        ("root/.bashrc", "alias ls='/var/tmp/x'"),
        ("etc/logrotate.d/x", "/var/log/x {\n  postrotate\n    /var/tmp/x\n  endscript\n}"),
        # that is for the files alone: logrotate runs its scripts as root again
        ("etc/logrotate.d/x", "/var/log/x {\n  su www-data adm\n  postrotate\n    /var/tmp/x\n  endscript\n}"),
        ("etc/crypttab", "c /dev/sdz none luks,keyscript=/var/tmp/x"),
    ],
)
def test_a_program_that_anybody_could_put_there_is_told(write: Write, tmp_path: Path, file: str, text: str) -> None:
    write(file, f"{text}\n")
    (found,) = root_started_programs.loose()
    assert found["file"] == str(tmp_path / file)
    assert "/var/tmp has mode 1777" in found["text"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("etc/cron.d/x", f"{CRON} /opt/own /var/tmp/x > /var/tmp/log\n# {CRON} /var/tmp/x"),
        ("etc/cron.d/x", "0 3 * * * www-data /var/tmp/x"),
        ("etc/cron.d/x", f"{CRON} flock -n /var/tmp/x.lock /opt/own /var/tmp/x"),
        ("etc/cron.d/x", f"{CRON} /usr/bin/flock /var/tmp/x.lock -c '/opt/own /var/tmp/x'"),
        ("etc/cron.d/x", f"{CRON} chroot /opt /var/tmp/x"),
        (
            "etc/rc.local",
            "case $1 in\n  /var/tmp/*) true ;;\n  /var/tmp/a|/var/tmp/b) x=$(true) ;; /var/tmp/c) ;;\nesac",
        ),
        ("etc/logrotate.d/x", "/var/tmp/x {\n  weekly\n}"),
        ("etc/profile.d/x.sh", "[ -r /var/tmp/x ] && export PATH=/opt:$PATH"),
        ("etc/systemd/system/x.service", "[Service]\nWorkingDirectory=/var/tmp\nExecStart=/opt/own /var/tmp/x"),
        ("etc/systemd/system/x.service", "[Service]\nUser=www-data\nExecStart=/var/tmp/x\nExecStop=!!/var/tmp/x"),
        ("etc/systemd/system/x.service", "[Service]\nDynamicUser=yes\nExecStart=/var/tmp/x"),
        ("etc/systemd/system/x@.service", "[Service]\nUser=%i\nExecStart=/var/tmp/x"),
        ("etc/systemd/user/x.service", "[Service]\nExecStart=/var/tmp/x"),
        ("usr/share/dbus-1/system-services/x.service", "[D-BUS Service]\nExec=/var/tmp/x\nUser=www-data"),
    ],
)
def test_what_root_alone_has_put_there_and_what_a_program_reads_is_not(write: Write, file: str, text: str) -> None:
    write(file, f"{text}\n")
    assert [*root_started_programs.loose()] == []


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"usr/lib/systemd/system/x.service": "User=a", "etc/systemd/system/x.service.d/y.conf": ""}, False),
        ({"usr/lib/systemd/system/x@.service": "User=a", "etc/systemd/system/x@1.service.d/y.conf": ""}, False),
        ({"usr/lib/systemd/system/x.service": "", "etc/systemd/system/x.service.d/y.conf": ""}, True),
        ({"etc/systemd/system/x.service": "", "etc/systemd/system/x.service.d/y.conf": "User=a"}, False),
        ({"etc/systemd/system/x.service": "User=a", "etc/systemd/system/x.service.d/y.conf": "User=root"}, True),
        ({"etc/systemd/system/x.service": "User=a", "etc/systemd/system/service.d/y.conf": "User=second"}, True),
    ],
)
def test_as_whom_a_unit_runs_is_what_its_files_come_to(write: Write, files: dict[str, str], told: bool) -> None:
    write("etc/passwd", "root:x:0:0::/root:/bin/sh\nsecond:x:0:0::/root:/bin/sh\n")
    for name, text in files.items():
        # the last of them is what is in /etc
        write(name, f"[Service]\n{text}\nExecStart=/var/tmp/x\n")
    # a packaged unit is not looked into, what is added to it is
    assert bool([*root_started_programs.loose()]) == told


def test_who_can_change_a_program_is_named(write: Write, tmp_path: Path) -> None:
    os.chown(write("home/alice/job", mode=0o755).parent, 1, 1)
    write("etc/cron.d/a", f"{CRON} /home/alice/job\n")
    write("etc/cron.d/b", f"{CRON} /opt/all\n")
    write("opt/all", mode=0o777)
    (tmp_path / "opt/link").symlink_to("all")
    write("etc/cron.d/c", f"{CRON} /opt/link\n")
    (tmp_path / "var/tmp/roots").touch(0o700)
    write("etc/cron.d/d", f"{CRON} /var/tmp/roots\n")
    assert [one["text"] for one in root_started_programs.loose()] == [
        "/home/alice/job: /home/alice is daemon's",
        "/opt/all: /opt/all has mode 777",
        "/opt/link: /opt/all has mode 777",
    ]


@pytest.mark.parametrize(
    ("group", "gid", "told"),
    [
        ("staff:x:50:", 50, False),
        ("staff:x:50:root", 50, False),
        ("staff:x:50:alice", 50, True),
        ("alice:x:1000:", 1000, True),
        ("root:x:0:alice", 0, False),
        ("other:x:51:", 50, True),
    ],
)
def test_a_group_that_nobody_is_in_changes_nothing(
    write: Write, tmp_path: Path, group: str, gid: int, told: bool
) -> None:
    write("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    write("etc/group", f"{group}\n")
    write("usr/local/bin/own", mode=0o755)
    os.chown(tmp_path / "usr/local", 0, gid)
    (tmp_path / "usr/local").chmod(0o2775)
    write("etc/crontab", "@reboot root /usr/local/bin/own\n")
    assert [one["text"] for one in root_started_programs.loose()] == (
        ["/usr/local/bin/own: /usr/local has mode 2775"] if told else []
    )


def test_a_job_of_ats_is_its_owners(write: Write, tmp_path: Path) -> None:
    write("var/spool/cron/atjobs/a1", "#!/bin/sh\n/var/tmp/x\n")
    os.chown(write("var/spool/cron/atjobs/a2", "#!/bin/sh\n/var/tmp/x\n"), 1, 1)
    assert [one["file"] for one in root_started_programs.loose()] == [str(tmp_path / "var/spool/cron/atjobs/a1")]


def test_a_packages_own_script_that_was_changed_is_told(write: Write, tmp_path: Path) -> None:
    digest = hashlib.md5(b"#!/bin/sh\n", usedforsecurity=False).hexdigest()
    rows = "".join(
        f" /etc/{name} {digest}\n" for name in ("cron.daily/a", "cron.daily/b", "cron.d/a", "a.conf", "cron.daily/gone")
    )
    write("var/lib/dpkg/status", f"Package: a\nStatus: install ok installed\nConffiles:\n{rows}\n")
    write("etc/cron.daily/a", "#!/bin/sh\n")
    write("etc/cron.daily/b", "#!/bin/sh\ntrue\n")
    write("etc/cron.d/a", "# mine\n")
    write("etc/a.conf", "mine\n")
    assert [*root_started_programs.changed()] == [{"file": "/etc/cron.daily/b", "text": "not as a brought it"}]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("PermitEmptyPasswords yes", True),
        ("permituserenvironment yes", True),
        ("StrictModes no", True),
        ("HostbasedAuthentication yes", True),
        ("AcceptEnv LANG LC_*", False),
        ("AcceptEnv LANG LD_*", True),
        ("AuthorizedKeysFile .ssh/authorized_keys", False),
        ("AuthorizedKeysFile /var/tmp/keys .ssh/authorized_keys", True),
        ("AuthorizedKeysFile /etc/ssh/keys/%u", False),
        ("AuthorizedKeysFile /var/tmp/%u/keys", True),
        ("SetEnv LANG=C LD_PRELOAD=/x.so", True),
        ("SetEnv LANG=C EDITOR=vi", False),
        ("AuthorizedKeysCommand /bin/echo", True),
        ("ForceCommand /var/tmp/x", True),
        ("ForceCommand internal-sftp", False),
        ("TrustedUserCAKeys /var/tmp/ca.pub", True),
        ("# StrictModes no", False),
        ("Port 2222", False),
    ],
)
def test_settings_of_sshds_that_let_others_in_are_told(write: Write, line: str, told: bool) -> None:
    write("etc/ssh/sshd_config.d/a.conf", f"Match Address 192.0.2.0/24\n  {line}\n")
    assert bool([*sshd.wrong()]) == told


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("permitrootlogin without-password", []),
        ("allowusers root", []),
        ("allowusers root@192.0.2.0/24", []),
        ("allowusers ro*@192.0.2.?", []),
        ("allowusers root@198.51.100.0/24 alice", ["allowusers root@198.51.100.0/24 alice"]),
        ("denyusers root", ["denyusers root"]),
        ("allowgroups root", []),
        ("allowgroups ssh", ["allowgroups ssh"]),
        ("denygroups ssh", []),
        ("permitrootlogin no", ["permitrootlogin no"]),
        ("forcecommand /bin/false", ["forcecommand /bin/false"]),
        ("forcecommand none", []),
        ("usedns yes\nallowusers root@*.example.org", []),
        ("usedns yes\ndenyusers root root@*.example.org", ["denyusers root root@*.example.org"]),
        ("usedns no\nallowusers root@*.example.org", ["allowusers root@*.example.org"]),
        ("usedns yes\nallowusers alice@*.example.org", ["allowusers alice@*.example.org"]),
        ("usedns yes\nallowusers root@198.51.100.*", ["allowusers root@198.51.100.*"]),
    ],
)
def test_whom_sshd_would_shut_out_is_told(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, why: list[str]
) -> None:
    write("etc/group", "root:x:0:\nssh:x:101:alice\n")
    always = "usedns no\npermitrootlogin without-password"
    write_stand_in(tmp_path / "bin", "sshd", f"printf '%s\\n' '{always}' '{said}'")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert [*sshd.shut("root", "192.0.2.7")] == why


def test_groups_are_those_that_the_host_knows_wherever_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgrouplist", lambda user, gid: [gid, 1_200_001])
    monkeypatch.setattr(grp, "getgrgid", lambda gid: ({0: "root", 1_200_001: "operators"}[gid],))
    assert [*sshd.groups_of("root")] == ["root", "operators"]
    assert [*sshd.groups_of("nobody-such")] == []


@pytest.mark.parametrize(
    ("package", "told"), [("systemd-userdbd", False), ("aadsshlogin", False), ("sssd-common", False), ("mine", True)]
)
def test_a_program_that_says_whose_keys_are_good_comes_with_a_directory(write: Write, package: str, told: bool) -> None:
    write("usr/bin/keys", mode=0o755)
    write(f"var/lib/dpkg/info/{package}.list", "/usr/bin/keys\n")
    write("etc/ssh/sshd_config", "AuthorizedKeysCommand /usr/bin/keys %u\n")
    assert bool([*sshd.wrong()]) == told


def test_who_asks_is_who_logged_in_whatever_he_has_become(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ((9, 8, 0, ""), (8, 7, 0, "SUDO_USER=daemon"), (7, 6, 1, "A=b\0SSH_CONNECTION=192.0.2.7 1 192.0.2.1 22"))
    for pid, parent, uid, given in (*rows, (6, 1, 0, "")):
        (tmp_path / f"{pid}").mkdir()
        (tmp_path / f"{pid}/environ").write_text(f"{given}\0")
        (tmp_path / f"{pid}/status").write_text(f"Name:\tx\nPPid:\t{parent}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    monkeypatch.setattr(sshd, "PROC", str(tmp_path))
    assert sshd.comer(9) == ("daemon", "192.0.2.7")
    assert sshd.comer(6) == ("", "")


@pytest.fixture
def dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of which nobody hears again who looks into it, as of one whose server is gone."""
    folder, pipe = tmp_path / "home", tmp_path / "pipe"
    folder.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    # nobody ever writes into it
    monkeypatch.setattr(fs_responsiveness, "look", lambda one: pipe.read_bytes() if one == str(folder) else None)
    monkeypatch.setattr(fs_responsiveness, "PATIENCE", 0.5)
    monkeypatch.setattr(program_paths, "HELD", (str(tmp_path / "usr/bin"), str(folder), str(tmp_path / "usr/lib")))
    return folder


def test_a_folder_whose_server_is_gone_is_told_and_not_waited_for(write: Write, dead: Path) -> None:
    write("usr/bin/shell", mode=0o4755)
    (dead.parent / "usr/lib").mkdir()
    assert [(Path(one["file"]).name, one["text"]) for one in privilege_escalation.programs()] == [
        ("home", "its file system does not answer: nobody knows what lies there"),
        ("shell", "mode 4755"),
    ]


def test_what_root_starts_from_there_is_told_and_not_waited_for(
    write: Write, dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fs_responsiveness, "_heard", {})
    write("etc/cron.d/own", "* * * * * root /home/nightly\n")
    (line,) = root_started_programs.loose()
    assert line["text"] == "/home/nightly: its file system does not answer: nobody knows who can change it"


def test_a_job_of_the_clocks_that_lies_there_is_told_and_not_waited_for(
    dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fs_responsiveness, "_heard", {})
    monkeypatch.setattr(
        scheduled_jobs, "lines", lambda places: iter([(Path("/etc/cron.d/own"), f"@daily root {dead}/nightly")])
    )
    (line,) = scheduled_jobs.ends()
    assert line == {"file": f"{dead}/nightly", "text": "its file system does not answer: nobody knows what it does"}


def test_no_more_than_a_few_dead_servers_are_waited_for(dead: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    assert fs_responsiveness.silent([str(tmp_path), *[str(dead)] * 20], 0.5) == [str(dead)] * 20
    assert time.monotonic() - began < 10


def test_many_disks_that_take_their_time_are_none_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fs_responsiveness, "look", lambda one: time.sleep(0.3))
    assert fs_responsiveness.silent([str(tmp_path)] * 6, 1.2) == []


def test_whatever_else_becomes_of_a_look_is_an_answer(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert fs_responsiveness.silent([str(tmp_path / one) for one in ("", "file", "not there")], 20.0) == []
