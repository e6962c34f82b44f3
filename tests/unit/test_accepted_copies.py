"""Accepted entries on a host: stored ones, copies, and differences without secrets."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from checks.survey.host import (
    accepted_copies,
    accepted_entries,
    common,
    dpkg,
    entry_archives,
    entry_origins,
)
from tests.unit.fingerprinted_host import collect, question, states, write
from tests.unit.fingerprinted_host import root as root

Ask = Callable[..., dict[str, Any]]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files to users")


def accept(asked: dict[str, Any], serial: int, values: dict[str, str] | None = None) -> dict[str, Any]:
    found = collect(asked)
    found.digests.make_key()
    entries = [[one.kind, one.key, (values or {}).get(one.key, found.value(one))] for one in found.entries]
    told: dict[str, Any] = accepted_copies.look({**asked, "serial": serial, "digest": "d", "entries": entries})
    return told


def test_shown_and_newer_entries_are_accepted(root: Path) -> None:
    write(root, "etc/cron.d/job")
    asked = question(root, "/etc/cron.d/**")
    assert accept(asked, 2) == {"serial": 2, "digest": "d", "changed": [], "copies": 1}
    assert accept(asked, 1)["serial"] == 2
    changed = accept(asked, 3, {"/etc/cron.d/job": "file 0600"})
    assert (changed["serial"], changed["changed"]) == (2, [["cron", "/etc/cron.d/job"]])


@pytest.mark.parametrize(
    ("content", "mode", "values", "lines"),
    [
        (b"one\ntwo\n", 0o644, {}, ["-one", "+password=..."]),
        (b"one\n", 0o600, {}, []),
        (b"one\n", 0o600, {"private_copies": True}, ["-one", "+password=..."]),
        (b"one\n", 0o644, {"secret": True}, []),
        (b"-----BEGIN PRIVATE KEY-----\n", 0o644, {}, []),
        (b"\0one\n", 0o644, {}, []),
    ],
)
def test_differences_hide_secrets(
    root: Path, content: bytes, mode: int, values: dict[str, Any], lines: list[str]
) -> None:
    path = write(root, "etc/cron.d/job", content, mode)
    asked = question(root, "/etc/cron.d/**", **values)
    assert accept(asked, 1)["copies"] == bool(lines)
    path.write_bytes(content.replace(b"one", b"password=SECRET"))
    accepted = accepted_entries.AcceptedEntries(asked["folder"], asked["classes"])
    (entry,) = collect(asked).entries
    assert accepted.value(entry)
    assert accepted.difference(entry) == lines
    copies = root / "state" / accepted_entries.COPIES
    assert stat.S_IMODE(copies.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in copies.iterdir()} <= {0o600}


@pytest.mark.parametrize(("new", "lines"), [(b"", accepted_entries.MOST_LINES), (b"x" * 1000 + b"\n", 1)])
def test_a_difference_is_bounded(root: Path, new: bytes, lines: int) -> None:
    old = b"".join(b"%d\n" % number for number in range(100))
    path = write(root, "etc/cron.d/job", old)
    asked = question(root, "/etc/cron.d/**")
    accept(asked, 1)
    path.write_bytes(new + old if new else b"0\n")
    accepted = accepted_entries.AcceptedEntries(asked["folder"], asked["classes"])
    told = accepted.difference(collect(asked).entries[0])
    assert len(told) == lines
    assert max(map(len, told)) <= accepted_entries.LONGEST_LINE


def test_a_package_of_no_archive_is_accepted_as_it_was_shown(root: Path) -> None:
    write(root, "usr/bin/tool")
    info = root / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "tool.list").write_text("/usr/bin/tool\n")
    (info / "tool.md5sums").write_text(f"{hashlib.md5(b'x').hexdigest()}  usr/bin/tool\n")
    (root / "usr/bin/tool").chmod(0o755)
    package = dpkg.DpkgPackage("tool", "tool", "1", "install", "installed", "", {})
    asked = question(root, "/usr/bin/*")
    with (
        patch.object(dpkg, "packages", lambda: [package]),
        patch.object(entry_archives, "find_archives", lambda versions: {}),
    ):
        found = collect(asked)
        found.digests.make_key()
        entry_origins.attribute(found.entries, asked)
        entries = [[one.kind, one.key, found.value(one)] for one in found.entries if not one.origin]
        assert [one[1] for one in entries] == ["package tool"]
        told = accepted_copies.look({**asked, "serial": 1, "digest": "d", "entries": entries})
    assert (told["serial"], told["changed"]) == (1, [])


@AS_ROOT
def test_a_users_link_brings_no_file_of_another(root: Path) -> None:
    write(root, "root/credentials", b"SECRET\n", 0o600)
    write(root, "home/alice/dotfiles/rc")
    for name, target in (("rc", "../../root/credentials"), ("environment", "dotfiles/rc")):
        link = root / "home/alice" / name
        link.symlink_to(target)
        os.lchown(link, 1000, 1000)
    os.chown(root / "home/alice/dotfiles/rc", 1000, 1000)
    found = states(question(root, "/home/*/rc", "/home/*/environment"))
    assert sorted(found) == ["/home/alice/dotfiles/rc", "/home/alice/environment", "/home/alice/rc"]


def test_a_copy_is_of_the_content_that_was_read(root: Path) -> None:
    path = write(root, "home/alice/rc")
    write(root, "root/credentials", b"SECRET\n", 0o600)
    asked = question(root, "/home/*/rc", private_copies=True)
    (entry,) = collect(asked).entries
    path.unlink()
    path.symlink_to(root / "root/credentials")
    accepted = accepted_entries.AcceptedEntries(asked["folder"], asked["classes"])
    assert accepted.store(1, "d", {}, [entry]) == 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtn", "AWS_SECRET_ACCESS_KEY=..."),
        ("* * * * * root MYSQL_PWD=hunter2 dump", "* * * * * root MYSQL_PWD=... dump"),
        ("0 1 * * * root curl -u me:hunter2 https://a", "0 1 * * * root curl -u ... https://a"),
        ("http_proxy=http://me:hunter2@proxy:3128", "http_proxy=http://...@proxy:3128"),
        ("Environment=HF=hf_abcdefghijklmnop0123456789", "Environment=HF=hf_..."),
        ("PresharedKey = hunter2", "PresharedKey = ..."),
        ("PasswordAuthentication=yes", "PasswordAuthentication=yes"),
        ("HostKey=/etc/ssh/key", "HostKey=/etc/ssh/key"),
        ("ExecStart=/usr/bin/python3 /opt/x2.py --port 8080", "ExecStart=/usr/bin/python3 /opt/x2.py --port 8080"),
        ("UUID=0a1b2c3d-1111-2222-3333-0a1b2c3d4e5f / ext4", "UUID=0a1b2c3d-1111-2222-3333-0a1b2c3d4e5f / ext4"),
    ],
)
def test_a_line_is_reported_without_its_secrets(line: str, told: str) -> None:
    assert common.masked(line) == told
