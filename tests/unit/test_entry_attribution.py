"""Explained and unexplained entries of the fingerprint: one change each to a host on which all is explained."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from checks.survey.host import entry_origins, entry_packages
from checks.survey.host.host_entry import HostEntry
from tests.unit.attributed_host import (
    ALTERNATIVE,
    ARCHIVE,
    BUILT,
    CERTIFICATE,
    ONE,
    OTHER,
    POSTINST,
    UNIT,
    AttributedHost,
    packaged_host,
)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AttributedHost:
    return packaged_host(tmp_path, monkeypatch)


DATABASES = {"/etc/passwd", "/etc/shadow", "/etc/group"}


def test_a_host_of_packages_is_explained(host: AttributedHost) -> None:
    """Packages, templates, derived files and accounts have an origin; the host's own key has none."""
    entries, packages = host.attribute()
    assert {key for key, entry in entries.items() if not entry.origin} - DATABASES == {"/etc/ssh/ssh_host_ed25519_key"}
    assert {row["name"]: row["archive"] for row in packages}["tool"] == ARCHIVE
    again, _ = host.attribute()
    assert {key: entry.origin for key, entry in again.items()} == {key: entry.origin for key, entry in entries.items()}


def _rewrite(path: str, text: str, mode: int = 0o644) -> Callable[[AttributedHost], None]:
    return lambda host: host.write(path, text, mode)


def _relink(path: str, target: str, made: float = 1.0) -> Callable[[AttributedHost], None]:
    return lambda host: host.link(path, target, made)


def _rewrite_then(path: str, text: str) -> Callable[[AttributedHost], None]:
    """A file with the time that it had."""

    def change(host: AttributedHost) -> None:
        host.place(path).write_text(text)
        os.utime(host.place(path), (BUILT, BUILT))

    return change


def _mode(path: str, mode: int) -> Callable[[AttributedHost], None]:
    return lambda host: host.place(path).chmod(mode)


def _foreign(path: str, text: str, then: Callable[[AttributedHost], None]) -> Callable[[AttributedHost], None]:
    def change(host: AttributedHost) -> None:
        host.write(path, text, 0o755)
        then(host)

    return change


def _row(database: str, row: str, shadow: str = "") -> Callable[[AttributedHost], None]:
    def change(host: AttributedHost) -> None:
        host.write(f"/etc/{database}", row)
        if shadow:
            host.write("/etc/shadow", shadow, 0o640)

    return change


