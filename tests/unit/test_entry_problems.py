"""Entries that can never be accepted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from checks.survey.host import dpkg, entry_collection, entry_problems, entry_readers
from checks.survey.host.host_entry import HostEntry

PASSWD = "root:x:0:0::/root:/bin/bash\nalice:x:1000:1000::/home/alice:/bin/bash\n"
SHADOW = "root:*:1::::::\nalice:$y$x:1::::::\n"
GROUP = "root:x:0:\nstaff:x:50:\nadm:x:4:alice\nalice:x:1000:\n"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a host."""
    monkeypatch.setattr(dpkg, "ROOT", str(tmp_path))
    for name, text in {"passwd": PASSWD, "shadow": SHADOW, "group": GROUP}.items():
        (tmp_path / "etc").mkdir(exist_ok=True)
        (tmp_path / "etc" / name).write_text(text)
    return tmp_path


def _problem(kind: str, key: str, path: str) -> str:
    entry = HostEntry(kind, key, "", path)
    entry_problems.judge([entry])
    return entry.problem


TWIN, EMPTY = "a second user with root's number", "a user with an empty password"


@pytest.mark.parametrize(
    ("passwd", "shadow", "key", "problem"),
    [
        (PASSWD, SHADOW, "user root", ""),
        (PASSWD, SHADOW, "user alice", ""),
        (PASSWD + "toor:x:0:0::/root:/bin/sh\n", SHADOW, "user toor", TWIN),
        (PASSWD + "toor:x:00:0::/root:/bin/sh\n", SHADOW, "user toor", TWIN),
        (PASSWD + "toor:x:+0:0::/root:/bin/sh\n", SHADOW, "user toor", TWIN),
        (PASSWD + "toor root:x:0:0::/root:/bin/sh\n", SHADOW, "user toor root", TWIN),
        (PASSWD + "root:x:0:0::/root:/bin/sh\n", SHADOW, "user root (2)", TWIN),
        ("alice:x:0:0::/root:/bin/sh\n" + PASSWD, SHADOW, "user alice", TWIN),
        (PASSWD + "t\x01r:x:0:0::/root:/bin/sh\n", SHADOW, "user t\\x01r", TWIN),
        (PASSWD, SHADOW.replace("$y$x", ""), "user alice", EMPTY),
        (PASSWD.replace("alice:x", "alice:"), SHADOW, "user alice", EMPTY),
        (PASSWD, "root:*:1::::::\nalice::1\n", "user alice", EMPTY),
        (PASSWD, "alice::1::::::\n" + SHADOW, "user alice", EMPTY),
    ],
)
def test_accounts(
    host: Path, monkeypatch: pytest.MonkeyPatch, passwd: str, shadow: str, key: str, problem: str
) -> None:
    """A twin of root, and a user without a password."""
    monkeypatch.setattr(entry_readers, "ROOT", str(host))
    (host / "etc/passwd").write_text(passwd)
    (host / "etc/shadow").write_text(shadow)
    classes = [{"name": "accounts", "paths": (), "readers": ("accounts",), "secret": True}]
    asked = {"classes": classes, "churn": [], "folder": "", "nonce": "", "deep": False}
    entries = entry_collection.EntryCollection(asked).entries
    entry_problems.judge(entries)
    assert {one.key: one.problem for one in entries}[key] == problem


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("/etc/ld.so.preload", "/lib/x.so\n", "the loader puts a library into every program"),
        ("/etc/ld.so.preload", "\n", ""),
        (
            "/etc/apt/sources.list",
            "deb [trusted=yes] http://a s main\n",
            "apt takes packages that no key has signed: trusted=yes",
        ),
        ("/etc/apt/sources.list", "# deb [trusted=yes] http://a s main\n", ""),
        (
            "/etc/apt/sources.list.d/a.sources",
            "Types: deb\nTrusted: yes\n",
            "apt takes packages that no key has signed: Trusted: yes",
        ),
        (
            "/etc/apt/apt.conf.d/99x",
            'Acquire::AllowInsecureRepositories "true";\n',
            'apt takes packages that no key has signed: AllowInsecureRepositories "true";',
        ),
        ("/etc/apt/apt.conf.d/99x", 'Acquire { AllowInsecureRepositories "false"; };\n', ""),
    ],
)
def test_contents(host: Path, path: str, text: str, problem: str) -> None:
    """The settings of the loader and apt."""
    place = host / path[1:]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    os.chown(place, 0, 0) if os.getuid() == 0 else None
    found = _problem("loader", path, path)
    assert found == problem or (os.getuid() and not problem and found.startswith("user"))


