"""State in force, and files of the boot, that other entries decide."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from checks.survey.host import entry_boot, entry_generators, entry_live
from checks.survey.host.entry_attribution import Attribution
from checks.survey.host.entry_boot import foreign_files, hardware_rows
from checks.survey.host.entry_derivations import AlternativeRecord, expanded, unit_install
from checks.survey.host.entry_live import sshd_values, unit_of_mount
from checks.survey.host.entry_packages import PackageRecords
from checks.survey.host.host_entry import HostEntry
from tests.unit.attributed_host import POSTINST, AttributedHost, packaged_host

UNITS = "/usr/lib/systemd/system"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AttributedHost:
    """A host with sshd, a socket, a mount's unit and a deploy's unit."""
    made = AttributedHost(tmp_path, monkeypatch)
    made.package(
        "openssh-server",
        {
            f"{UNITS}/ssh.service": "[Service]\n",
            f"{UNITS}/a.socket": "[Socket]\nListenStream=127.0.0.1:8020\n",
            f"{UNITS}/tmp-x.mount": "[Mount]\nWhere=/tmp/x\nType=tmpfs\n",
            "/etc/ssh/sshd_config": "UsePAM yes\nAcceptEnv LANG LC_*\nMatch User x\nPermitRootLogin yes\n",
        },
        conffiles=("/etc/ssh/sshd_config",),
    )
    made.write("/etc/systemd/system/rigwright_b.service", "data")
    made.write("/etc/systemd/system/rigwright_keepalived.service", "data")
    made.write("/etc/systemd/system/rigwright-evil.service", "x")
    made.write("/etc/fstab", "/dev/sda1 / ext4 defaults 0 1\n# /dev/sdb /srv ext4 defaults\n")
    return made


def _attribution(host: AttributedHost, *rows: HostEntry) -> Attribution:
    entries = [*host.entries(), *rows]
    index = PackageRecords("")
    index.load({entry.path for entry in entries if entry.path})
    made = Attribution(
        entries,
        index,
        {
            "mounts": {"/run/rigwright/instances": "rigwright-"},
            "mount_points": {"/run/rw_gateway": "rw_gateway"},
            "addresses": {"address eth0 192.0.2.100/24": ""},
        },
    )
    for entry in entries:
        if entry.path and index.owner(entry.path):
            entry.origin = "package openssh-server"
        if entry.path.endswith(("rigwright_b.service", "rigwright_keepalived.service")):
            entry.origin = "rigwright"
    return made


KEEPALIVED = "/usr/sbin/keepalived of rigwright_keepalived.service"
SSHD, SYSTEMD = "/usr/sbin/sshd of ssh.service", "/usr/lib/systemd/systemd of init.scope"


@pytest.mark.parametrize(
    ("kind", "key", "state", "explained"),
    [
        ("listeners", "tcp 0.0.0.0:22", SSHD, True),
        ("listeners", "tcp 0.0.0.0:2222", SSHD, False),
        ("listeners", "tcp 0.0.0.0:22", "/usr/bin/nc of ssh.service", False),
        ("listeners", "tcp 0.0.0.0:22", f"{SSHD}; /tmp/x of evil.service", False),
        ("listeners", "tcp 127.0.0.1:8020", SYSTEMD, True),
        ("listeners", "tcp 127.0.0.1:8021", SYSTEMD, False),
        ("listeners", "tcp 0.0.0.0:80", "/opt/x of rigwright_b.service", True),
        ("listeners", "tcp 0.0.0.0:80", "/opt/x of rigwright-evil.service", False),
        ("sshd", "sshd usepam", "yes", True),
        ("sshd", "sshd usepam", "no", False),
        ("sshd", "sshd acceptenv", "LANG; LC_*", True),
        ("sshd", "sshd permitrootlogin", "yes", False),
        ("mounts", "mount /", "ext4 /dev/sda1 rw", True),
        ("mounts", "mount /", "ext4 /dev/sdb1 rw", False),
        ("mounts", "mount /srv", "ext4 /dev/sdb rw", False),
        ("mounts", "mount /tmp/x", "tmpfs tmpfs rw", True),
        ("mounts", "mount /tmp/x", "nfs evil:/x rw", False),
        ("mounts", "mount /proc/sys", "proc proc /sys ro", True),
        ("mounts", "mount /proc/sys", "proc proc /irq ro", False),
        ("mounts", "mount /run/rigwright/instances/chat", "tmpfs rigwright-chat rw", True),
        ("mounts", "mount /run/rigwright/instances/chat", "ext4 /dev/sdb rw", False),
        ("mounts", "mount /run/rw_gateway", "tmpfs rw_gateway rw", True),
        ("mounts", "mount /run/rw_gateway", "tmpfs evil rw", False),
        ("mounts", "mount /run/rw_gateway", "ext4 rw_gateway rw", False),
        ("mounts", "mount /run/rw_other", "tmpfs rw_gateway rw", False),
        ("network_hooks", "address eth0 192.0.2.100/24", "scope global", True),
        ("network_hooks", "address eth0 192.0.2.101/24", "scope global", False),
        ("network_hooks", "address eth1 192.0.2.100/24", "scope global", False),
        ("network_hooks", f"packet socket of {KEEPALIVED}", "socket", True),
        ("network_hooks", "packet socket of /tmp/x of rigwright_keepalived.service", "socket", False),
        ("network_hooks", "packet socket of /usr/sbin/keepalived of keepalived.service", "socket", False),
        ("account_database_files", "/etc/shadow", "file 0640 root:shadow", True),
        ("account_database_files", "/etc/shadow", "file 0644 root:shadow", False),
    ],
)
def test_state_in_force(host: AttributedHost, kind: str, key: str, state: str, explained: bool) -> None:
    """A row counts by the file that decides it."""
    row = HostEntry(kind, key, state, key if key.startswith("/") else "")
    row.origin = "rigwright" if kind == "listeners" else ""
    entry_live.attribute_live(_attribution(host, row))
    assert bool(row.origin) == explained


def test_rows_of_an_edited_file_are_entries(host: AttributedHost) -> None:
    """sshd's settings by a file that nothing explains."""
    row = HostEntry("sshd", "sshd usepam", "yes")
    made = _attribution(host, row)
    made.by_path["/etc/ssh/sshd_config"].origin = ""
    entry_live.attribute_live(made)
    assert not row.origin


