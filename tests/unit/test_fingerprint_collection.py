"""The fingerprint's entries of a host: hostile files, bounds, the cache and secrets."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from checks.survey.host import (
    dpkg,
    entry_digests,
    entry_files,
    entry_readers,
    fingerprint,
)
from checks.survey.host.host_entry import HostEntry
from tests.unit.fingerprinted_host import collect, question, states, write
from tests.unit.fingerprinted_host import root as root

Ask = Callable[..., dict[str, Any]]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files to users")


def test_hostile_names_are_printable_keys_of_their_own(root: Path) -> None:
    names = [b"etc/cron.d/a\nb", b"etc/cron.d/\xff", b"etc/cron.d/\xfe", b"etc/cron.d/\x1b[31m", b"etc/cron.d/ c"]
    for name in names:
        write(root, name)
    keys = [entry.key for entry in collect(question(root, "/etc/cron.d/**")).entries]
    assert len({*keys}) == len(names)
    assert all(key.isprintable() for key in keys)
    assert json.dumps(keys).isascii()


def test_pipes_sockets_and_loops_of_links_are_entries_that_nothing_reads(root: Path) -> None:
    write(root, "etc/cron.d/job")
    os.mkfifo(root / "etc/cron.d/pipe")
    (root / "etc/cron.d/one").symlink_to("other")
    (root / "etc/cron.d/other").symlink_to("one")
    (root / "etc/cron.d/loop").symlink_to(".")
    asked = question(root, "/etc/cron.d/**")
    assert not [one.key for one in collect(asked).entries if "readable" in one.state]
    assert states(asked) == {
        "/etc/cron.d/job": "file",
        "/etc/cron.d/loop": "link",
        "/etc/cron.d/one": "link",
        "/etc/cron.d/other": "link",
        "/etc/cron.d/pipe": "pipe",
    }


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(root: Path) -> None:
    status = write(root, "etc/job").stat()
    os.mkfifo(root / "etc/pipe")
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for a writer"))
    signal.alarm(5)
    try:
        with pytest.raises(OSError, match="changed meanwhile"):
            entry_digests.EntryDigests(str(root / "state")).file_digests(str(root / "etc/pipe"), status)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_link_brings_the_file_that_it_leads_to(root: Path) -> None:
    target = write(root, "opt/job", b"one")
    (root / "etc/cron.d").mkdir()
    (root / "etc/cron.d/job").symlink_to("../../opt/job")
    asked = question(root, "/etc/cron.d/**")
    first = {entry.key: entry.sha256 for entry in collect(asked).entries}
    target.write_bytes(b"two")
    second = {entry.key: entry.sha256 for entry in collect(asked).entries}
    assert first.keys() == {"/etc/cron.d/job", "/opt/job"}
    assert first["/opt/job"] != second["/opt/job"]


@pytest.mark.parametrize(("name", "bound"), [("MOST_ENTRIES", 3), ("MOST_NAMES", 3), ("DEEPEST", 1)])
def test_a_bound_that_is_reached_is_an_entry(root: Path, name: str, bound: int) -> None:
    for number in range(9):
        write(root, f"etc/cron.d/{number}/a/b/job")
    with patch.object(entry_files, name, bound):
        keys = [*states(question(root, "/etc/cron.d/**"))]
    assert any(entry_files.BOUND in key for key in keys)
    assert not any(entry_files.BOUND in key for key in states(question(root, "/etc/cron.d/**")))


@pytest.mark.parametrize(
    ("mode", "is_entry"), [(0o755, False), (0o777, True), (0o1777, True), (0o775, True), (0o700, False)]
)
def test_a_folder_is_an_entry_where_others_may_write(root: Path, mode: int, is_entry: bool) -> None:
    write(root, "etc/cron.d/job")
    (root / "etc/cron.d").chmod(mode)
    # root's, as a test's files are their user's
    with patch.object(entry_files, "OWNER", os.geteuid()):
        assert ("/etc/cron.d" in states(question(root, "/etc/cron.d/*"))) is is_entry


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("/etc/*.conf", "/etc/a.conf", True),
        ("/etc/*.conf", "/etc/.conf", True),
        ("/etc/a*a", "/etc/a", False),
        ("/etc/rc?.d/**", "/etc/rc2.d/S01", True),
        ("/home/*/.ssh/rc", "/home/a/.ssh/rc", True),
        ("/etc/cron.d/*", "/etc/cron.d/a/b", False),
    ],
)
def test_patterns_select_paths(root: Path, pattern: str, path: str, fits: bool) -> None:
    write(root, path[1:])
    assert (path in states(question(root, pattern))) is fits


def test_unchanged_files_are_read_once(root: Path) -> None:
    path = write(root, "etc/cron.d/job", b"one")
    asked = question(root, "/etc/cron.d/**")
    first = collect(asked)
    again = collect(asked)
    assert (first.digests.reads, again.digests.reads, again.digests.hits) == (1, 0, 1)
    assert first.entries[0].sha256 == again.entries[0].sha256
    assert first.value(first.entries[0]) != ""
    assert collect({**asked, "deep": True}).digests.reads == 1
    # an edit of the same size, whose time is set back
    times = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    edited = collect(asked)
    assert edited.digests.reads == 1
    assert edited.entries[0].sha256 != first.entries[0].sha256


def test_a_file_that_has_just_changed_is_read_again(root: Path) -> None:
    write(root, "etc/cron.d/job")
    asked = question(root, "/etc/cron.d/**")
    with patch.object(entry_digests, "FRESH", 2.0):
        assert [collect(asked).digests.reads for _ in range(2)] == [1, 1]


def test_key_and_cache_are_roots_alone(root: Path) -> None:
    write(root, "etc/cron.d/job")
    asked = question(root, "/etc/cron.d/**")
    first = collect(asked)
    first.digests.make_key()
    files = sorted((root / "state").iterdir())
    assert [(one.name, stat.S_IMODE(one.stat().st_mode)) for one in files] == [
        (entry_digests.KEY, 0o600),
        (entry_digests.CACHE, 0o600),
    ]
    assert collect(asked).value(first.entries[0]) == first.value(first.entries[0])
    for one in files:
        one.chmod(0o644)
    other = collect(asked)
    assert other.digests.reads == 1, "a cache that others may read is none"
    assert other.value(first.entries[0]) != first.value(first.entries[0])


def test_files_of_packages_are_unread_until_they_change(root: Path) -> None:
    write(root, "usr/bin/tool")
    write(root, "etc/tool.conf")
    info = root / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "tool.list").write_text("")
    package = dpkg.DpkgPackage("tool", "tool", "1", "install", "installed", "", {"/etc/tool.conf": "0" * 32})
    owners = {"/usr/bin/tool": "tool", "/etc/tool.conf": "tool"}

    def unread(slack: float) -> dict[str, bool]:
        (root / "state" / entry_digests.CACHE).unlink(missing_ok=True)
        with (
            patch.object(dpkg, "packages", lambda: [package]),
            patch.object(dpkg, "owners", lambda paths: {one: owners[one] for one in paths}),
            patch.object(dpkg, "SLACK", slack),
        ):
            entries = collect(question(root, "/usr/bin/*", "/etc/tool.conf")).entries
        return {entry.key: entry.unread for entry in entries}

    assert unread(60.0) == {"/usr/bin/tool": True, "/etc/tool.conf": False}
    assert unread(-60.0) == {"/usr/bin/tool": False, "/etc/tool.conf": False}


@pytest.mark.parametrize(
    ("field", "state"),
    [
        ("", "empty"),
        ("*", "none"),
        ("!", "none"),
        ("!!", "none"),
        ("!*", "none"),
        ("$y$j9T$salt$hash", "yescrypt"),
        ("!$6$salt$hash", "locked, sha512crypt"),
        ("$9$salt$hash", "another algorithm"),
        ("abJnggxhB/yWI", "descrypt"),
    ],
)
def test_passwords_are_reported_by_state_and_algorithm(field: str, state: str) -> None:
    assert entry_readers.describe_password(field) == state


def test_secrets_are_in_no_value(root: Path) -> None:
    write(root, "etc/passwd", b"root:x:0:0::/root:/bin/sh\nevil::0:0::/:/bin/sh\n")
    write(root, "etc/shadow", b"root:$y$j9T$SALT$SECRET:1::::::\n")
    write(root, "etc/rigwright/credentials/key", b"sk-SECRET-0123456789\n")
    write(root, "srv/copy", b"key=sk-SECRET-0123456789\n")
    write(root, "root/.ssh/authorized_keys", b'environment="TOKEN=SECRET" ssh-ed25519 AAAA me\n# SECRET\n')
    write(root, "etc/cron.d/job", b"password=SECRET\n")
    readers = ("accounts", "authorised_keys", "secret_copies", "account_database_files")
    collection = collect(question(root, "/etc/cron.d/**", readers=readers, secret=True))
    values = {entry.key: collection.value(entry) for entry in collection.entries}
    assert values["user root"].startswith("uid=0 gid=0 home=/root shell=/bin/sh password=yescrypt ")
    assert values["user evil"] == "uid=0 gid=0 home=/ shell=/bin/sh password=empty"
    assert values["/srv/copy"].startswith("has the secret key")
    told = json.dumps([values, [collection.run_value(entry) for entry in collection.entries]])
    assert "SECRET" not in told
    kept = b"".join(one.read_bytes() for one in (root / "state").iterdir())
    assert b"SECRET" not in kept


def test_values_of_a_run_are_equal_where_entries_are_and_secrets_are_equal_nowhere(root: Path) -> None:
    write(root, "etc/cron.d/job")
    plain = question(root, "/etc/cron.d/**")
    hidden = question(root, "/etc/cron.d/**", secret=True)

    def run_values(asked: dict[str, Any]) -> str:
        found = collect({**asked, "folder": str(root / "nowhere")})
        return found.run_value(found.entries[0])

    assert run_values(plain) == run_values(plain)
    assert run_values(plain) != run_values({**plain, "nonce": "of another"})
    assert run_values(hidden) != run_values(hidden)


def test_a_reader_that_fails_is_an_entry(root: Path) -> None:
    def broken(kind: str, asked: dict[str, Any]) -> list[HostEntry]:
        raise RuntimeError("broken")

    with patch.dict(entry_readers.READERS, accounts=broken):
        entries = collect(question(root, readers=("accounts", "groups"))).entries
    assert [(one.key, one.state) for one in entries] == [("accounts (not readable)", "RuntimeError: broken")]


def test_privileged_files_outside_the_classes_are_known_once_all_disks_were_looked_at(root: Path) -> None:
    write(root, "usr/lib/x/y/z/hidden", mode=0o4755)
    write(root, "opt/tool/program", mode=0o2755)
    write(root, "opt/tool/data", mode=0o4644)
    write(root, "usr/bin/tool", mode=0o4755)
    asked = question(root, "/usr/bin/*", readers=("privileged_files",))

    def privileged(deep: bool) -> set[str]:
        entries = collect({**asked, "deep": deep}).entries
        return {one.key.partition(" ")[0] for one in entries if stat.S_IMODE(one.mode) & 0o6000}

    assert privileged(deep=False) == {"/opt/tool/program", "/usr/bin/tool"}
    assert privileged(deep=True) == {"/opt/tool/program", "/usr/bin/tool", "/usr/lib/x/y/z/hidden"}
    assert privileged(deep=False) == {"/opt/tool/program", "/usr/bin/tool", "/usr/lib/x/y/z/hidden"}


@AS_ROOT
@pytest.mark.parametrize(("owner", "complete"), [(0, True), (1000, False)])
def test_a_users_file_is_read_as_far_as_it_may_cost(root: Path, owner: int, complete: bool) -> None:
    path = write(root, "home/alice/rc")
    with path.open("r+b") as file:
        file.truncate(5 << 20)
    os.chown(path, owner, owner)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (entry,) = collect(question(root, "/home/*/rc")).entries
    assert (entry.sha256 == digest) is complete


def test_a_folder_of_too_many_names_is_an_entry_where_a_pattern_passes_it(root: Path) -> None:
    for number in range(3):
        write(root, f"usr/lib/{number}/security/x.so")
    with patch.object(entry_files, "MOST_NAMES", 2):
        found = states(question(root, "/usr/lib/*/security/**"))
    assert "/usr/lib (bound reached)" in found


@AS_ROOT
def test_users_files_push_none_of_roots_out_of_an_answer(root: Path) -> None:
    for number in range(4):
        os.chown(write(root, f"home/alice/.bash{number}"), 1000, 1000)
    write(root, "root/.bashrc")
    asked = question(root, "/home/*/.bash*", "/root/.bash*") | {"state": "/var/lib/rigwright", "ours": {}}
    with patch.object(fingerprint, "MOST_TOLD", 2):
        entries: Any = fingerprint.look(asked)["entries"]
    assert [one["key"] for one in entries] == ["/root/.bashrc", "/home/alice/.bash0", "(bound reached)"]


@AS_ROOT
def test_all_files_of_users_have_a_bound(root: Path) -> None:
    for number in range(3):
        os.chown(write(root, f"home/alice/{number}", b"x" * 100), 1000, 1000)
    digest = hashlib.sha256(b"x" * 100).hexdigest()
    with patch.object(entry_digests, "MOST_OF_USERS", 250):
        found = [one.sha256 == digest for one in collect(question(root, "/home/*/*")).entries if one.sha256]
    assert found.count(True) == 2
