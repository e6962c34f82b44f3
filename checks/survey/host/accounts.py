"""Users and groups as programs on the host see them, and whatever lets anyone act as one of them."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from checks.survey.host import common

PROC = Path("/proc")
ETC = Path("/etc")
VAR = Path("/var")
RUN = Path("/run")
USR = Path("/usr")
LINE = 300  # characters that are told of a line

# Lists of accounts, and what root runs or obeys
ACCOUNT_FILES = ("passwd", "group", "shadow", "gshadow", "sudoers", "subuid", "subgid")
ROOTS = (
    *("sudoers.d", "doas.conf", "pam.d", "security", "nsswitch.conf", "ssh", "crontab", "anacrontab", "cron.d"),
    *("cron.hourly", "cron.daily", "cron.weekly", "cron.monthly", "rc.local", "profile", "profile.d", "bash.bashrc"),
    *("logrotate.conf", "logrotate.d", "apt", "tmpfiles.d", "sysusers.d", "systemd", "udev", "modprobe.d", "sysctl.d"),
    *("environment", "ld.so.conf", "ld.so.conf.d", "polkit-1", "dbus-1", "default", "init.d", "fstab"),
    *("update-motd.d", "network", "kernel", "initramfs-tools", "NetworkManager", "networkd-dispatcher", "binfmt.d"),
    *("modules-load.d", "dpkg", "ld.so.preload", "ld.so.cache", "alternatives", "crypttab", "credstore", "ssl"),
)


def look(asked: dict[str, object]) -> dict[str, object]:
    """All users and groups, and of ours what a login, a rule or a process has of them.

    Args:
        asked: `users`: names of ours; `home`: the one that they have; `shell`: likewise; `folders`: paths of theirs.
    """
    names = [str(one) for one in _list(asked["users"])]
    users = pwd.getpwall()
    passwords = {words[0]: words[1] for words in _rows(ETC / "shadow")}
    group_rows = {words[0]: words for words in _rows(ETC / "gshadow")}
    numbers = {one.pw_uid: one.pw_name for one in users if one.pw_name in names}
    return {
        "users": [
            {"name": one.pw_name, "uid": one.pw_uid, "gid": one.pw_gid, "home": one.pw_dir, "shell": one.pw_shell}
            for one in users
        ],
        "groups": [{"name": one.gr_name, "gid": one.gr_gid, "members": sorted(one.gr_mem)} for one in grp.getgrall()],
        "ours": [
            {
                "name": one.pw_name,
                "password": _password(one.pw_passwd, passwords.get(one.pw_name, "!")),
                "groups": sorted(os.getgrouplist(one.pw_name, one.pw_gid)),
                "group_password": _group_password(group_rows.get(one.pw_name, [])),
                "group_admins": _field(group_rows.get(one.pw_name, []), 2),
                "group_members": _field(group_rows.get(one.pw_name, []), 3),
            }
            for one in users
            if one.pw_name in names
        ],
        "home": os.path.lexists(str(asked["home"])),
        "shell": _shell(str(asked["shell"])),
        "subordinate": list(_subordinate(names, numbers)),
        "rules": list(_rules(names, numbers)),
        "spools": list(_spools(names, numbers)),
        "processes": list(_processes(numbers)),
        "files": [_file(ETC / name) for name in ACCOUNT_FILES if os.path.lexists(ETC / name)] + list(_loose()),
        "folders": [_file(path) for one in _list(asked["folders"]) if os.path.lexists(path := Path(str(one)))],
    }


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"no list: {value!r}")
    return value


def _rows(path: Path) -> Iterator[list[str]]:
    for line in common.lines(common.read(path) or ""):
        words = line.split(":")
        if len(words) > 3:
            yield words


def _password(given: str, shadow: str) -> str:
    """What a login asks for, of passwd's own field and shadow's: `none`, `empty` or `set`. Never the hash."""
    field = shadow if given == "x" else given
    if not field:
        return "empty"
    return "none" if field[0] in "!*" else "set"


def _group_password(row: list[str]) -> str:
    # without one nobody but members gets in (gshadow(5))
    return _password("x", row[1] or "!") if len(row) > 1 else "none"


def _field(row: list[str], at: int) -> list[str]:
    return sorted(filter(None, row[at].split(","))) if len(row) > at else []


def _shell(path: str) -> dict[str, object]:
    """What lies where a login is refused, and what its package says of it."""
    found = ""
    with suppress(OSError):
        if stat.S_ISREG(os.lstat(path).st_mode):
            found = hashlib.md5(Path(path).read_bytes(), usedforsecurity=False).hexdigest()
    listed = set()
    for package in ("login", "util-linux", "passwd"):
        for name in (f"{package}.md5sums", f"{package}:amd64.md5sums"):
            for line in common.lines(common.read(VAR / "lib/dpkg/info" / name) or ""):
                digest, _, file = line.partition("  ")
                # /sbin is a link into /usr
                if file.removeprefix("usr/") == path.removeprefix("/").removeprefix("usr/"):
                    listed.add(digest)
    return {"found": found, "listed": sorted(listed)}


def _subordinate(names: list[str], numbers: dict[int, str]) -> Iterator[dict[str, str]]:
    """Lines that give ours numbers of users, or theirs to somebody else."""
    for name in ("subuid", "subgid"):
        for line in common.lines(common.read(ETC / name) or ""):
            words = line.split(":")
            if len(words) != 3 or not all(word.isdigit() for word in words[1:]):
                continue
            first, count = int(words[1]), int(words[2])
            mine = words[0] in names or words[0] in map(str, numbers)
            if mine or any(first <= number < first + count for number in numbers):
                yield _line(ETC / name, line)


def _line(path: Path, text: str) -> dict[str, str]:
    return {"file": str(path), "text": common.masked(" ".join(text.split()))[:LINE]}


def _files(*places: Path) -> Iterator[Path]:
    """Files, and those in folders and below them; no link to a folder is followed."""
    for place in places:
        if place.is_dir():
            for folder, _, names in os.walk(place):
                yield from (Path(folder) / name for name in sorted(names))
        elif place.is_file():
            yield place


def _rules(names: list[str], numbers: dict[int, str]) -> Iterator[dict[str, str]]:
    """Lines by which the host gives ours more than they have, or somebody the right to be one of them."""
    named = _named([*names, *(f"#{number}" for number in numbers)])
    for path, text in _sudoers(ETC / "sudoers", 0):
        # a remark ends with its line, whatever that ends with
        said = [line.strip() for line in common.lines(text) if not re.match(r"\s*#(?![0-9])", line)]
        for line in "\n".join(said).replace("\\\n", " ").split("\n"):
            if line.startswith(("@", "Defaults")):
                continue
            if named.search(line) or re.match(r"(ALL|\S+(\s*,\s*\S+)*\s*,\s*ALL)\s", line):
                yield _line(path, line)
    places = (
        *(ETC / name for name in ("doas.conf", "polkit-1", "security", "pam.d", "dbus-1/system.d", "userdb")),
        *(ETC / name for name in ("ssh/sshd_config", "ssh/sshd_config.d", "cron.allow", "at.allow", "login.access")),
        *(RUN / name for name in ("polkit-1", "userdb", "sysusers.d")),
        *(ETC / "sysusers.d", USR / "lib/sysusers.d", USR / "local/lib/sysusers.d", USR / "lib/userdb"),
        USR / "share/polkit-1/rules.d",
    )
    named = _named(names)
    for path in _files(*places):
        if named.search(path.name):
            yield _line(path, "a file of that name")
        for line in common.lines(common.read(path) or ""):
            if named.search(line) and not line.lstrip().startswith(("#", "//")):
                yield _line(path, line)


def _named(words: Iterable[str]) -> re.Pattern[str]:
    found = "|".join(re.escape(one) for one in words)
    return re.compile(rf"(?<![A-Za-z0-9_.-])({found or '(?!)'})(?![A-Za-z0-9_-])")


def _sudoers(path: Path, depth: int) -> Iterator[tuple[Path, str]]:
    """sudo's files, those that they include among them (sudoers(5))."""
    text = common.read(path)
    if text is None or depth > 8:
        return
    yield path, text
    for kind, name in re.findall(r"^[@#](includedir|include)\s+(\S+)", text, re.MULTILINE):
        place = path.parent / name.strip('"')
        inside = sorted(place.iterdir()) if kind == "includedir" and place.is_dir() else [place]
        for one in inside:
            if kind == "include" or not ("." in one.name or one.name.endswith("~")):
                yield from _sudoers(one, depth + 1)


