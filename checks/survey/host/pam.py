"""Whom PAM lets in that nobody has asked for anything, by what a service's lines come to (pam.conf(5))."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

from checks.survey.host import common, dpkg, scheduled_jobs

# Where a service's file lies, the first that has one counting
FOLDERS = ("/etc/pam.d", "/usr/lib/pam.d")
MODULES = ("/lib/security", "/usr/lib/security", "/lib/*-linux-gnu/security", "/usr/lib/*-linux-gnu/security")
LINE = re.compile(r"-?(auth|account|password|session)\s+(\[[^]]*\]|\S+)\s+(\S+)\s*(.*)", re.IGNORECASE)
CONTROLS = {
    "required": {"success": "ok", "ignore": "ignore", "default": "bad"},
    "requisite": {"success": "ok", "ignore": "ignore", "default": "die"},
    "sufficient": {"success": "done", "default": "ignore"},
    "binding": {"success": "done", "ignore": "ignore", "default": "bad"},
    "optional": {"success": "ok", "default": "ignore"},
}
# Those that say yes without a word from whoever comes: they prepare a session, or keep some out
YES = re.compile(
    r"pam_(?:permit|shells|group|cap|motd|issue|mail|time|keyinit|selinux|loginuid|echo|warn"
    r"|securetty|mkhomedir|umask|limits|faillock|localuser|access|listfile)"
)
# Those that say neither
PREPARES = re.compile(r"pam_(?:env|faildelay|nologin)")
# Those that say yes or no by something else than what whoever comes knows
DEPENDS = re.compile(r"pam_(?:exec|succeed_if)")
OPERATORS = re.compile(r"(?:not)?in(?:group|netgr)?|lt|le|eq|ge|gt|ne|[<>]=?|=|!=|=~|!~")
PEOPLES = ("ingroup", "=", "in")
LOCAL = {"files", "systemd", "compat"}  # where lists of this host's alone are (nsswitch.conf(5))
DEEP = 8  # files that name one another
SERVICES = range(1, 1000)  # numbers of users that packages and roles make (FIRST_UID in adduser.conf(5))


Row = tuple[str, str, str, str]
REFUSES: Row = ("auth", "required", "pam_deny.so", "")


def rows(path: str, depth: int = 0, *, own: bool = False) -> Iterator[Row]:
    """(kind, control, module, its words), with those of files that are included.

    Args:
        path: The file.
        depth: How many files have led to it.
        own: Whether included files that know somebody count as one that knows nobody.
    """
    text = (common.read(f"{dpkg.ROOT}{path}") or "").replace("\\\n", " ")
    for line in common.lines(text):
        said = line.partition("#")[0].strip()
        include = re.match(r"@include\s+(\S+)", said)
        match = LINE.match(said)
        control = match[2].lower() if match else ""
        name = include[1] if include else match[3] if match and control in ("include", "substack") else ""
        if name and depth < DEEP:
            wanted = match[1].lower() if match else ""
            there = [row for row in rows(file(name), depth + 1) if not wanted or row[0] == wanted]
            yield from [REFUSES] if own and any(row[0] == "auth" for row in there) else there
        elif match and not name:
            yield match[1].lower(), control, match[3], match[4]


def file(name: str) -> str:
    """Where a service's lines are."""
    places = [os.path.join(folder, name) for folder in FOLDERS]
    return next((one for one in places if os.path.exists(f"{dpkg.ROOT}{one}")), places[0])


def action(control: str, result: str) -> str:
    """What follows from a module's answer."""
    if control.startswith("["):
        said = dict(word.partition("=")[::2] for word in control.strip("[]").split())
    else:
        said = CONTROLS.get(control, CONTROLS["required"])
    return said.get(result, said.get("default", "bad"))


def lets_in(path: str, *, own: bool = False) -> str:
    """By what somebody who is known by no module comes in; empty where nobody does.

    Args:
        path: The service's file.
        own: As in `rows`.
    """
    stack = [row for row in rows(path, own=own) if row[0] == "auth"]
    left: list[tuple[int, bool | None, str]] = [(0, False, "")]
    seen: set[tuple[int, bool | None]] = set()
    while left:
        # none is good any more after one that was bad, but where all is begun anew
        at, good, by = left.pop()
        if at >= len(stack) and good:
            return by or "asked for nothing"
        if at >= len(stack) or (at, good) in seen:
            continue
        seen.add((at, good))
        _, control, module, words = stack[at]
        name = module.rpartition("/")[2].removesuffix(".so")
        for result in answers(name, words):
            does = action(control, result)
            well = good
            if does == "reset":
                well = False
            elif does == "bad":
                well = None
            elif good is not None:
                well = good or (result == "success" and does in ("ok", "done"))
            why = f"asked for nothing but {name} {words}" if result == "success" and DEPENDS.fullmatch(name) else by
            if does == "done" and well:
                return why or "asked for nothing"
            if does != "die":
                left.append((at + 1 + (int(does) if does.isdecimal() else 0), well, why))
    return ""