ROOT, ALICE = 0, 1000


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "folder_mode", "kind", "problem"),
    [
        (0o644, ROOT, 0, 0o755, "units", ""),
        (0o666, ROOT, 0, 0o755, "units", "every user can write it"),
        (0o664, ROOT, 4, 0o755, "units", "group adm can write it"),
        (0o664, ROOT, 50, 0o755, "units", ""),
        (0o664, ROOT, 1000, 0o755, "units", "group alice can write it"),
        (0o644, ALICE, 0, 0o755, "units", "user 1000 can write it"),
        (0o644, ROOT, 0, 0o777, "units", "every user can write its folder /etc/x"),
        (0o644, ROOT, 0, 0o1777, "units", ""),
        (0o640, ALICE, 0, 0o755, "etc", ""),
        # an archive that root unpacked in a folder of its own keeps owners
        (0o644, ALICE, 0, 0o700, "root_tools", ""),
        (0o666, ROOT, 0, 0o700, "root_tools", ""),
        (0o644, ALICE, 0, 0o710, "root_tools", "user 1000 can write it"),
        (0o666, ROOT, 0, 0o755, "etc", "every user can write it"),
    ],
)
def test_writers(
    host: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: int,
    uid: int,
    gid: int,
    folder_mode: int,
    kind: str,
    problem: str,
) -> None:
    """A group without members writes nothing; a sticky folder protects what is root's."""

    def stat_of(path: str) -> SimpleNamespace:
        place = path.removeprefix(str(host))
        if place == "/etc/x/file":
            return SimpleNamespace(st_mode=0o100000 | mode, st_uid=uid, st_gid=gid)
        return SimpleNamespace(st_mode=0o040000 | (folder_mode if place == "/etc/x" else 0o755), st_uid=0, st_gid=0)

    writers = entry_problems.Writers()
    monkeypatch.setattr(entry_problems.os, "lstat", stat_of)
    monkeypatch.setattr(entry_problems.os, "stat", stat_of)
    entry = HostEntry(kind, "/etc/x/file", "", "/etc/x/file")
    found = entry_problems.file_problem(entry, writers)
    monkeypatch.undo()  # programs that report a failure read files, too
    assert found == problem


def _listed(*rows: tuple[int, int, int]) -> Callable[..., bytes]:
    import struct

    return lambda path, name: struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (((0x02, 6, 1000),), "user 1000, by an access list, can write it"),
        (((0x08, 6, 4),), "group adm, by an access list, can write it"),
        (((0x02, 4, 1000),), ""),
        (((0x08, 6, 50),), ""),
    ],
)
def test_access_lists(
    host: Path, monkeypatch: pytest.MonkeyPatch, rows: tuple[tuple[int, int, int], ...], problem: str
) -> None:
    """Users and groups that a list lets write (acl(5))."""
    writers = entry_problems.Writers()
    status = SimpleNamespace(st_mode=0o100664, st_uid=0, st_gid=0)
    above = SimpleNamespace(st_mode=0o040755, st_uid=0, st_gid=0)
    monkeypatch.setattr(entry_problems.os, "lstat", lambda path: status)
    monkeypatch.setattr(entry_problems.os, "stat", lambda path: above)
    monkeypatch.setattr(entry_problems.os, "getxattr", _listed(*rows))
    assert writers.describe("/etc/x", strict=True) == problem


@pytest.mark.parametrize(
    ("path", "kind", "fails"),
    [
        ("/opt/app", "programs", False),
        ("/opt/app/bin/run", "programs", False),
        ("/opt/bin/run", "programs", True),
        ("/opt/app/evil.service", "units", True),
    ],
)
def test_software_of_a_user_is_no_failure(host: Path, path: str, kind: str, fails: bool) -> None:
    place = host / path.lstrip("/")
    place.parent.mkdir(parents=True)
    place.write_text("x")
    place.chmod(0o777)
    assert bool(_problem(kind, path, path)) is fails


@pytest.mark.parametrize(
    ("package", "mode", "uid", "problem"),
    [
        ("at", 0o106755, 1, ""),
        ("", 0o106755, 1, "user 1 can write it"),
        ("at", 0o100755, 1, "user 1 can write it"),
        ("at", 0o106755, 1001, "user 1001 can write it"),
    ],
)
def test_a_packaged_program_may_be_its_system_users(
    host: Path, package: str, mode: int, uid: int, problem: str
) -> None:
    """Debian's at is daemon's, and runs as that user."""
    (host / "usr/bin").mkdir(parents=True)
    program = host / "usr/bin/at"
    program.touch()
    os.chown(program, uid, uid)
    program.chmod(mode & 0o7777)
    entry = HostEntry("programs", "/usr/bin/at", "", "/usr/bin/at")
    entry.package, entry.mode, entry.uid = package, mode, uid
    entry_problems.judge([entry])
    assert entry.problem == problem
