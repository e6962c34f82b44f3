"""Common parts of all sections of the survey."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import os
import pwd
import re
import stat
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# ldconfig(8), --print-cache: how many there are, and a line for each
COUNTED = re.compile(r"([0-9]+) libs? found in cache\b")
CACHED = re.compile(r"\t(\S+) \(([^()]*)\) => (/.*)")
MOST = 8 << 20  # bytes of a file for people or systemd; none of them is as long
BEGIN = 1 << 20  # bytes that are read of what anybody may have made as long as he likes
# An object that cannot be read; a device's own attributes fail so, too, where they have no value
BROKEN = (errno.EIO, errno.ESTALE, errno.ENFILE, errno.EMFILE, errno.ENOMEM)
SECRET = re.compile(
    r"((?<![Nn][Oo])(?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key|authorization|bearer|credentials?)(?:[\"']?\s*[:=]\s*|\s+)[\"']?"
    r"(?:bearer\s+|basic\s+)?)(?=[^\s\"'/-])[^\s\"']+",
    re.IGNORECASE,
)
MASKS = (
    (SECRET, r"\1..."),
    # a variable whose name has such a word, where its value is no path and no plain setting
    (
        re.compile(
            # from where a name begins, and bounded: a line of a million letters takes as long as it is
            r"((?<![\w.-])[\w.-]{0,100}?(?:(?<![Nn][Oo])pass|pwd|psk|key|secret|token|credential)[\w.-]{0,100}[\"']?\s*[:=]\s*[\"']?)"
            r"(?!(?:yes|no|true|false|none|[0-9]{1,6})(?:\W|$))(?=[^\s\"'/$])[^\s\"',;]+",
            re.IGNORECASE,
        ),
        r"\1...",
    ),
    (re.compile(r"(://)[^/\s@]+@"), r"\1...@"),
    (re.compile(r"((?:^|\s)(?:-u|--user|--proxy-user)(?:\s+|=)[\"']?)[^\s:]+:\S+"), r"\1..."),
    # text that looks as if it was made by chance
    (re.compile(r"(?<![A-Za-z0-9+])(?=[A-Za-z+]*[0-9])(?=[0-9+]*[A-Za-z])[A-Za-z0-9+]{20,}"), "..."),
)
# _IOR('f', 1, long), FS_IMMUTABLE_FL and FS_APPEND_FL (linux/fs.h)
GETFLAGS, STUCK = 0x80086601, 0x30
KERNELS = ("/proc/", "/sys/")
PIECE = 1 << 20  # bytes
WILD = re.compile(r"[*?\[]")  # the characters that make a pattern of a word (fnmatch(3))


def run(*words: str, limit: float = 40.0, stdin: str = "", status: bool = False, end: str = "\n") -> str:
    """A program's standard output, up to its end: no value in it is a part of another one.

    Args:
        words: Its name and arguments.
        limit: Seconds that it may take.
        stdin: Its input.
        status: Whether it may fail.
        end: The end of each line of it.

    Raises:
        RuntimeError: it fails, or its output is cut off.
        subprocess.TimeoutExpired: after `limit` seconds.
    """
    done = subprocess.run(words, input=stdin.encode(), capture_output=True, timeout=limit, check=False)
    if done.returncode and not status:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        # apt names the file in the last line but one
        raise RuntimeError(f"{words[0]}: {' '.join(said[-2:])[:400] or f'exit status {done.returncode}'}")
    return require_whole(words[0], done.stdout.decode(errors="replace"), end)


def require_whole(program: str, text: str, end: str = "\n") -> str:
    """A program's output, where it ends as each line does; as of a terminal's lines, too.

    Raises:
        RuntimeError: it is cut off, or no text.
    """
    if text and not text.endswith(end):
        raise RuntimeError(f"{program}: its output is cut off")
    if end != "\0" and "\0" in text:
        raise RuntimeError(f"{program}: its output is no text")
    return text.replace("\r\n", "\n")


def read_libraries(root: str) -> list[tuple[str, str, str]]:
    """(name, what it is for, path) of each library in the loader's cache, in its order (ldconfig(8)).

    Args:
        root: The host's root; a test has a folder for it.

    Raises:
        RuntimeError: ldconfig fails, or prints fewer than it counts.
    """
    program = f"{root}/sbin/ldconfig"
    rows: list[tuple[str, str, str]] = []
    count = -1
    for line in lines(run(program, "-p", limit=10)):
        if matched := CACHED.fullmatch(line):
            rows.append((matched[1], matched[2], matched[3]))
        elif counted := COUNTED.match(line):
            count = int(counted[1])
    if len(rows) != count:
        raise RuntimeError(f"{program} prints {len(rows)} libraries and counts {max(count, 0)}")
    return rows


def ended(*words: str, limit: float = 40.0) -> tuple[int, str, str]:
    """A program's exit status, standard output and standard error; a missing one ends with 127.

    Raises:
        subprocess.TimeoutExpired: after `limit` seconds.
    """
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False)
    except (FileNotFoundError, PermissionError):
        return 127, "", ""
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def born(paths: Iterable[str]) -> dict[str, float]:
    """When files were made that are there, in seconds since 1970; of others, and where a file system does not keep it,
    nothing. Unlike when it was changed, no touch and no chmod moves that.
    """
    there = [path for path in paths if os.path.lexists(path)]
    found: dict[str, float] = {}
    for begins in range(0, len(there), 500):
        said = run("stat", "--printf=%W %n\\0", "--", *there[begins : begins + 500], status=True, end="\0")
        rows = (row.partition(" ") for row in said.split("\0"))
        found |= {path: float(moment) for moment, _, path in rows if moment.isdecimal() and int(moment)}
    return found


def named(table: Any, number: int) -> str:
    """A user's or group's name; its number where it has none."""
    try:
        return str(table(number)[0])
    except KeyError:
        return str(number)


def lying(path: str) -> dict[str, object]:
    """The object at a path: its kind, its owner, and the users that its access list admits."""
    try:
        status = os.lstat(path)
    except OSError:
        return {"kind": "nothing", "mode": 0, "owner": "", "group": "", "listed": False}
    kinds = (
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISLNK, "a link"),
        (stat.S_ISREG, "a file"),
    )
    listed = False
    with contextlib.suppress(OSError):
        listed = any("posix_acl" in name for name in os.listxattr(path, follow_symlinks=False))
    return {
        "kind": next((kind for test, kind in kinds if test(status.st_mode)), "something else"),
        "mode": stat.S_IMODE(status.st_mode),
        "owner": named(pwd.getpwuid, status.st_uid),
        "group": named(grp.getgrgid, status.st_gid),
        "listed": listed,
    }


def stuck(path: str | Path) -> bool:
    """Whether a file system lets no user, root included, change or remove a file or folder (chattr(1), +i and +a)."""
    with contextlib.suppress(OSError):
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            return bool(struct.unpack("=I", fcntl.ioctl(opened, GETFLAGS, bytes(8))[:4])[0] & STUCK)
        finally:
            os.close(opened)
    return False


def masked(line: str) -> str:
    """A foreign line without what looks like a secret: reports go further than root's files."""
    for pattern, shown in MASKS:
        line = pattern.sub(shown, line)
    return line


