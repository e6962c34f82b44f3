"""Libraries that the loader finds before the system's own, or preloads: paths, cache and settings."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator

from checks.survey.host import common, dpkg

ROOT = ""  # a test has a folder for a host
SYSTEM = ("/usr/lib/*-linux-gnu", "/lib/*-linux-gnu")
NAME = re.compile(r"lib[^/]+\.so\.[0-9]+")
# For processors that can do more there are others, which come first (ld.so(8))
PREFERRED = "glibc-hwcaps"
CACHE, CONFIG = "/etc/ld.so.cache", "/etc/ld.so.conf"
OPENSSL, NAMES = "/etc/ssl/openssl.cnf", "/etc/nsswitch.conf"
# What OpenSSL loads into every program that speaks TLS (config(5))
MODULE = re.compile(r"^\s*(?:module|dynamic_path)\s*=\s*(/\S+)")
LUA = ("/usr/share/lua/5.1", "/usr/lib/*-linux-gnu/lua/5.1")
LUA_BEFORE = ("/usr/local/share/lua/5.1", "/usr/local/lib/lua/5.1")
SERVICE = re.compile(r"[a-z][a-z0-9_]*")
# What PAM gives to whoever logs in, root's commands among them (pam_env(8))
GIVEN = ("/etc/environment", "/etc/security/pam_env.conf", "/root/.ssh/environment", "/root/.pam_environment")
PUT = re.compile(
    r"^\s*(?:export\s+)?(LD_PRELOAD|LD_AUDIT|GCONV_PATH|BASH_ENV|APT_CONFIG|PYTHON(?:PATH|HOME|USERBASE)|PERL5(?:LIB|OPT)"
    r"|OPENSSL_CONF|GLIBC_TUNABLES)\b"
)


def look(asked: dict[str, str]) -> dict[str, object]:
    """All of it.

    Args:
        asked: Nothing.
    """
    rows = [*listed(), *preferred(), *cached(), *converters(), *lua()]
    loaded = [*modules(), *services()]
    own = dpkg.owners({os.path.realpath(f"{ROOT}{folder}/{name}").removeprefix(ROOT) for folder, _, name in loaded})
    rows += [row for row in loaded if os.path.realpath(f"{ROOT}{row[0]}/{row[2]}").removeprefix(ROOT) not in own]
    put = [f"{path}: {line.strip()}" for path in GIVEN for line in common.lines(read(path)) if PUT.match(line)]
    # what came of them, and of sshd's, is with who logs in to look
    known = " ".join(put)
    put += [
        f"{name}={value}" for name, value in common.login_environment().items() if PUT.match(name) and name not in known
    ]
    return {"before": rows, "put": put}


def read(path: str) -> str:
    """A file's text; empty for none."""
    return common.read(f"{ROOT}{path}") or ""


def folders() -> dict[str, str]:
    """The system's own, where links lead -> by their name."""
    found = [path for pattern in SYSTEM for path in glob.glob(f"{ROOT}{pattern}")]
    return {os.path.realpath(path): path.removeprefix(ROOT) for path in reversed(found)}


def names() -> set[str]:
    """Of the system's libraries."""
    return {name for folder in folders() for name in os.listdir(folder) if NAME.fullmatch(name)}


def listed() -> Iterator[list[str]]:
    """(folder, the list that has it, a library of the system's in it) of those that are looked in beside."""
    own, known = folders(), names()
    for path, line in lines(CONFIG, 0):
        folder = f"{ROOT}{line}"
        if line.startswith("/") and os.path.realpath(folder) not in own and os.path.isdir(folder):
            first = min(known & {*os.listdir(folder)}, default="")
            if first:
                yield [line, path, first]


def lines(path: str, depth: int) -> Iterator[tuple[str, str]]:
    """(list, line) of a list of folders, and of those that it includes."""
    for line in common.lines(read(path)):
        text = line.partition("#")[0].strip()
        kind, _, pattern = text.partition(" ")
        if kind != "include":
            yield path, text
        elif depth < 4:
            for one in sorted(glob.glob(f"{ROOT}{os.path.join('/etc', pattern.strip())}")):
                yield from lines(one.removeprefix(ROOT), depth + 1)


def preferred() -> Iterator[list[str]]:
    """The same of libraries for better processors that no package has brought."""
    paths = [path.removeprefix(ROOT) for folder in folders() for path in glob.glob(f"{folder}/{PREFERRED}/*/lib*.so*")]
    own = dpkg.owners(paths)
    yield from ([*os.path.split(path)[:1], PREFERRED, os.path.basename(path)] for path in paths if path not in own)


def cached() -> Iterator[list[str]]:
    """The same of what the loader has written down, the first of each name, whatever its lists say now."""
    own, known = folders(), names()
    first: dict[str, str] = {}
    for name, _, path in common.read_libraries(ROOT):
        first.setdefault(name, path)
    for name, path in sorted(first.items()):
        folder = os.path.realpath(f"{ROOT}{os.path.dirname(path)}")
        if name in known and folder not in own and f"/{PREFERRED}/" not in folder:
            yield [os.path.dirname(path), CACHE, name]


def modules() -> Iterator[list[str]]:
    """(folder, OpenSSL's settings, library) of what it loads by them."""
    paths = [OPENSSL, *re.findall(r"^\s*\.include\s*=?\s*(/\S+)", read(OPENSSL), re.MULTILINE)]
    for path in paths:
        for line in common.lines(read(path)):
            if found := MODULE.match(line):
                yield [os.path.dirname(found[1]), path, os.path.basename(found[1])]


def lua() -> Iterator[list[str]]:
    """The same of what nginx's lua finds before a package's module of the same name (luajit's package.path)."""
    names = {stem for folder in LUA for _, stem in _modules(folder)}
    for folder in LUA_BEFORE:
        yield from (
            [os.path.dirname(path), "lua's path", os.path.basename(path)]
            for path, stem in _modules(folder)
            if stem in names
        )


def _modules(pattern: str) -> Iterator[tuple[str, str]]:
    """Files below folders, each with what it is called by."""
    for folder in glob.glob(f"{ROOT}{pattern}"):
        for top, _, names in os.walk(folder):
            for name in names:
                path = f"{top}/{name}"
                yield path.removeprefix(ROOT), os.path.splitext(os.path.relpath(path, folder))[0]


def converters() -> Iterator[list[str]]:
    """The same of what converts texts from and to a character set, of no package's settings (iconvconfig(8))."""
    paths = [
        one.removeprefix(ROOT) for folder in folders() for one in glob.glob(f"{folder}/gconv/gconv-modules.d/*.conf")
    ]
    own = dpkg.owners(paths)
    yield from ([os.path.dirname(path), "gconv-modules.d", os.path.basename(path)] for path in paths if path not in own)


def services() -> Iterator[list[str]]:
    """The same of what is asked for users and hosts (nsswitch.conf(5)), and is there."""
    words = {word for line in common.lines(read(NAMES)) for word in line.partition("#")[0].partition(":")[2].split()}
    for word in sorted(words):
        for folder in folders().values() if SERVICE.fullmatch(word) else ():
            if os.path.exists(f"{ROOT}{folder}/libnss_{word}.so.2"):
                yield [folder, NAMES, f"libnss_{word}.so.2"]
