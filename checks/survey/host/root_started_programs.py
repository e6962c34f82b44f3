"""Which programs root starts by the clock, at a boot, at a login or by a rule, and who else can change those."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from checks.survey.host import common, dpkg, fs_responsiveness, scheduled_jobs, unit_root_commands

ROOT = ""  # a test has a folder for a host
# Folders of what obeys lines of a form of its own -> where in a line the program's path begins
FORMS: dict[str, re.Pattern[str]] = {
    "/etc/cron.d": re.compile(r"(?:@\w+|(?:\S+\s+){5})\s*root\s+(.*)"),
    "/etc/crontab": re.compile(r"(?:@\w+|(?:\S+\s+){5})\s*root\s+(.*)"),
    "/var/spool/cron/crontabs/root": re.compile(r"(?:@\w+|(?:\S+\s+){5})\s*(.*)"),
    "/etc/anacrontab": re.compile(r"(?:@\w+|\d+)\s+\d+\s+\S+\s+(.*)"),
    "/etc/udev/rules.d": re.compile(r"(?:RUN|PROGRAM|IMPORT)(?:\{program\})?[^\"]?=+\"([^\"]*)\""),
    "/run/udev/rules.d": re.compile(r"(?:RUN|PROGRAM|IMPORT)(?:\{program\})?[^\"]?=+\"([^\"]*)\""),
    "/etc/modprobe.d": re.compile(r"(?:install|remove)\s+\S+\s+(.*)"),
    "/run/modprobe.d": re.compile(r"(?:install|remove)\s+\S+\s+(.*)"),
    "/etc/binfmt.d": re.compile(r"(.)(?:[^:]*\1){5}([^:]*)"),
    **{
        folder: re.compile(r".*\bpam_exec[.]so\s+(?:[^/\s]\S*\s+)*(/.*)") for folder in ("/etc/pam.d", "/usr/lib/pam.d")
    },
    "/etc/network/interfaces": re.compile(r"(?:up|down|pre-up|post-up|pre-down|post-down)\s+(.*)"),
    "/etc/network/interfaces.d": re.compile(r"(?:up|down|pre-up|post-up|pre-down|post-down)\s+(.*)"),
    "/etc/crypttab": re.compile(r".*\bkeyscript=([^,\s]*)"),
    "/usr/share/dbus-1/system-services": re.compile(r"Exec=(.*)"),
    "/etc/dbus-1/system-services": re.compile(r"Exec=(.*)"),
    **{
        f"{folder}/systemd/system": re.compile(r"Exec(?:Start|Stop|Reload|Condition)\w*\s*=\s*[-+!@:|]*(.*)")
        for folder in ("/etc", "/run", "/usr/local/lib")
    },
    **{
        folder: re.compile(r"Exec(?:Start|Stop|Reload|Condition)\w*\s*=\s*[-+!@:|]*(.*)")
        for folder in unit_root_commands.OTHERS
    },
}
# Those that may say as whom; what is for users' own managers is not root's
UNITS = re.compile(r"/systemd/(?:system|transient|generator)[.a-z]*$|/system-services$")
AT = "/var/spool/cron/atjobs"
# Scripts that root's shell reads, or root runs
SHELL = (
    *(AT, "/etc/cron.hourly", "/etc/cron.daily", "/etc/cron.weekly", "/etc/cron.monthly"),
    *("/etc/rc.local", "/etc/init.d", "/etc/profile", "/etc/profile.d", "/etc/bash.bashrc", "/etc/update-motd.d"),
    *("/root/.bashrc", "/root/.profile", "/root/.bash_profile", "/root/.bash_login", "/root/.ssh/rc", "/etc/ssh/sshrc"),
    *("/etc/network/if-up.d", "/etc/network/if-down.d", "/etc/network/if-pre-up.d", "/etc/network/if-post-down.d"),
    *("/etc/kernel", "/etc/initramfs-tools", "/etc/networkd-dispatcher", "/etc/NetworkManager/dispatcher.d"),
    *("/usr/lib/systemd/system-shutdown", "/usr/lib/systemd/system-sleep"),
)
# What starts the program that comes after it, by its name or its path
BEFORE = {
    *("exec", "sudo", "nice", "ionice", "nohup", "env", "setsid", "time", "command", "then", "else", "do", "if", "!"),
    *("sh", "bash", "dash", "python3", "perl", ".", "source", "chroot", "timeout", "flock", "{", "("),
}
SYSTEMS = re.compile(r"^(?:/usr)?/s?bin/")
# Those of them that take one word more before it: a file to lock, a folder to be in
PLACED = ("flock", "chroot")
# Those of them that take a line of a shell's instead, and how they are told so
SHELLS, SAID = ("sh", "bash", "dash", "flock"), re.compile(r"-[a-z]*c")
OPTION = re.compile(r"-|[A-Za-z_]\w*=|[0-9.]+[smhd]?$")
# What a branch of `case` begins with
CASE = re.compile(r"\s*[^()|\s]+(?:\s*\|\s*[^()|\s]+)*\)")
ENDS = re.compile(r"&&|\|\||[;|&]")
# What has no quote, escape or remark in it, and no space that is none to a shell
PLAIN = re.compile(r"[ \t\r\n!$-&(-\[\]-~]*")
PATHS = re.compile(r"(?:export\s+)?PATH=(\S+)")
ALIAS = re.compile(r"alias\s+[^=\s]+=(.*)")
SCRIPT = re.compile(
    r"^\s*(?:(?:pre|post)rotate|(?:first|last)action|preremove)\s*$(.*?)^\s*endscript", re.MULTILINE | re.DOTALL
)
ROTATED = ("/etc/logrotate.d", "/etc/logrotate.conf")
# Packages' own scripts that root runs, where those lie that an administrator may change, and seldom does; when a job
# runs he does change, and what a line in /etc/cron.d starts is looked at anyway
SCRIPTS = re.compile(
    r"/etc/(?:cron[.](?:hourly|daily|weekly|monthly)/|init[.]d/|kernel/|network/if-[a-z-]+[.]d/"
    r"|python3[.0-9]*/sitecustomize[.]py$)"
)
MANY = 3000  # files that are looked at
UNHEARD = "its file system does not answer: nobody knows who can change it"


def loose() -> Iterator[dict[str, str]]:
    """Lines whose program others than root can change, or can put there."""
    judged: dict[str, str] = {}
    for path, found in started():
        for program in sorted(found):
            if program not in judged:
                judged[program] = others(program)
            if judged[program]:
                yield scheduled_jobs.describe_line(path, f"{program}: {judged[program]}")


def started() -> Iterator[tuple[Path, set[str]]]:
    """File, and the absolute paths that it has root start."""
    for place, form in FORMS.items():
        for path in few(place):
            text = (common.begin(path) if path.is_file() else "").replace("\\\n", " ")
            lines = common.lines(text)
            found = {
                program
                for line in (unit_root_commands.root(path, lines, ROOT) if UNITS.search(place) else lines)
                if not line.lstrip().startswith(("#", ";"))
                for match in form.findall(line.strip())
                for program in programs(match if isinstance(match, str) else match[-1])
            }
            if found:
                yield path, found
    for place in SHELL:
        for path in few(place):
            # one of at's is its owner's
            if place == AT and path.lstat().st_uid != 0:
                continue
            said = [line.strip() for line in common.lines(common.begin(path))]
            found = {one for line in said if line[:1] != "#" for one in (*programs(line), *searched(line))}
            if found:
                yield path, found

    for place in ROTATED:
        for path in few(place):
            found = {
                program
                for script in SCRIPT.findall(common.begin(path))
                for line in common.lines(script)
                for program in programs(line.strip())
            }
            if found:
                yield path, found


def changed() -> Iterator[dict[str, str]]:
    """Scripts of packages that are not as the package brought them."""
    for package in dpkg.packages():
        for path, digest in package.conffiles.items():
            data = common.data(f"{ROOT}{path}") if SCRIPTS.match(path) else None
            if data is not None and hashlib.md5(data, usedforsecurity=False).hexdigest() != digest:
                yield scheduled_jobs.describe_line(Path(path), f"not as {package.name} brought it")


def few(place: str) -> list[Path]:
    """Files of a place, at most so many."""
    return [path for _, path in zip(range(MANY), scheduled_jobs.files([Path(f"{ROOT}{place}")]), strict=False)]


def searched(line: str) -> Iterator[str]:
    """Folders that a line has root's shell look for programs in."""
    for value in PATHS.findall(line):
        yield from (one for one in value.strip("\"'").split(":") if one.startswith("/"))


