"""Whom PAM lets in that nobody has asked for anything, by what a service's lines come to (pam.conf(5))."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import Path

from checks.survey.host import common, dpkg, jobs

FOLDER = "/etc/pam.d"
MODULES = ("/lib/security", "/usr/lib/security", "/lib/*-linux-gnu/security", "/usr/lib/*-linux-gnu/security")
LINE = re.compile(r"-?(auth|account|password|session)\s+(\[[^]]*\]|\S+)\s+(\S+)\s*(.*)")
CONTROLS = {
    "required": {"success": "ok", "ignore": "ignore", "default": "bad"},
    "requisite": {"success": "ok", "ignore": "ignore", "default": "die"},
    "sufficient": {"success": "done", "default": "ignore"},
    "binding": {"success": "done", "ignore": "ignore", "default": "bad"},
    "optional": {"success": "ok", "default": "ignore"},
}
# Those that say yes without a word from whoever comes: they prepare a session, or keep some out
YES = re.compile(
    r"pam_(?:permit|env|faildelay|nologin|shells|group|cap|motd|issue|mail|time|keyinit|selinux|loginuid|echo|warn"
    r"|securetty|mkhomedir|umask|limits|faillock|localuser|access|listfile)"
)
DEEP = 8  # files that name one another


def rows(path: str, depth: int = 0) -> Iterator[tuple[str, str, str, str]]:
    """(kind, control, module, its words), with those of files that are included."""
    text = (common.read(f"{dpkg.ROOT}{path}") or "").replace("\\\n", " ")
    for line in common.lines(text):
        said = line.strip()
        include = re.match(r"@include\s+(\S+)", said)
        match = LINE.match(said)
        name = include[1] if include else match[3] if match and match[2] in ("include", "substack") else ""
        if name and depth < DEEP:
            wanted = match[1] if match else ""
            there = rows(str(Path(FOLDER) / name), depth + 1)
            yield from (row for row in there if not wanted or row[0] == wanted)
        elif match and not name:
            yield match[1], match[2], match[3], match[4]


def action(control: str, result: str) -> str:
    """What follows from a module's answer."""
    if control.startswith("["):
        said = dict(word.partition("=")[::2] for word in control.strip("[]").split())
    else:
        said = CONTROLS.get(control, CONTROLS["required"])
    return said.get(result, said.get("default", "bad"))


def lets_in(path: str) -> bool:
    """Whether who is known by no module comes in."""
    stack = [row for row in rows(path) if row[0] == "auth"]
    good, at = False, 0
    while at < len(stack):
        _, control, module, words = stack[at]
        name = module.rpartition("/")[2].removesuffix(".so")
        result = "success" if YES.fullmatch(name) and "authfail" not in words else "auth_err"
        does = action(control, result)
        at += 1
        if does in ("bad", "die"):
            return False
        if does in ("ok", "done"):
            good = good or result == "success"
            if does == "done" and good:
                return True
        elif does.isdecimal():
            at += int(does)
    return good


def opened() -> Iterator[dict[str, str]]:
    """Files by which anybody is whom he says; not those that a package has brought so."""
    found = [path for path in _files() if lets_in(path)]
    brought = dpkg.unchanged(found)
    yield from (jobs.told(Path(path), "lets in who is asked for nothing") for path in found if path not in brought)


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
    yield from (jobs.told(Path(path), said) for at, (path, said) in named.items() if at not in own)


def _files() -> list[str]:
    return [
        str(path).removeprefix(dpkg.ROOT)
        for path in jobs.files([Path(f"{dpkg.ROOT}{FOLDER}")])
        if path.suffix[:5] != ".dpkg"
    ]