def answers(module: str, words: str) -> tuple[str, ...]:
    """What a module may answer who knows nothing."""
    if module == "pam_exec" or (module == "pam_succeed_if" and fits(words.split())):
        return ("success", "auth_err")
    if PREPARES.fullmatch(module):
        return ("success",) if "successok" in words else ("ignore",)
    return ("success",) if YES.fullmatch(module) and "authfail" not in words else ("auth_err",)


def fits(words: list[str]) -> bool:
    """Whether somebody who has not said who he is may fit conditions (pam_succeed_if(8)).

    Not where they are about members of a group that has none. Nor about people who ask, and are named: they have logged
    in, as those have whom a rule of sudo's names; a service has not.
    """
    said = [(words[at - 1], one, words[at + 1]) for at, one in enumerate(words[:-1]) if at and OPERATORS.fullmatch(one)]
    named = [(one, names.split(":")) for field, one, names in said if field == "user" and one in PEOPLES]
    who = [members(names) if one == "ingroup" else set(names) for one, names in named]
    if set() in who:
        return False
    asking = "use_uid" in words and any(None is not one and not one & services() for one in who)
    return bool(said) and not asking


def members(names: list[str]) -> set[str] | None:
    """Who is in one of some groups, by the host's own lists; None where one of them is none of these, but a
    directory's, say.
    """
    groups = [row for row in common.rows(f"{dpkg.ROOT}/etc/group", 4) if row[0] in names]
    switch = common.read(f"{dpkg.ROOT}/etc/nsswitch.conf") or ""
    places = re.findall(r"^group:([^#\n]*)", switch, re.MULTILINE)
    if {row[0] for row in groups} != {*names} and {*" ".join(places).split()} - LOCAL:
        return None
    first = {row[2] for row in groups}
    listed = {name for row in groups for name in row[3].split(",") if name}
    return listed | {row[0] for row in common.rows(f"{dpkg.ROOT}/etc/passwd", 7) if row[3] in first}


def services() -> set[str]:
    """Users who never log in: their number is below people's, or their shell refuses (useradd(8), nologin(8))."""
    rows_ = common.rows(f"{dpkg.ROOT}/etc/passwd", 7)
    return {
        row[0]
        for row in rows_
        if row[6].endswith(("/nologin", "/false")) or (row[2].isdecimal() and int(row[2]) in SERVICES)
    }


def opened() -> Iterator[dict[str, str]]:
    """Files by which anybody is whom he says; not those that a package has brought so, whatever they include."""
    found = {path: by for path in _files() if (by := lets_in(path))}
    brought = dpkg.unchanged(path for path in found if lets_in(path, own=True))
    yield from (
        scheduled_jobs.describe_line(Path(path), f"lets in who is {by}")
        for path, by in found.items()
        if path not in brought
    )


def foreign() -> Iterator[dict[str, str]]:
    """Modules that lines name, and that no package has brought."""
    named: dict[str, tuple[str, str]] = {}
    folders = [place for pattern in MODULES for place in glob.glob(f"{dpkg.ROOT}{pattern}")]
    for path in _files():
        for kind, _, module, _ in rows(path, DEEP):
            places = [f"{dpkg.ROOT}{module}"] if module.startswith("/") else [f"{one}/{module}" for one in folders]
            there = [one.removeprefix(dpkg.ROOT) for one in places if Path(one).exists()]
            if there:
                named.setdefault(there[0], (path, f"{kind} by {there[0]}, which no package has brought"))
    own = dpkg.owners(named)
    yield from (scheduled_jobs.describe_line(Path(path), said) for at, (path, said) in named.items() if at not in own)


def _files() -> list[str]:
    """Of each service the one that counts."""
    places = [
        Path(str(path).removeprefix(f"{dpkg.ROOT}{folder}/"))
        for folder in FOLDERS
        for path in scheduled_jobs.files([Path(f"{dpkg.ROOT}{folder}")])
        if path.suffix[:5] != ".dpkg"
    ]
    return [file(str(name)) for name in dict.fromkeys(places)]
