"""Who is as good as root on a host, by its accounts, programs and settings."""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checks.survey.host import privilege_escalation, sshd
from tests.unit.test_root_started_programs import Write
from tests.unit.test_root_started_programs import write as write

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="what is root's cannot be made by others")


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("etc/shadow", "root:*:1\ngames::1\n", "games has an empty password"),
        ("etc/group", "sudo:x:27:alice\ndisk:x:6:www-data\n", "www-data is in disk"),
        (
            "etc/sudoers.d/a",
            "alice ALL=(ALL) NOPASSWD: ALL\nwww-data ALL=(ALL:ALL) \\\n NOPASSWD: ALL\n",
            "www-data ALL",
        ),
        ("etc/sudoers", "ALL ALL=(ALL) NOPASSWD:ALL\n", "ALL ALL=(ALL) NOPASSWD:ALL"),
        ("etc/sudoers", "www-data ALL=(ALL) NOPASSWD: /usr/bin/true\n", ""),
        ("etc/tmpfiles.d/a.conf", "d /var/cache/a\nf+ /etc/cron.d/x 0644 - - - x\n", "f+ /etc/cron.d/x"),
        ("etc/sysusers.d/a.conf", "u a - -\nu z 0 - /root /bin/sh\n", "u z 0"),
        ("etc/sudo.conf", "Plugin sudoers_policy /opt/x.so\n", "Plugin sudoers_policy /opt/x.so"),
        (
            "etc/polkit-1/localauthority/50-local.d/a.pkla",
            "[a]\nIdentity=unix-user:*\nAction=org.a.b\nResultAny=no\n[b]\nIdentity=unix-user:x\nResultAny=yes\n",
            "",
        ),
        (
            "etc/polkit-1/localauthority/50-local.d/a.pkla",
            "[a]\nIdentity=unix-user:*\nAction=org.freedesktop.color-manager.create-device;"
            "org.freedesktop.login1.suspend-multiple-sessions\nResultActive=yes\n",
            "",
        ),
        (
            "etc/polkit-1/localauthority/50-local.d/a.pkla",
            "[a]\nIdentity=unix-group:x\nResultAny=no\n[b]\nIdentity=unix-user:*\n"
            "Action=org.freedesktop.upower.x;org.freedesktop.systemd1.manage-units\nResultAny=yes\n",
            "[b] Identity=unix-user:*",
        ),
        (
            "etc/polkit-1/localauthority/50-local.d/a.pkla",
            "[a]\nIdentity=unix-user:*\nAction=org.freedesktop.*\nResultAny=yes\n",
            "org.freedesktop.*",
        ),
        ("var/lib/polkit-1/localauthority/a/b.pkla", "[a]\nIdentity=unix-user:*\nResultAny=yes\n", "unix-user:*"),
    ],
)
def test_who_is_as_good_as_root_is_told(write: Write, file: str, text: str, told: str) -> None:
    write("etc/passwd", "root:x:0:0::/root:/bin/sh\nwww-data:x:33:33::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n")
    write(file, text)
    found = privilege_escalation.look({})["open"]
    assert isinstance(found, list)
    assert [told in one["text"] for one in found] == ([True] if told else [])


@pytest.mark.parametrize(("uid", "comer", "told"), [(998, "", True), (998, "own", False), (1_200_000, "", False)])
def test_people_and_who_deploys_may_be_root(
    write: Write, monkeypatch: pytest.MonkeyPatch, uid: int, comer: str, told: bool
) -> None:
    write("etc/passwd", f"own:x:{uid}:{uid}::/:/bin/sh\n")
    write("etc/group", "sudo:x:27:own\n")
    write("etc/sudoers.d/own", "own ALL=(ALL) NOPASSWD: ALL\n")
    monkeypatch.setattr(sshd, "comer", lambda pid: (comer, ""))
    assert len([*privilege_escalation.accounts(), *privilege_escalation.sudo()]) == (2 if told else 0)


SETUID, NET_RAW, NICE = 1 << 7, 1 << 13, 1 << 23