def programs(line: str) -> Iterator[str]:
    """Absolute paths of programs that a line of a shell's starts."""
    alias, case = ALIAS.match(line), CASE.match(line)
    for part in ENDS.split(alias[1] if alias else line[case.end() if case else 0 :]):
        try:
            # its words are the same, and most lines are such
            words = part.split() if PLAIN.fullmatch(part) else shlex.split(part, comments=True)
        except ValueError:
            words = part.split()
        starter, waits, inside = "", False, ""
        for number, word in enumerate(words):
            if starter in SHELLS and SAID.fullmatch(word):
                said = "".join(words[number + 1 : number + 2])
                yield from (f"{inside}{one}" for one in (programs(said) if said != line else ()))
                break
            if OPTION.match(word):
                continue
            if waits:
                waits, inside = False, word.rstrip("/") if starter == "chroot" else inside
            elif (name := SYSTEMS.sub("", word, count=1)) in BEFORE:
                starter, waits = name, name in PLACED
            elif not (word.endswith(")") and line.count(")") > line.count("(")):  # as in `case`
                if word.startswith("/"):
                    yield f"{inside}{word.rstrip(')')}"
                break


def others(program: str) -> str:
    """How somebody else than root can change what lies at a path, or put something there; empty for in no way."""
    path = f"{ROOT}{program}"
    if fs_responsiveness.is_unresponsive(path):
        return UNHEARD
    # where a link leads to counts as well as where it lies
    for place in dict.fromkeys((path, os.path.realpath(path))):
        way = [Path(place), *Path(place).parents]
        for number, one in enumerate(way):
            if ROOT and not str(one).startswith(f"{ROOT}/"):
                break
            with suppress(OSError):
                seen = one.lstat()
                if stat.S_ISLNK(seen.st_mode) or stat.S_ISCHR(seen.st_mode):
                    continue
                sticky = stat.S_ISDIR(seen.st_mode) and seen.st_mode & stat.S_ISVTX
                below = way[number - 1] if number else None
                # in a sticky folder nobody but its owner takes the place of what is there
                if sticky and below and below.exists() and below.lstat().st_uid == 0:
                    continue
                name = str(one).removeprefix(ROOT) or "/"
                if seen.st_uid != 0:
                    return f"{name} is {common.named(pwd.getpwuid, seen.st_uid)}'s"
                if seen.st_mode & 0o002 or (seen.st_mode & 0o020 and shared(seen.st_gid)):
                    return f"{name} has mode {stat.S_IMODE(seen.st_mode):o}"
    return ""


def shared(gid: int) -> bool:
    """Whether somebody else than root is in a group; one that is in no list here may be a directory's, with members."""
    users = [row for row in common.rows(f"{ROOT}/etc/passwd", 7) if row[2] != "0"]
    groups = [row for row in common.rows(f"{ROOT}/etc/group", 4) if row[2] == str(gid)]
    members = {name for row in groups for name in row[3].split(",")} - {"", "root"}
    return gid != 0 and (not groups or bool(members) or any(row[3] == str(gid) for row in users))