def _spools(names: list[str], numbers: dict[int, str]) -> Iterator[str]:
    """Files that start something as ours without a unit of ours: cron's, at's, and what has a user manager start."""
    for folder in ("spool/cron/crontabs", "spool/cron", "lib/systemd/linger"):
        yield from (str(VAR / folder / name) for name in names if (VAR / folder / name).is_file())
    for folder in ("spool/cron/atjobs", "spool/at"):
        with suppress(OSError):
            for one in (VAR / folder).iterdir():
                with suppress(OSError):
                    if one.is_file() and one.lstat().st_uid in numbers:
                        yield str(one)
    for name in ("crontab", "anacrontab", "cron.d"):
        for path in _files(ETC / name):
            for line in common.lines(common.read(path) or ""):
                words = line.split(None, 6)
                who = words[1:2] if line.startswith("@") else words[5:6]
                if set(who) & set(names):
                    yield f"{path}: {' '.join(words)[:LINE]}"


def _processes(numbers: dict[int, str]) -> Iterator[dict[str, object]]:
    """Processes that have the number of one of ours, in any of the places that the kernel has one in."""
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            text = (folder / "status").read_text(errors="replace")
            uids = re.search(r"^Uid:\s+([0-9\s]+)$", text, re.MULTILINE)
            found = {int(one) for one in uids[1].split()} & set(numbers) if uids else set()
            if not found:
                continue
            name = re.search(r"^Name:\s+(.*)$", text, re.MULTILINE)
            yield {
                "user": numbers[min(found)],
                "pid": int(folder.name),
                "name": name[1] if name else "",
                "unit": _unit((folder / "cgroup").read_text(errors="replace")),
            }


def _unit(cgroups: str) -> str:
    """The path below the root of the control group that systemd has put a process in."""
    paths = {}
    for line in common.lines(cgroups):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths[controllers or number] = path
    return paths["0"] if paths.get("0", "/") != "/" else paths.get("name=systemd", "/")


def _loose() -> Iterator[dict[str, object]]:
    """What others than root can write of what root runs or obeys, folders among them."""
    for place in (ETC / name for name in ROOTS):
        inside = _inside(place) if place.is_dir() else []
        for path in (str(place), *inside):
            with suppress(OSError):
                found = os.lstat(path)
                if not stat.S_ISLNK(found.st_mode) and (found.st_uid != 0 or found.st_mode & 0o022):
                    yield _file(Path(path))


def _inside(place: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(place):
        yield from (os.path.join(folder, name) for name in (*folders, *names))


def _file(path: Path) -> dict[str, object]:
    found = path.lstat()
    return {"path": str(path), "mode": found.st_mode, "uid": found.st_uid, "gid": found.st_gid}