def _cpio(files: dict[str, bytes]) -> bytes:
    found = b""
    for name, content in {**files, "TRAILER!!!": b""}.items():
        words = (1, 0o100644, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + "".join(f"{word:08x}" for word in words).encode() + name.encode() + b"\0"
        found += head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)
    return found


@pytest.mark.parametrize(
    ("files", "foreign"),
    [
        ({"usr/bin/tool": b"tool"}, []),
        ({"bin/tool": b"tool", "scripts/local": b"script"}, []),
        ({"usr/bin/tool": b"evil"}, ["usr/bin/tool"]),
        ({"scripts/init-top/evil": b"x"}, ["scripts/init-top/evil"]),
        ({"conf/arch.conf": b"DPKG_ARCH=amd64\n", "scripts/init-top/ORDER": b'/scripts/init-top/udev "$@"\n'}, []),
        ({"scripts/init-top/ORDER": b"x"}, ["scripts/init-top/ORDER"]),
        ({"conf/conf.d/resume": b"RESUME=UUID=0a-1b\n"}, []),
        ({"conf/conf.d/resume": b"RESUME=$(evil)\n"}, ["conf/conf.d/resume"]),
        ({"conf/conf.d/x": b"init=/evil\n"}, ["conf/conf.d/x"]),
        ({"conf/conf.d/own": b"BOOT=nfs\n", "conf/initramfs.conf": b"MODULES=most\n"}, []),
        ({"conf/initramfs.conf": b"MODULES=most\nevil\n"}, ["conf/initramfs.conf"]),
        ({"etc/modprobe.d/own.conf": b"options a b=1\n"}, []),
        ({"etc/modprobe.d/own.conf": b"install a /evil\n"}, ["etc/modprobe.d/own.conf"]),
        ({"etc/udev/rules.d/x.rules": b'RUN+="/evil"\n'}, ["etc/udev/rules.d/x.rules"]),
    ],
)
def test_an_initramfs_of_packages(host: AttributedHost, files: dict[str, bytes], foreign: list[str]) -> None:
    """Its files are the host's packaged ones, or what hooks make; microcode lies before the packed part."""
    host.package("tool", {"/usr/bin/tool": "tool", "/usr/share/initramfs-tools/scripts/local": "script"})
    host.write("/etc/initramfs-tools/conf.d/own", "BOOT=nfs\n")
    host.write("/etc/initramfs-tools/initramfs.conf", "MODULES=most\n")
    host.write("/etc/modprobe.d/own.conf", "options a b=1\n")
    early = _cpio({"kernel/x86/microcode/GenuineIntel.bin": b"x"})
    host.write("/boot/initrd.img-1", early + b"\0" * (-len(early) % 512) + gzip.compress(_cpio(files)))
    made = _attribution(host)
    assert list(foreign_files(made, str(host.place("/boot/initrd.img-1")))) == foreign


