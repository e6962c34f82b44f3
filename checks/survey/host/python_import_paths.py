"""Where a Python that runs imports from, as far as it is seen from outside: its sys.path, and what it has mapped."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from checks.survey.host import common

PROC = "/proc"
# A library of Python's own, or of a package that is installed for one
MODULES = re.compile(r"/(?:(?:site|dist)-packages|lib-dynload|lib/python[0-9.]+)/")
MAPS = 16 << 20  # bytes; the 65,530 rows that a kernel allows take less, with paths of usual length
SHOWN = 20  # of a list
MANY = 1000  # entries that are looked at of a folder of a service's own
# openat2(2), the same number everywhere, and how a path is resolved (linux/openat2.h)
OPENAT2, IN_ROOT, NO_MAGIC = 437, 0x10, 0x02
NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENAMETOOLONG)


def elsewhere(pid: int, places: tuple[str, ...]) -> list[str]:
    """The imports of a process from other places than these; none of other programs than Python.

    A process with another title hides its words and variables: of that only the program and its mappings count. A
    process that was forked has the sys.path of the one before it.

    Args:
        pid: The process.
        places: Folders, each with a slash at its end.
    """
    try:
        program = os.readlink(f"{PROC}/{pid}/exe")
    except OSError:  # it has ended
        return []
    if not named(program):
        return []
    found = [] if program.startswith(places) else [f"its program is {program}"]
    maps = common.entire(f"{PROC}/{pid}/maps", MAPS)
    if maps is None:
        found.append("its map is too long: its mappings are unknown")
    rows = [line.split(maxsplit=5) for line in common.lines(maps or "")]
    mapped = {row[5] for row in rows if len(row) == 6 and row[5].startswith("/") and MODULES.search(row[5])}
    found += [f"it has mapped {path}" for path in sorted(mapped) if not path.startswith(places)]
    found += [f"{why} {place}" for why, place in searched(pid) if not f"{place}/".startswith(places)]
    return found[:SHOWN]


def searched(pid: int) -> Iterator[tuple[str, str]]:
    """The entries before or next to the environment's own folders in its sys.path, with their causes."""
    words = common.begin(f"{PROC}/{pid}/cmdline").split("\0")[:-1]
    if not words or not named(words[0]):
        return
    letters, script = options(words)
    variables = dict(one.partition("=")[::2] for one in common.begin(f"{PROC}/{pid}/environ").split("\0"))
    if "E" in letters:
        variables = {name: value for name, value in variables.items() if not name.startswith("PYTHON")}
    try:
        at = os.readlink(f"{PROC}/{pid}/cwd")
    except OSError:
        return
    for name in ("PYTHONHOME", "PYTHONPATH"):
        # an empty one is where it is started
        parts = variables[name].split(":") if variables.get(name) else []
        yield from ((f"{name} has", os.path.join(at, one).rstrip("/")) for one in parts)
    if "P" not in letters and not variables.get("PYTHONSAFEPATH"):
        first = os.path.dirname(os.path.join(at, script)) if script else at
        # only root puts something at the top
        if first != "/":
            yield "it imports first from", first
    if "s" not in letters and not variables.get("PYTHONNOUSERSITE"):
        base = variables.get("PYTHONUSERBASE") or f"{variables.get('HOME', '')}/.local"
        yield from (("its user has", path) for path in packages(f"{PROC}/{pid}/root", os.path.join(at, base)))


def packages(root: str, base: str) -> Iterator[str]:
    """A user's folders of packages below a place, as a process with this folder as its root finds them.

    Links in there are a service's own: they lead nowhere else here than they do there, and by /proc nowhere at all.

    Raises:
        OSError: the folder for the root cannot be opened, or the kernel resolves nothing in it (openat2(2), 5.6).
    """
    try:
        top = os.open(root, os.O_PATH | os.O_DIRECTORY)
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return
    with ExitStack() as opened:
        opened.callback(os.close, top)
        try:
            folder = beneath(top, f"{base}/lib", os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, folder)
            with os.scandir(folder) as entries:
                names = [one.name for one, _ in zip(entries, range(MANY + 1), strict=False)]
            if len(names) > MANY:
                yield f"{base}/lib with more than {MANY} entries"
            for name in sorted(one for one in names[:MANY] if named(one)):
                with suppress(FileNotFoundError, NotADirectoryError):
                    path = f"{base}/lib/{name}/site-packages"
                    os.close(beneath(top, path, os.O_PATH | os.O_DIRECTORY))
                    yield path
        except OSError as error:
            if error.errno == errno.ELOOP:
                yield f"{base}/lib by links in a circle, or of /proc"
            elif error.errno not in NOTHING:
                raise


def beneath(top: int, path: str, flags: int) -> int:
    """Open a path as a process with an opened folder as its root sees it.

    Raises:
        OSError: as open(2); ELOOP where it leads by links of /proc, too.
    """
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC | os.O_NONBLOCK * (not flags & os.O_PATH), 0, IN_ROOT | NO_MAGIC)
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(OPENAT2, top, os.fsencode(path), how, len(how))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return int(found)


def named(path: str) -> bool:
    """Whether a program is called Python."""
    return os.path.basename(path).startswith("python")


def options(words: list[str]) -> tuple[set[str], str]:
    """Letters of a Python's own options, with what the isolated mode stands for, and the script; none where it has code
    or a module's name (python(1)).
    """
    letters: set[str] = set()
    rest = iter(words[1:])
    script = ""
    for word in rest:
        if not word.startswith("-") or word == "-":
            script = word.strip("-")
            break
        if word in ("-W", "-X"):
            next(rest, "")
        elif word[1:2] not in ("-", "W", "X"):
            # the rest after the one or the other is code, or a name
            own = re.split("[cm]", word[1:], maxsplit=1)
            letters |= {*own[0]}
            if len(own) > 1:
                break
    return letters | ({"E", "s", "P"} if "I" in letters else set()), script