@pytest.mark.parametrize(
    ("version", "permitted", "inherited", "told"),
    [
        (2, SETUID, 0, True),
        (2, NET_RAW | SETUID, 0, True),
        (2, NET_RAW, SETUID, True),
        (2, 1 << 39, 0, True),
        (1, NET_RAW, 0, True),
        (2, NET_RAW | NICE | 1 << 10 | 1 << 14, NET_RAW, False),
        (3, NET_RAW, 0, False),
        (3, SETUID, 0, True),
    ],
)
def test_capabilities_that_make_somebody_root_are_told(
    write: Write, monkeypatch: pytest.MonkeyPatch, version: int, permitted: int, inherited: int, told: bool
) -> None:
    low, high = (1 << 32) - 1, 32
    sets = (permitted & low, inherited & low, permitted >> high, inherited >> high)
    data = struct.pack("<5I", version << 24 | 1, *sets)[: 12 if version == 1 else 20] + b"\0" * 4 * (version == 3)
    path = str(write("usr/bin/capable", mode=0o755))
    # a kernel takes no other version from whoever is root here
    monkeypatch.setattr(os, "listxattr", lambda one: ["security.capability"] if one == path else [])
    monkeypatch.setattr(os, "getxattr", lambda one, name: data)
    assert [one["text"] for one in privilege_escalation.programs()] == (["has capabilities"] if told else [])


@pytest.mark.parametrize(
    ("script", "text", "told"),
    [
        ("a", "setcap cap_setuid+ep /usr/bin/own\n", False),
        ("a:amd64", "setcap cap_setuid+ep /usr/bin/own\n", False),
        ("a", "rm -f /usr/lib/own\n", True),
        ("a", "setcap cap_setuid+ep /usr/bin/own-other\n", True),
        ("a", "setcap cap_setuid+ep /usr/bin/own.1\n", True),
        ("a-more", "setcap cap_setuid+ep /usr/bin/own\n", True),
    ],
)
def test_capabilities_are_a_packages_where_it_sets_them(
    write: Write, tmp_path: Path, script: str, text: str, told: bool
) -> None:
    path = write("usr/bin/own", mode=0o755)
    os.setxattr(path, "security.capability", struct.pack("<5I", 2 << 24 | 1, SETUID, 0, 0, 0))
    write("var/lib/dpkg/info/a.list", f"{path}\n")
    write(f"var/lib/dpkg/info/{script}.postinst", text)
    assert bool([*privilege_escalation.programs()]) == told


@pytest.mark.parametrize(
    ("line", "mode", "script", "told"),
    [
        ("root root 4755 /usr/bin/own", 0o755, "", True),
        ("root crontab 2755 /usr/bin/own", 0o755, "", False),
        ("root root 4755 /bin/own", 0o4755, "", False),
        ("root adm 4750 /bin/own", 0o4750, "", False),
        ("root adm 4750 /bin/own", 0o755, "", True),
        ("root adm 4750 /usr/lib/x/own", 0o4755, "", False),
        ("root adm 4755 /usr/lib/x/own", 0o4755, "", True),
        ("root adm 4750 /usr/lib/x/gone", 0o4755, "", True),
        ("root root 4755 /usr/bin/own", 0o755, "dpkg-statoverride --update --add root root 4755 /usr/bin/own\n", False),
        ("root root 4755 /usr/bin/own", 0o755, "useradd own\n", True),
    ],
)
def test_modes_for_later_that_open_a_program_are_told(
    write: Write, line: str, mode: int, script: str, told: bool
) -> None:
    path = write("usr/lib/x/own" if "/x/" in line else "usr/bin/own", mode=mode)
    write("var/lib/dpkg/info/a.list", f"{path}\n/usr/bin/own\n")
    write("var/lib/dpkg/info/a.postinst", script)
    write("var/lib/dpkg/statoverride", f"{line}\n")
    assert ["dpkg-statoverride" in one["text"] for one in privilege_escalation.programs()] == ([True] if told else [])


def test_what_is_mounted_is_not_looked_at(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "usr/bin/share").mkdir(parents=True)
    write("usr/bin/shell", mode=0o4755)
    real = os.scandir

    class Entry:
        def __init__(self, one: os.DirEntry[str]) -> None:
            self.one, self.path, self.is_file = one, one.path, one.is_file

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            assert self.one.name != "share", "its server may be gone"
            return self.one.stat(follow_symlinks=follow_symlinks)

    @contextmanager
    def entries(folder: str) -> Iterator[list[Entry]]:
        with real(folder) as found:
            yield [Entry(one) for one in found]

    monkeypatch.setattr(os, "scandir", entries)
    assert [one["text"] for one in privilege_escalation.programs()] == ["mode 4755"]


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("var/lib/extensions/x/usr/lib/x", True),
        ("var/lib/confexts/x/etc/x", True),
        ("etc/credstore/tmpfiles.extra", True),
        ("etc/credstore/my.key", False),
    ],
)
def test_what_a_boot_takes_by_its_place_alone_is_told(write: Write, file: str, told: bool) -> None:
    write(file)
    assert bool(privilege_escalation.look({})["changed"]) == told