def plain(name: str) -> str:
    """A name that JSON can have."""
    return name.encode("utf-8", "backslashreplace").decode()


def file_kind(mode: int) -> str:
    """The kind of a file of this mode, in a word."""
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    return kinds.get(stat.S_IFMT(mode), "device, pipe or socket")


def list_folder(folder: Path) -> list[Path]:
    """The names in a folder; none where it cannot be read."""
    with contextlib.suppress(OSError):
        return sorted(folder.iterdir())
    return []


def lines(text: str) -> list[str]:
    """A text's lines, as every program on a host takes them: a form feed or the like ends none."""
    found = text.split("\n")
    return found[:-1] if not found[-1] else found


def rows(path: str | Path, fields: int) -> list[list[str]]:
    """Rows of a list of accounts or groups, each of so many fields (passwd(5), group(5))."""
    return [row for line in lines(read(path) or "") if len(row := line.split(":")) == fields]


def read(path: str | Path, most: int = MOST) -> str | None:
    """A file's text; None for no file. A device or pipe is never read for it.

    Raises:
        RuntimeError: it is longer than so many bytes, or there and broken: an unseen state is not in order.
    """
    found = data(path, most)
    return None if found is None else text(found)


def data(path: str | Path, most: int = MOST) -> bytes | None:
    """The same as it lies there; raises as `read`."""
    try:
        found = _bytes(path, most + 1)
    except OSError as error:
        if error.errno in BROKEN and not str(path).startswith(KERNELS):
            raise RuntimeError(f"{path}: {error.strerror}") from None
        return None
    if found is not None and len(found) > most:
        raise RuntimeError(f"{path} is longer than {most} bytes")
    return found


def one_key(path: str) -> str:
    """The key in a file; empty where there is not exactly one."""
    found = lines(read(path) or "")
    return found[0] if len(found) == 1 and found[0].isascii() and found[0].isprintable() else ""


def begin(path: str | Path, most: int = BEGIN) -> str:
    """The beginning of the text of a foreign file; empty for no file, or none that can be read."""
    try:
        return text(_bytes(path, most) or b"")
    except OSError:
        return ""


def tail(path: str | Path, most: int, record: int = 1) -> bytes:
    """How a log ends, from the beginning of a record on that has so many bytes; empty for none that can be read."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - most)
        file.seek(start - start % record)
        return file.read(most + record)
    return b""


def entire(path: str | Path, most: int) -> str | None:
    """The text of a foreign file, as `begin` has it; None where there may be more of it."""
    found = begin(path, most)
    return None if len(found.encode()) >= most else found


def _bytes(path: str | Path, most: int) -> bytes | None:
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return None
        found = bytearray()
        # /proc/sys has no memory for a read of more than 4 MiB, however short its answer is
        while len(found) < most and (piece := os.read(opened, min(PIECE, most - len(found)))):
            found += piece
        return bytes(found)
    finally:
        os.close(opened)


def text(found: bytes) -> str:
    """A file's bytes, with what is no text replaced."""
    return found.decode(errors="surrogateescape").encode(errors="replace").decode()
