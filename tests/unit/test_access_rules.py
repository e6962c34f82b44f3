"""What opens a host to everybody: sudo's files, PAM's lines, rules of polkit's and D-Bus's, programs of others."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from checks.survey.host import (
    common,
    foreign_proxies,
    next_boot_config,
    pam,
    polkit_dbus,
    privilege_escalation,
    root_started_programs,
    scheduled_jobs,
    service_exposure,
)
from tests.unit.test_root_started_programs import write as write

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="what is root's cannot be made by others")
Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"etc/sudoers.d/a": "@include /opt/all\n", "opt/all": "# nothing\n"}, "/opt/all has mode 666"),
        ({"etc/sudoers.d/a": "#includedir /opt/d\n", "opt/d/b": "ALL ALL=(ALL) NOPASSWD: ALL\n"}, "ALL ALL"),
        ({"etc/sudoers.d/a": '@include "/opt/own"\n@include own.d\n'}, ""),
        ({"etc/sudoers.d/a": 'Defaults secure_path="/usr/sbin:/var/tmp"\n'}, "/var/tmp"),
        ({"etc/sudoers.d/a": 'Defaults env_reset, secure_path="/usr/sbin:/usr/bin"\n'}, ""),
        ({"etc/sudoers.d/a": "Defaults mail_badpass, !authenticate\n"}, "!authenticate"),
        ({"etc/sudoers.d/a": "Defaults:bob !authenticate\n"}, ""),
        ({"etc/sudoers.d/a": 'Defaults env_keep += "LANG LD_PRELOAD"\n'}, "LD_PRELOAD"),
        ({"etc/sudoers.d/a": 'Defaults env_keep += "LANG EDITOR"\n'}, ""),
    ],
)
def test_what_sudo_includes_and_is_told_counts(write: Write, tmp_path: Path, files: dict[str, str], told: str) -> None:
    for name, text in files.items():
        write(name, text.replace("/opt", f"{tmp_path}/opt"))
    if "opt/all" in files:
        (tmp_path / "opt/all").chmod(0o666)
    assert [told in one["text"] for one in privilege_escalation.sudo()] == ([True] if told else [])


COMMON = "auth [success=1 default=ignore] pam_unix.so nullok\nauth requisite {}\nauth required pam_permit.so\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("@include common-auth\n", False),
        (COMMON.format("pam_deny.so"), False),
        (COMMON.format("pam_permit.so"), True),
        # each says that it does not matter, and nobody says yes
        ("auth optional pam_faildelay.so\nauth required pam_env.so\n", False),
        ("auth required pam_nologin.so successok\n", True),
        # what was refused before is forgotten
        ("auth required pam_deny.so\nauth [default=reset] pam_permit.so\nauth required pam_permit.so\n", True),
        ("auth required pam_deny.so\nauth required pam_permit.so\nauth sufficient pam_permit.so\n", False),
        ("auth sufficient pam_localuser.so\n@include common-auth\n", True),
        ("auth required pam_listfile.so onerr=succeed\n@include common-auth\n", False),
        ("auth sufficient pam_rootok.so\nsession optional pam_permit.so\n", False),
        (
            "auth requisite pam_faillock.so preauth\nauth sufficient pam_unix.so\n"
            "auth [default=die] pam_faillock.so authfail\n",
            False,
        ),
        ("auth [default=1] pam_unix.so\nauth required pam_deny.so\nauth sufficient pam_permit.so\n", True),
    ],
)
def test_whom_pam_lets_in_is_what_its_lines_come_to(write: Write, tmp_path: Path, text: str, told: bool) -> None:
    write("etc/pam.d/common-auth", COMMON.format("pam_deny.so"))
    write("etc/pam.d/x", text)
    assert [one["file"] for one in pam.opened()] == (["/etc/pam.d/x"] if told else [])


IF = "auth sufficient pam_succeed_if.so {}\n@include common-auth\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (IF.format("uid >= 1000 quiet"), True),
        ("AUTH Sufficient pam_succeed_if.so user = eve\n@include common-auth\n", True),
        (IF.format("user ingroup people"), True),
        (IF.format("user ingroup own"), True),
        # as login managers have it, and nobody is in that group
        (IF.format("user ingroup nopasswdlogin"), False),
        (IF.format("user ingroup none"), False),
        (IF.format("use_uid user ingroup people"), False),
        (IF.format("use_uid user = eve"), False),
        # no person, so nobody whom sudo would ask
        (IF.format("use_uid user = service"), True),
        (IF.format("use_uid user ingroup services"), True),
        (IF.format("use_uid uid >= 0"), True),
        (IF.format("quiet"), False),
        ("auth required pam_succeed_if.so user != root quiet_success\n@include common-auth\n", False),
        (
            "auth [success=1 default=ignore] pam_succeed_if.so user != root\n"
            "@include common-auth\nauth required pam_env.so\n",
            False,
        ),
        (
            "auth [success=3 default=ignore] pam_succeed_if.so user != root\n"
            "@include common-auth\nauth required pam_permit.so\n",
            True,
        ),
        ("auth sufficient pam_exec.so quiet /bin/true\n@include common-auth\n", True),
        ("auth optional pam_exec.so /opt/tell\n@include common-auth\n", False),
        ("@include common-auth\nauth required pam_exec.so /opt/tell\n", False),
        ("session sufficient pam_succeed_if.so uid >= 1000\n", False),
    ],
)
def test_whom_a_condition_or_a_program_lets_in_is_told(write: Write, text: str, told: bool) -> None:
    write("etc/group", "people:x:50:eve\nown:x:60:\nnone:x:70:\nservices:x:80:service\n")
    write("etc/passwd", "bob:x:1001:60::/:/bin/sh\nservice:x:990:990::/:/usr/sbin/nologin\n")
    write("etc/pam.d/common-auth", COMMON.format("pam_deny.so"))
    write("etc/pam.d/x", text)
    assert [one["file"] for one in pam.opened()] == (["/etc/pam.d/x"] if told else [])


def test_who_is_in_a_directorys_group_is_not_known(write: Write) -> None:
    write("etc/pam.d/common-auth", COMMON.format("pam_deny.so"))
    write("etc/pam.d/x", IF.format("user ingroup admins"))
    assert [*pam.opened()] == []
    write("etc/nsswitch.conf", "passwd: files\ngroup: files sss # both\n")
    assert [one["file"] for one in pam.opened()] == ["/etc/pam.d/x"]


def test_what_a_package_brought_is_not_what_it_includes(write: Write) -> None:
    path = write("etc/pam.d/ftp", "auth required pam_shells.so\n@include common-auth\n")
    digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    write("var/lib/dpkg/status", f"Package: a\nStatus: install ok installed\nConffiles:\n /etc/pam.d/ftp {digest}\n")
    write("etc/pam.d/common-auth", COMMON.format("pam_deny.so"))
    assert [*pam.opened()] == []
    write("etc/pam.d/common-auth", "auth optional pam_cap.so\n")
    assert "/etc/pam.d/ftp" in [one["file"] for one in pam.opened()]


def test_a_vendors_file_counts_where_the_host_has_none_of_its_name(write: Write) -> None:
    write("usr/lib/pam.d/x", "auth required pam_permit.so\n")
    write("usr/lib/pam.d/shared", "auth required pam_permit.so\n")
    write("etc/pam.d/y", "auth include shared\n")
    assert [one["file"] for one in pam.opened()] == ["/etc/pam.d/y", "/usr/lib/pam.d/shared", "/usr/lib/pam.d/x"]
    write("etc/pam.d/x", "auth required pam_unix.so\n")
    write("etc/pam.d/shared", "auth required pam_unix.so\n")
    assert [*pam.opened()] == []


def test_what_a_package_lets_in_is_its_own_until_somebody_changes_it(write: Write, tmp_path: Path) -> None:
    path = write("etc/pam.d/autologin", "auth required pam_permit.so\n")
    digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    row = f"Package: a\nStatus: install ok installed\nConffiles:\n /etc/pam.d/autologin {digest}\n"
    write("var/lib/dpkg/status", row)
    assert [*pam.opened()] == []
    write("etc/pam.d/autologin", "auth required pam_permit.so\n# mine\n")
    assert [one["file"] for one in pam.opened()] == ["/etc/pam.d/autologin"]


def test_a_module_of_nobodys_is_told(write: Write, tmp_path: Path) -> None:
    write("usr/lib/security/pam_mine.so")
    write("usr/lib/security/pam_own.so")
    write("var/lib/dpkg/info/own.list", "/usr/lib/security/pam_own.so\n")
    write("etc/pam.d/x", "auth optional pam_own.so\n-auth optional pam_none.so\nsession required pam_mine.so\n")
    (found,) = pam.foreign()
    assert found["text"] == "session by /usr/lib/security/pam_mine.so, which no package has brought"


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("usr/share/polkit-1/actions/x.policy", "<allow_any>yes</allow_any>", True),
        ("usr/share/polkit-1/actions/x.policy", "<allow_inactive>yes</allow_inactive>", True),
        (
            "usr/share/polkit-1/actions/x.policy",
            "<allow_any>auth_admin</allow_any><allow_active>yes</allow_active>",
            False,
        ),
        ("etc/dbus-1/system.d/x.conf", '<policy context="default"><allow own="*"/></policy>', True),
        ("etc/dbus-1/system.d/x.conf", "<policy context='default'><allow send_destination='*'/></policy>", True),
        ("etc/dbus-1/system.d/x.conf", '<policy user="root"><allow own="*"/></policy>', False),
        ("etc/dbus-1/system.d/x.conf", '<policy context="default"><allow send_destination="org.x"/></policy>', False),
        ("etc/dbus-1/system.d/x.conf", '<!-- <policy context="default"><allow own="*"/></policy> -->', False),
    ],
)
def test_what_everybody_may_do_is_told(write: Write, file: str, text: str, told: bool) -> None:
    write(file, f"{text}\n")
    assert [one["file"] for one in polkit_dbus.opened()] == ([f"/{file}"] if told else [])


def test_a_program_that_runs_as_any_account_of_the_systems_is_told(write: Write, tmp_path: Path) -> None:
    for name, mode, uid, gid in (
        ("srv/a/b/root", 0o4755, 0, 0),
        ("srv/a/group", 0o2755, 0, 42),
        ("srv/a/service", 0o4755, 998, 998),
        ("srv/a/persons", 0o6755, 1000, 1000),
        ("srv/a/plain", 0o755, 0, 0),
        ("srv/a/text", 0o2644, 0, 42),
    ):
        path = write(name)
        os.chown(path, uid, gid)
        path.chmod(mode)
    assert {one["file"].rpartition("/")[2]: one["text"] for one in privilege_escalation.programs()} == {
        "root": "mode 4755",
        "group": "mode 2755 of user 0 and group 42",
        "service": "mode 4755 of user 998 and group 998",
    }


@pytest.mark.parametrize("place", ["run/systemd/transient/x.service", "etc/systemd/system.control/x.service.d/y.conf"])
def test_a_unit_that_was_started_by_hand_is_one_too(write: Write, place: str) -> None:
    write(place, "[Service]\nExecStart=/var/tmp/x\n")
    write("run/systemd/transient/own.service", "[Service]\nDynamicUser=yes\nExecStart=/var/tmp/x\n")
    (found,) = root_started_programs.loose()
    assert "/var/tmp has mode 1777" in found["text"]


ASKED = {"ports": [8020], "sockets": ["/run/rigwright/chat.sock"], "own": ["10.0.0.1"], "units": ["ours.service"]}


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("etc/systemd/system/x.service", "ExecStart=-/usr/bin/socat TCP-LISTEN:9,fork TCP:127.0.0.1:8020", True),
        ("etc/systemd/system/x.service", "ExecStart=/usr/lib/systemd/systemd-socket-proxyd 10.0.0.1:8020", True),
        ("run/systemd/system/x.service", "ExecStart=sh -c 'exec socat TCP-L:9 UNIX:/run/rigwright/chat.sock'", True),
        ("etc/systemd/system/x.service.d/y.conf", "ExecStart=/usr/bin/ssh -N -R 1:localhost:8020 far", True),
        ("etc/cron.d/x", "@reboot root autossh -M 0 -R 9:localhost:8020 far", True),
        ("etc/systemd/system/ours.service", "ExecStart=/usr/lib/systemd/systemd-socket-proxyd 127.0.0.1:8020", False),
        ("etc/systemd/system/x.service", "ExecStart=/usr/bin/curl http://127.0.0.1:8020/v1/models", False),
        ("etc/systemd/system/x.service", "ExecStart=/usr/bin/socat TCP-LISTEN:9,fork TCP:127.0.0.1:8080", False),
        ("etc/systemd/system/x.service", "# ExecStart=/usr/bin/socat TCP-LISTEN:9,fork TCP:127.0.0.1:8020", False),
        ("etc/haproxy/haproxy.cfg", "server a 127.0.0.1:8020", True),
        ("etc/caddy/Caddyfile", "reverse_proxy 127.0.0.1:8020", False),
    ],
)
def test_what_would_carry_us_away_after_a_boot_is_told(write, tmp_path, monkeypatch, file, text, told):
    folders = tuple(tmp_path / place / "systemd/system" for place in ("etc", "run"))
    monkeypatch.setattr(service_exposure, "UNITS", folders)
    monkeypatch.setattr(scheduled_jobs, "TIMED", (tmp_path / "etc/cron.d",))
    servers = {"haproxy": f"{tmp_path}/etc/haproxy", "caddy": f"{tmp_path}/etc/caddy"}
    monkeypatch.setattr(foreign_proxies, "SERVERS", servers)
    write("etc/systemd/system/multi-user.target.wants/haproxy.service", "[Unit]\n")
    write(file, f"{text}\n")
    assert bool(service_exposure.planned(ASKED)) == told


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("etc/modprobe.d/x.conf", "install tun /opt/own", True),
        ("etc/modprobe.d/x.conf", "install dccp /bin/false", False),
        ("etc/modprobe.d/x.conf", "install a /usr/bin/packaged", False),
        ("run/binfmt.d/x.conf", r":x:M::\x7fELF::/opt/own:", True),
        ("etc/tmpfiles.d/x.conf", "w /proc/sys/kernel/core_pattern - - - - |/opt/own", True),
        ("etc/tmpfiles.d/x.conf", "w! /proc/sys/net/ipv4/conf/all/route_localnet - - - - 1", True),
        ("etc/tmpfiles.d/x.conf", "w /proc/sys/vm/swappiness - - - - 10", False),
        ("etc/sysctl.d/x.conf", "vm.overcommit_memory = 2", True),
        ("etc/sysctl.d/x.conf", "vm.overcommit_memory = 1", False),
        ("etc/sysctl.d/x.conf", "user.max_user_namespaces=0", True),
        ("proc/sys/fs/binfmt_misc/x", "enabled\ninterpreter /opt/own\nmagic 7f\n", True),
    ],
)
def test_what_the_kernel_has_started_after_a_boot_is_told(write: Write, file: str, text: str, told: bool) -> None:
    write("var/lib/dpkg/info/own.list", "/usr/bin/packaged\n")
    write("usr/bin/packaged")
    write(file, f"{text}\n")
    assert bool(next_boot_config.risky()) == told


# As a container of tonistiigi/binfmt has it registered
FOREIGN = "7f454c460201010000000000000000000200b700"
WHOLE = "fffffffffffffffffffffffffffffffffeffffff"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, False),
        ({"magic": FOREIGN[:36] + "0016"}, False),
        ({"flags:": "POC"}, True),
        ({"magic": FOREIGN[:36] + "3e00"}, True),
        ({"magic": FOREIGN[:36] + "0300"}, True),
        ({"mask": WHOLE[:36] + "00ff"}, True),
        # as PowerPC's is
        ({"magic": FOREIGN[:36] + "1500", "mask": WHOLE[:36] + "ff00"}, False),
        ({"mask": "00" + WHOLE[2:]}, True),
        ({"mask": ""}, True),
        ({"magic": "2321"}, True),
        ({"magic": "x"}, True),
        ({"offset": "8"}, True),
    ],
)
def test_an_emulator_that_a_container_registered_is_for_other_machines_alone(write, monkeypatch, changed, told):
    monkeypatch.setattr(next_boot_config.os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    rows = {"interpreter": "/usr/bin/qemu-aarch64", "flags:": "POCF", "offset": "0", "magic": FOREIGN, "mask": WHOLE}
    text = "".join(f"{key} {value}\n" for key, value in (rows | changed).items())
    write("proc/sys/fs/binfmt_misc/qemu-aarch64", f"enabled\n{text}")
    assert bool(next_boot_config.risky()) == told


def test_what_is_masked_counts_whatever_systemd_has_loaded(write: Write, tmp_path: Path) -> None:
    write("etc/systemd/system/a.service").unlink()
    (tmp_path / "etc/systemd/system/a.service").symlink_to("/dev/null")
    write("etc/systemd/system/b.service")
    assert next_boot_config.masked(["a.service", "b.service", "c.service"]) == ["a.service"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ExecStart=/bin/false", True),
        ("ExecStartPre=-/opt/own", True),
        ("ExecStart=/usr/bin/packaged --all", False),
        ("Restart=always", False),
    ],
)
def test_what_keeps_the_network_down_is_told(write: Write, line: str, told: bool) -> None:
    write("var/lib/dpkg/info/own.list", "/usr/bin/packaged\n/bin/false\n")
    write("etc/systemd/system/networking.service.d/x.conf", f"[Service]\n{line}\n")
    assert bool(next_boot_config.kept_down(["networking.service"])) == told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("e /var/lib - - - 1d", True),
        ("R! /opt/rig*/eng*", True),
        ("d /srv 0777", True),
        ("R /opt/other", False),
        ("q /var/tmp 1777 root root 60d", False),
    ],
)
def test_a_pattern_meets_what_is_ours(line: str, told: bool) -> None:
    place = line.split()[1]
    ours = ("/opt/rigwright", "/var/lib/rigwright", "/srv/models")
    assert any(common.meets(place, one) for one in ours) == told


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("etc/systemd/network/1.link", "[Match]\nOriginalName=*\n[Link]\nName=own0", True),
        ("etc/systemd/network/1.link", "[Match]\nMACAddress=02:00:00:00:00:01\n[Link]\nName=eth0", False),
        ("etc/systemd/network/1.link", "[Match]\nMACAddress=02:00:00:00:00:09\n[Link]\nName=usb0", False),
        ("etc/udev/rules.d/1.rules", 'SUBSYSTEM=="net", ACTION=="add", NAME="own0"', True),
        ("etc/udev/rules.d/1.rules", 'SUBSYSTEM=="tty", SYMLINK+="own0"', False),
        ("etc/modprobe.d/x.conf", "blacklist virtio-net", True),
        ("etc/modprobe.d/x.conf", "install virtio_net /bin/false", True),
        ("etc/modprobe.d/x.conf", "blacklist pcspkr", False),
    ],
)
def test_an_interface_that_a_boot_takes_away_is_told(write, tmp_path, file, text, told):
    write("sys/class/net/eth0/address", "02:00:00:00:00:01\n")
    write("sys/module/virtio_net/version")
    write("proc/modules", "virtio_net 1 0 - Live 0\npcspkr 1 0 - Live 0\n")
    (tmp_path / "sys/class/net/eth0/device/driver").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0/device/driver/module").symlink_to(tmp_path / "sys/module/virtio_net")
    write(file, f"{text}\n")
    assert bool(next_boot_config.renamed()) == told