@pytest.mark.parametrize("content", [b"", b"nonsense", _cpio({"a": b"x"})[:-8], b"\x1f\x8bbroken"])
def test_a_broken_initramfs_is_not_explained(host: AttributedHost, content: bytes) -> None:
    """One that is cut off, packed in another way, or empty."""
    host.write("/boot/initrd.img-1", content)
    assert list(foreign_files(_attribution(host), str(host.place("/boot/initrd.img-1"))))


def test_answers_about_boot_files_are_kept_by_digest(host: AttributedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run does not unpack a file again; another content is compared anew."""
    host.package("tool", {"/usr/bin/tool": "tool"})
    host.write("/boot/initrd.img-1", _cpio({"usr/bin/tool": b"tool"}) + gzip.compress(_cpio({"usr/bin/tool": b"tool"})))
    made = _attribution(host)
    entry = made.by_path["/boot/initrd.img-1"]
    entry_boot.attribute_boot(made)
    assert entry.origin == "derived from packages for kernel 1"
    monkeypatch.setattr(entry_boot, "foreign_files", lambda *_: iter(["evil"]))
    entry.origin = ""
    entry_boot.attribute_boot(made)
    assert entry.origin
    entry.origin, entry.sha256 = "", "0" * 64
    entry_boot.attribute_boot(made)
    assert not entry.origin


def test_units_of_generators(host: AttributedHost) -> None:
    """A packaged generator runs; other files are entries, also with the name of its output."""
    script = '#!/bin/sh\nprintf data > "$1/a.service"\nmkdir "$1/x.wants"\nln -s ../a.service "$1/x.wants/a.service"\n'
    path = f"{entry_generators.GENERATORS}/systemd-a-generator"
    host.package("systemd", {path: script})
    host.place(path).chmod(0o755)
    host.write("/run/systemd/generator/a.service", "data")
    host.link("/run/systemd/generator/x.wants/a.service", "../a.service")
    host.write("/run/systemd/generator/b.service", "evil")
    made = _attribution(host)
    entry_generators.attribute_generated(made)
    origins = {path: bool(entry.origin) for path, entry in made.by_path.items() if "/generator/" in path}
    assert origins == {
        "/run/systemd/generator/a.service": True,
        "/run/systemd/generator/x.wants/a.service": True,
        "/run/systemd/generator/b.service": False,
    }


def test_names() -> None:
    """Units of mounts, settings before a Match, and what is no hardware database."""
    assert [unit_of_mount(one) for one in ("/", "/a/b-c", "/x y")] == ["-.mount", r"a-b\x2dc.mount", r"x\x20y.mount"]
    assert sshd_values('A "b" c\nmatch all\nA d\n') == {"a": {"b", "c"}}
    assert hardware_rows(hashlib.sha256(b"").digest() * 4) == (0, set())


def test_parsers() -> None:
    """[Install], names with specifiers, and groups of alternatives."""
    text = "[Install]\nWantedBy=a.target \\\n  b.target\nWantedBy=\nWantedBy=c.target\n[Unit]\nAlias=x\n"
    assert unit_install(text) == {"WantedBy": ["c.target"]}
    assert expanded("dev-%i.target", "a@tty1.service") == "dev-tty1.target"
    record = AlternativeRecord("auto\n/usr/bin/a\na.1\n/usr/share/a.1\n\n/x\n5\n/x.1\n/y\n7\n\n\n")
    assert (record.best(), record.choices["/x"], record.links["a.1"]) == ("/y", (5, {"a.1": "/x.1"}), "/usr/share/a.1")
    assert record.links[""] == "/usr/bin/a"


def test_a_packages_link_is_explained_when_it_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the link that was made by hand is the first one that is known."""
    host = packaged_host(tmp_path, monkeypatch)
    host.link("/usr/bin/t", "tool", 1.9e9)
    assert host.attribute()[0]["/usr/bin/t"].origin == ""
    host.link("/usr/bin/t", "tool")
    assert host.attribute()[0]["/usr/bin/t"].origin == "package tool"
    host.link("/usr/bin/t", "tool", 1.9e9)
    assert host.attribute()[0]["/usr/bin/t"].origin == "package tool"


def test_a_maintainer_script_is_explained_when_it_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = packaged_host(tmp_path, monkeypatch)
    path = "/var/lib/dpkg/info/tool.postinst"
    assert host.attribute()[0][path].origin == "package tool"
    for text, origin in ((POSTINST, "package tool"), (f"{POSTINST}evil\n", "")):
        host.write(path, text, 0o755)
        assert host.attribute()[0][path].origin == origin


RECORDER = "/run/systemd/transient/rigwright_memory-chat-" + "1" * 32 + ".service"
PROGRAM = "/etc/rigwright/generations/3/memory/recorder"
COMMAND = (
    'ExecStart=@/usr/bin/python3 "/usr/bin/python3" "-I" "-S" "-B" '
    f'"{PROGRAM}" "rigwright-chat.service" "chat" "/etc/rigwright/generations/3/memory/chat.json" '
    f'"/var/lib/rigwright/memory" "{"1" * 32}"'
)


@pytest.mark.parametrize(
    ("text", "program", "explained"),
    [
        (f"[Service]\nNice=10\n{COMMAND}\n", True, True),
        (f"[Service]\nExecStart=\n{COMMAND.replace('@/usr/bin/python3 ', '')}\n", True, True),
        # an earlier generation's
        (f"[Service]\n{COMMAND.replace('-B', '-B -X pycache_prefix=/dev/null')}\n", True, True),
        (f"[Service]\n{COMMAND}\n", False, False),
        (f"[Service]\n{COMMAND}\nExecStartPre=/bin/sh -c x\n", True, False),
        (f"[Service]\n{COMMAND.replace('memory/recorder', 'memory/../x')}\n", True, False),
        ('[Service]\nExecStart=@/bin/sh "sh" "-c" "x"\n', True, False),
    ],
)
def test_a_recorder_of_a_start_is_ours_by_its_command(
    host: AttributedHost, text: str, program: bool, explained: bool
) -> None:
    host.write(RECORDER, text)
    if program:
        host.write(f"{PROGRAM}/__main__.py", "x")
    entry = HostEntry("units", RECORDER, "data", path=RECORDER)
    entry_live.attribute_live(_attribution(host, entry))
    assert (entry.origin == "rigwright") == explained