WANTS = "/etc/systemd/system/multi-user.target.wants"
CHANGES: dict[str, tuple[Callable[[AttributedHost], None], str]] = {
    "another content": (_rewrite("/usr/bin/tool", "evil", 0o755), "/usr/bin/tool"),
    "an edited conffile": (_rewrite("/etc/tool.conf", "a = 2\n"), "/etc/tool.conf"),
    "setuid": (_mode("/usr/bin/tool", 0o4755), "/usr/bin/tool"),
    "writable by the group": (_mode("/usr/bin/tool", 0o775), "/usr/bin/tool"),
    "a program that runs no more": (_mode("/usr/bin/tool", 0o644), "/usr/bin/tool"),
    "a link made after the package": (_relink("/usr/bin/t", "other", 1.9e9), "/usr/bin/t"),
    "a link that leads elsewhere, with the old time": (_relink("/usr/bin/t", "other"), "/usr/bin/t"),
    "a link to a foreign folder, with the old time": (
        _foreign("/opt/evil/x", "x", _relink("/usr/bin/t", "../../opt/evil")),
        "/usr/bin/t",
    ),
    "a merged folder that leads elsewhere": (_foreign("/opt/lib64/x", "x", _relink("/lib64", "opt/lib64")), "/lib64"),
    "an edited script of a package, with the old time": (
        _rewrite_then("/var/lib/dpkg/info/tool.postinst", POSTINST + "evil\n"),
        "/var/lib/dpkg/info/tool.postinst",
    ),
    "a packaged file that is gone": (lambda host: host.place("/usr/bin/other").unlink(), "/usr/bin/other"),
    "a file of no package": (_rewrite("/usr/bin/mine", "x", 0o755), "/usr/bin/mine"),
    "an edited script of a package": (
        _rewrite("/var/lib/dpkg/info/tool.postinst", POSTINST + "evil\n", 0o755),
        "/var/lib/dpkg/info/tool.postinst",
    ),
    "a local diversion": (
        _rewrite("/var/lib/dpkg/diversions", "/usr/bin/tool\n/usr/bin/tool.real\n:\n"),
        "/usr/bin/tool",
    ),
    "enablement without [Install]": (
        _relink(f"{WANTS}/static.service", "/usr/lib/systemd/system/static.service"),
        f"{WANTS}/static.service",
    ),
    "enablement of a dormant unit": (
        _relink(f"{WANTS}/dormant.service", "/usr/lib/systemd/system/dormant.service"),
        f"{WANTS}/dormant.service",
    ),
    "enablement for another target": (
        _relink("/etc/systemd/system/sysinit.target.wants/tool.service", "/usr/lib/systemd/system/tool.service"),
        "/etc/systemd/system/sysinit.target.wants/tool.service",
    ),
    "enablement by another name": (
        _relink(f"{WANTS}/other.service", "/usr/lib/systemd/system/tool.service"),
        f"{WANTS}/other.service",
    ),
    "enablement of a foreign unit": (
        _foreign(
            "/etc/systemd/system/evil.service",
            UNIT,
            _relink(f"{WANTS}/evil.service", "/etc/systemd/system/evil.service"),
        ),
        f"{WANTS}/evil.service",
    ),
    "enablement of an edited unit": (
        _rewrite("/usr/lib/systemd/system/tool.service", UNIT.replace("tool\n", "evil\n")),
        f"{WANTS}/tool.service",
    ),
    "an alias that no unit has": (
        _relink("/etc/systemd/system/ssh.service", "/usr/lib/systemd/system/tool.service"),
        "/etc/systemd/system/ssh.service",
    ),
    "an alternative that is a foreign program": (
        _foreign("/usr/bin/evil", "x", _relink("/etc/alternatives/awk", "/usr/bin/evil")),
        "/etc/alternatives/awk",
    ),
    "an alternative that its group lacks": (_relink("/etc/alternatives/awk", "/usr/bin/tool"), "/etc/alternatives/awk"),
    "an alternative chosen by hand": (
        _rewrite("/var/lib/dpkg/alternatives/awk", ALTERNATIVE.replace("auto", "manual")),
        "/etc/alternatives/awk",
    ),
    "a choice that no script makes": (
        _foreign(
            "/var/lib/dpkg/alternatives/awk",
            ALTERNATIVE[:-1] + "/usr/share/openssh/sshd_config\n9\n\n",
            _relink("/etc/alternatives/awk", "/usr/share/openssh/sshd_config"),
        ),
        "/etc/alternatives/awk",
    ),
    "a foreign certificate in the bundle": (
        _rewrite("/etc/ssl/certs/ca-certificates.crt", ONE + OTHER + CERTIFICATE.format("ZXZpbA==")),
        "/etc/ssl/certs/ca-certificates.crt",
    ),
    "a certificate fewer in the bundle": (
        _rewrite("/etc/ssl/certs/ca-certificates.crt", ONE),
        "/etc/ssl/certs/ca-certificates.crt",
    ),
    "an authority that is switched off": (
        _rewrite("/etc/ca-certificates.conf", "!m/One.crt\nm/Other.crt\n"),
        "/etc/ca-certificates.conf",
    ),
    "a link to a foreign certificate": (
        _foreign("/root/evil.crt", OTHER, _relink("/etc/ssl/certs/Evil.pem", "/root/evil.crt")),
        "/etc/ssl/certs/Evil.pem",
    ),
    "an edited copy of a template": (_rewrite("/etc/ssh/sshd_config", "UsePAM no\n"), "/etc/ssh/sshd_config"),
    "a foreign source of accounts": (
        _rewrite("/etc/nsswitch.conf", "passwd: files evil\nhosts: files dns\n"),
        "/etc/nsswitch.conf",
    ),
    "a foreign shell": (_rewrite("/etc/shells", "/bin/sh\n/tmp/sh\n"), "/etc/shells"),
    "another PAM module": (
        _rewrite("/etc/pam.d/common-auth", "auth\tsufficient\tpam_permit.so\n"),
        "/etc/pam.d/common-auth",
    ),
    "another public key": (
        _rewrite("/etc/ssh/ssh_host_ed25519_key.pub", f"ssh-ed25519 {base64.b64encode(b'evil').decode()}\n"),
        "/etc/ssh/ssh_host_ed25519_key.pub",
    ),
    "a service's user with a shell": (_row("passwd", "svc:x:150:150::/nonexistent:/bin/sh\n"), "user svc"),
    "a service's user with a password": (
        _row("passwd", "svc:x:150:150::/nonexistent:/usr/sbin/nologin\n", "svc:$y$x:1::::::\n"),
        "user svc",
    ),
    "a service's user with a locked password": (
        _row("passwd", "svc:x:150:150::/nonexistent:/usr/sbin/nologin\n", "svc:!$y$x:1::::::\n"),
        "user svc",
    ),
    "a user that no script names": (
        _row("passwd", "sv:x:150:150::/nonexistent:/usr/sbin/nologin\n", "sv:!:1::::::\n"),
        "user sv",
    ),
    "a person by a service's name": (_row("passwd", "svc:x:1500:150::/nonexistent:/usr/sbin/nologin\n"), "user svc"),
    "root with another shell": (_row("passwd", "root:x:0:0:root:/root:/usr/bin/tool\n"), "user root"),
    "a user whose name ends as a service's": (
        _row("passwd", "a svc:x:0:0::/:/bin/sh\nsvc:x:150:150::/nonexistent:/usr/sbin/nologin\n"),
        "user a svc",
    ),
    "a user that is there before a service's": (
        _row("passwd", "svc:x:0:0::/:/bin/sh\nsvc:x:150:150::/nonexistent:/usr/sbin/nologin\n"),
        "user svc",
    ),
    "a service's user in root's group": (_row("passwd", "svc:x:150:0::/nonexistent:/usr/sbin/nologin\n"), "user svc"),
    "a group that is there before a service's": (_row("group", "svc:x:150:alice\nsvc:x:150:\n"), "group svc"),
    "a member in a group": (_row("group", "svc:x:150:alice\n"), "group svc"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_has_no_origin(host: AttributedHost, name: str) -> None:
    """Each change leaves its own entry without an explanation, also where an earlier run kept its answers."""
    host.attribute()
    change, key = CHANGES[name]
    change(host)
    entries, _ = host.attribute()
    assert entries[key].origin == ""


def test_a_package_of_no_declared_archive_explains_nothing(host: AttributedHost) -> None:
    """Neither its files, nor the link that enables its unit."""
    host.package(
        "evil",
        {"/usr/lib/systemd/system/evil.service": UNIT, "/usr/bin/evil": "x"},
        signed=False,
        postinst="adduser sv",
    )
    host.link(f"{WANTS}/evil.service", "/usr/lib/systemd/system/evil.service")
    entries, packages = host.attribute()
    assert entries[f"{WANTS}/evil.service"].origin == ""
    listed = entries["package evil"]
    assert (listed.origin, "/usr/bin/evil, /usr/lib/systemd" in listed.state) == ("", True)
    assert {row["name"]: row["archive"] for row in packages}["evil"] == ""


def test_an_edited_file_of_an_unlisted_package_is_an_entry(host: AttributedHost) -> None:
    """The line of the package stands for what is as dpkg's records have it alone."""
    host.package("evil", {"/usr/bin/evil": "x", "/usr/bin/worse": "y"}, signed=False)
    host.write("/usr/bin/evil", "z", 0o755)
    entries, _ = host.attribute()
    assert [entries[f"/usr/bin/{name}"].origin for name in ("evil", "worse")] == ["", "unlisted package evil"]
    assert "; 1 files: /usr/bin/worse" in entries["package evil"].state


def test_a_file_that_was_gone_at_first_sight_is_an_entry(host: AttributedHost) -> None:
    """dpkg lists it beside others of the same folder."""
    host.place("/usr/bin/other").unlink()
    host.place("/etc/tool.conf").unlink()
    entries, _ = host.attribute()
    assert entries["/usr/bin/other"].expected_from == entries["/etc/tool.conf"].expected_from == "package tool 1"
    assert not entries["/usr/bin/other"].origin + entries["/etc/tool.conf"].origin


def test_a_script_that_was_edited_before_first_sight_is_an_entry(host: AttributedHost) -> None:
    """It is newer than the package."""
    host.write("/var/lib/dpkg/info/tool.postinst", POSTINST + "evil\n", 0o755)
    entries, _ = host.attribute()
    assert not entries["/var/lib/dpkg/info/tool.postinst"].origin


def test_a_version_that_an_archive_had_is_remembered(host: AttributedHost) -> None:
    """A list that lost the installed version after `apt update` is no change."""
    host.attribute()
    host.signed.clear()
    host.write("/var/lib/apt/lists/new_Packages", "")
    entries, _ = host.attribute()
    assert entries["/usr/bin/tool"].origin == "package tool"


def test_records_that_change_with_a_file_explain_nothing(host: AttributedHost) -> None:
    """dpkg's sums of a version stay as they were seen first: a forged row beside a changed program is no proof."""
    host.attribute()
    host.package("tool", {"/usr/bin/tool": "evil"}, postinst=POSTINST)
    entries, _ = host.attribute()
    assert entries["/usr/bin/tool"].origin == ""


def test_a_sum_of_ucf_that_changes_with_its_file_explains_nothing(host: AttributedHost) -> None:
    """Of the same version of the package; another version may bring another file."""

    def origin(text: str, version: str) -> str:
        host.package("tool", {"/usr/bin/tool": "tool"}, version=version, postinst=POSTINST)
        host.write("/etc/tool.settings", text)
        host.write("/var/lib/ucf/hashfile", f"{hashlib.md5(text.encode()).hexdigest()}  /etc/tool.settings\n")
        host.write("/var/lib/ucf/registry", "tool /etc/tool.settings\n")
        return host.attribute()[0]["/etc/tool.settings"].origin

    assert origin("a = 1\n", "1") == "package tool"
    assert origin("evil = 1\n", "1") == ""
    assert origin("a = 2\n", "2") == "package tool"


def test_an_upgrade_is_explained(host: AttributedHost) -> None:
    """Another version of a signed archive has other records."""
    host.attribute()
    host.package("tool", {"/usr/bin/tool": "newer"}, version="2", postinst=POSTINST)
    entries, _ = host.attribute()
    assert entries["/usr/bin/tool"].origin == "package tool"


def test_a_cache_that_others_can_write_counts_for_nothing(host: AttributedHost) -> None:
    """Only a file of root's own is believed."""
    host.attribute()
    cache = host.place(f"/var/lib/rigwright/self_check/{entry_packages.CACHE}")
    assert entry_packages.load_cache(str(cache))
    cache.chmod(0o666)
    assert entry_packages.load_cache(str(cache)) == {}


DEPLOYED = {
    "files": {
        "/etc/systemd/system/rigwright_a.timer": "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7"
    },
    "links": {f"{WANTS}/rigwright.target": "/etc/systemd/system/rigwright.target"},
    "linked_folders": {"/etc/systemd/system": "/etc/rigwright/current/units"},
    "folders": {"/etc/rigwright": ""},
    "accounts": {"rigwright-chat": "/nonexistent"},
}


@pytest.mark.parametrize(
    ("change", "key", "origin"),
    [
        (
            _rewrite("/etc/systemd/system/rigwright_a.timer", "data"),
            "/etc/systemd/system/rigwright_a.timer",
            "rigwright",
        ),
        (_rewrite("/etc/systemd/system/rigwright_a.timer", "evil"), "/etc/systemd/system/rigwright_a.timer", ""),
        (_rewrite("/etc/systemd/system/rigwright_b.timer", "data"), "/etc/systemd/system/rigwright_b.timer", ""),
        (_relink(f"{WANTS}/rigwright.target", "../rigwright.target"), f"{WANTS}/rigwright.target", "rigwright"),
        (_relink(f"{WANTS}/rigwright.target", "../evil.target"), f"{WANTS}/rigwright.target", ""),
        (
            _foreign(
                "/etc/rigwright/current/units/c.service",
                "x",
                _relink("/etc/systemd/system/c.service", "/etc/rigwright/current/units/c.service"),
            ),
            "/etc/systemd/system/c.service",
            "rigwright",
        ),
        (
            _relink("/etc/systemd/system/c.service", "/etc/rigwright/current/units/gone.service"),
            "/etc/systemd/system/c.service",
            "",
        ),
        (
            _row("passwd", "rigwright-chat:x:900:900::/nonexistent:/usr/sbin/nologin\n", "rigwright-chat:!:1::::::\n"),
            "user rigwright-chat",
            "rigwright",
        ),
        (
            _row("passwd", "rigwright-chat:x:900:900::/root:/bin/sh\n", "rigwright-chat:!:1::::::\n"),
            "user rigwright-chat",
            "",
        ),
    ],
)
def test_a_deploy_explains_exact_paths(
    host: AttributedHost, change: Callable[[AttributedHost], None], key: str, origin: str
) -> None:
    """Its files, with their content; nothing by a name that another party can choose."""
    change(host)
    entries, _ = host.attribute(**DEPLOYED)
    assert entries[key].origin == origin


@pytest.mark.parametrize("kind", ["privileged_files", "secret_copies"])
def test_a_folder_of_ours_explains_no_foreign_program(host: AttributedHost, kind: str) -> None:
    """Setuid programs and readable copies of secrets are entries wherever they lie."""
    entry = HostEntry(kind, "/etc/rigwright/models/sh", "file 4755 root:root", "/etc/rigwright/models/sh")
    entry_origins.attribute([entry], {"ours": DEPLOYED})
    assert entry.origin == ""


@pytest.mark.parametrize(
    ("more", "origin"),
    [("", "package base-passwd"), (" password=yescrypt", ""), (" administrators=a", ""), (" shadow members=a", "")],
)
def test_a_group_with_hidden_rights_is_no_packages(host: AttributedHost, more: str, origin: str) -> None:
    """gshadow(5) may give a group a password, administrators and members that /etc/group does not show."""
    name, number = "disk", "6"
    entry = HostEntry("groups", f"group {name}", f"gid={number} members={more}", "/etc/group")
    host.write("etc/group", f"{name}:x:{number}:\n")
    host.package("base-passwd", {"/usr/share/base-passwd/group.master": f"{name}:*:{number}:\n"})
    entry_origins.attribute([entry], {"folder": "/var/lib/rigwright/self_check", "ours": {}})
    assert entry.origin == origin
