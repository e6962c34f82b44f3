"""Unified diffs, applied as they are written or not at all: no fuzz, and bytes before and after by their SHA-256.

Python's own library alone: hosts run this file by itself, `python3 -I apply.py PLAN TOP`, to patch what lies below a
folder: as nobody, or as root where root's own job has installed it. PLAN is JSON: `patches`, each with `name`, `diff`
(text) and `targets`, each with `path`, `before` (none where the patch brings the file), `after`, and `text` where the
whole file is given. Either all of it is applied, or the exit status is 1 and what was found is said.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGEST = 10_000_000  # bytes of a diff, of a file that it changes, and of what that becomes
NOTHING = "/dev/null"  # stands in a diff for a file that is not there
PATH = re.compile(r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9_][A-Za-z0-9._+@-]*(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._+@-]+)*")
HUNK = re.compile(rb"@@ -(0|[1-9][0-9]{0,6})(?:,([0-9]{1,7}))? \+(0|[1-9][0-9]{0,6})(?:,([0-9]{1,7}))? @@(?: .*)?")
UNENDED = b"\\ "  # begins what says that the line before has no end: the rest is in the language of whoever ran diff
# What git and `diff -r` write of a change of the text of one file, and nothing else.
BESIDE = re.compile(rb"diff (?:-[-A-Za-z0-9]+ )+a/\S+ b/\S+|index [0-9a-f.]+(?: 100(?:644|755))?|new file mode 100644")


class PatchRefused(Exception):
    """A patch that cannot be applied as it is written; the text says why."""


@dataclass(frozen=True)
class Hunk:
    """One place of a file that is changed: the lines before it, and its own with their ends, as found and as made."""

    at: int
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]


def path_refusal(path: str) -> str:
    """Why a path cannot be a target; empty where it can."""
    parts = path.split("/")
    wrong = {
        "is absolute: paths are relative to the package or source": path.startswith("/"),
        "leaves its directory with ..": ".." in parts,
        "is empty, ends with a slash or has two in a row": "" in parts,
        "is too long: at most 1000 characters, and 200 per name": len(path) > 1000 or max(map(len, parts)) > 200,
        "has characters other than letters, digits and ._+@-": not PATH.fullmatch(path),
    }
    return next((text for text, found in wrong.items() if found), "")


def content_refusal(content: bytes) -> str:
    """Why bytes are no text that patches are made of; empty where they are."""
    if len(content) > LARGEST:
        return f"has more than {LARGEST:,} bytes"
    if b"\0" in content:
        return "is binary"
    if b"\r" in content:
        return "has CRLF line endings: save it with LF" if b"\r\n" in content else "has a carriage return inside a line"
    try:
        content.decode()
    except UnicodeDecodeError:
        return "is not UTF-8"
    return ""


def parse(diff: bytes) -> dict[str, tuple[Hunk, ...]]:
    """Read a unified diff: path -> the places that it changes there, in order.

    Raises:
        PatchRefused: it is none, or has what is not applied exactly: names that differ, modes, binaries, hunks that
            change nothing, overlap or are cut.
    """
    if wrong := content_refusal(diff):
        raise PatchRefused(wrong)
    found: dict[str, tuple[Hunk, ...]] = {}
    lines = diff.split(b"\n")
    if lines.pop():
        raise PatchRefused("its last line is incomplete: it was truncated")
    at = 0
    while at < len(lines):
        if not lines[at].startswith(b"--- "):
            if not BESIDE.fullmatch(lines[at]):
                raise PatchRefused(f"line {at + 1} is not part of a unified text diff: {_format_line(lines[at])}")
            at += 1
            continue
        path = _path(lines, at)
        if path in found:
            raise PatchRefused(f"{path} is listed twice")
        found[path], at = _hunks(lines, at + 2, path)
    if not found:
        raise PatchRefused("it changes no files")
    return found


def _path(lines: list[bytes], at: int) -> str:
    names = [line[4:].decode(errors="replace").partition("\t")[0] for line in lines[at : at + 2]]
    if len(names) < 2 or not lines[at + 1].startswith(b"+++ "):
        raise PatchRefused(f"line {at + 2} does not begin with +++")
    old, new = names
    if new == NOTHING:
        raise PatchRefused(f"line {at + 2} removes {old}: a patch can only change or add files")
    if not new.startswith("b/") or not (old == NOTHING or old.startswith("a/")):
        absolute = any(one.startswith("/") for one in {old, new} - {NOTHING})
        what = "has an absolute path" if absolute else "does not name a/PATH and b/PATH"
        raise PatchRefused(f"line {at + 1} {what}: make it with git diff --no-index, or diff -u")
    path = new[2:]
    if wrong := path_refusal(path):
        raise PatchRefused(f"line {at + 2}: {path!r} {wrong}")
    if old not in (NOTHING, f"a/{path}"):
        raise PatchRefused(f"line {at + 1} renames {old[2:]!r} to {path}")
    return path


def _hunks(lines: list[bytes], at: int, path: str) -> tuple[tuple[Hunk, ...], int]:
    found: list[Hunk] = []
    grown = 0
    while at < len(lines) and lines[at].startswith(b"@@ "):
        made = HUNK.fullmatch(lines[at])
        if not made or made[1] == b"0" != (made[2] or b"1"):
            raise PatchRefused(f"line {at + 1} does not start a hunk: {_format_line(lines[at])}")
        start, old, new = int(made[1]), int(made[2] or 1), int(made[4] or 1)
        hunk, end = _hunk(lines, at + 1, old, new, start - bool(old))
        if hunk.before == hunk.after:
            raise PatchRefused(f"{path}: the hunk at line {at + 1} changes nothing")
        if found and hunk.at < found[-1].at + len(found[-1].before):
            raise PatchRefused(f"{path}: the hunk at line {at + 1} overlaps the previous one")
        if int(made[3]) - bool(new) != hunk.at + grown:
            raise PatchRefused(f"{path}: the hunk at line {at + 1} does not end where its header says")
        grown += len(hunk.after) - len(hunk.before)
        found.append(hunk)
        at = end
    if not found:
        raise PatchRefused(f"{path} has no hunks")
    return tuple(found), at


def _hunk(lines: list[bytes], at: int, old: int, new: int, start: int) -> tuple[Hunk, int]:
    begun = at
    before: list[bytes] = []
    after: list[bytes] = []
    while len(before) < old or len(after) < new:
        line = lines[at] if at < len(lines) else b""
        if line[:1] not in (b" ", b"-", b"+"):
            raise PatchRefused(f"the hunk at line {begun} is truncated at line {at + 1}: {_format_line(line)}")
        text = line[1:] + b"\n"
        at += 1
        if at < len(lines) and lines[at].startswith(UNENDED):
            text, at = line[1:], at + 1
        if line[:1] != b"+":
            before.append(text)
        if line[:1] != b"-":
            after.append(text)
    if len(before) != old or len(after) != new:
        raise PatchRefused(f"the hunk at line {begun} has a different number of lines than its header says")
    return Hunk(start, tuple(before), tuple(after)), at


def applied(content: bytes, hunks: tuple[Hunk, ...]) -> bytes:
    """What a file becomes.

    Raises:
        PatchRefused: a hunk's lines are not exactly where it says.
    """
    lines = content.splitlines(keepends=True)
    made: list[bytes] = []
    done = 0
    for hunk in hunks:
        end = hunk.at + len(hunk.before)
        there = tuple(lines[hunk.at : end])
        if hunk.at > len(lines):
            raise PatchRefused(f"line {hunk.at}: expected a line to insert after, found the end of the file")
        if there != hunk.before:
            wrong = next((n for n, line in enumerate(there) if line != hunk.before[n]), len(there))
            found = _format_line(there[wrong]) if wrong < len(there) else "the end of the file"
            raise PatchRefused(
                f"line {hunk.at + wrong + 1}: expected {_format_line(hunk.before[wrong])}, found {found}"
            )
        made += lines[done : hunk.at]
        made += hunk.after
        done = end
    return b"".join([*made, *lines[done:]])


def _format_line(line: bytes) -> str:
    return repr(line.decode(errors="replace").rstrip("\n")[:100])


def sha256(content: bytes | None) -> str:
    """Of bytes, in hexadecimal digits; `no file` of none."""
    return "no file" if content is None else hashlib.sha256(content).hexdigest()


Read = Callable[[str], "bytes | None"]
"""Gives the bytes at a path; None where nothing is there. Raises Refused where it is no file."""


def outcome(patch: Mapping[str, Any], read: Read) -> dict[str, bytes]:
    """Path -> bytes of every file that a patch changes, after it.

    Args:
        patch: One of PLAN's.
        read: What is there before it.

    Raises:
        PatchRefused: with every file that is not what it is to be, before or after.
    """
    made: dict[str, bytes] = {}
    wrong = []
    hunks = parse(patch["diff"].encode()) if patch["diff"] else {}
    for target in patch["targets"]:
        path = target["path"]
        try:
            made[path] = _one(target, read(path), hunks.get(path))
        except PatchRefused as error:
            wrong.append(f"{path}: {error}")
    if wrong:
        raise PatchRefused("\n".join(f"patch {patch['name']}: {line}" for line in wrong))
    return made


def _one(target: Mapping[str, Any], before: bytes | None, hunks: tuple[Hunk, ...] | None) -> bytes:
    if (found := sha256(before)) != (expected := target["before"] or sha256(None)):
        raise PatchRefused(f"expected {expected}, found {found}: the patch is for another version")
    content = before or b""
    if "text" in target:
        after = str(target["text"]).encode()
    elif wrong := content_refusal(content):
        raise PatchRefused(wrong)
    elif hunks is None:
        raise PatchRefused("the diff does not change it")
    else:
        after = applied(content, hunks)
    if len(after) > LARGEST:
        raise PatchRefused(f"the result has {len(after):,} bytes: at most {LARGEST:,}")
    if after == before:
        raise PatchRefused("it changes nothing")
    if (found := sha256(after)) != target["after"]:
        raise PatchRefused(f"the result is {found}, but the patch says {target['after']}")
    return after


def on_disk(top: Path, path: str) -> bytes | None:
    """What lies at a path below a folder; no link is followed.

    Raises:
        PatchRefused: it is no plain file, or a folder above it is none.
    """
    place = top / path
    try:
        for folder in [*place.relative_to(top).parents][-2::-1]:
            if not stat.S_ISDIR((top / folder).lstat().st_mode):
                raise PatchRefused(f"{folder} is a link, or not a directory")
        if not stat.S_ISREG(place.lstat().st_mode):
            raise PatchRefused("it is a link, or not a regular file")
    except FileNotFoundError:
        return None
    with place.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise PatchRefused(f"it has more than {LARGEST:,} bytes")
    return content


def write(top: Path, files: Mapping[str, bytes]) -> Iterator[str]:
    """Put files below a folder, each as a new one in the place of the old one; gives the path of each."""
    for path, content in files.items():
        place = top / path
        mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else 0o644
        place.parent.mkdir(parents=True, exist_ok=True)
        # a file that has other names, as one that was unpacked into a cache, keeps its bytes under those
        beside = place.with_name(f".{place.name}.patched")
        with beside.open("xb") as file:
            file.write(content)
        beside.chmod(mode)
        beside.replace(place)
        for compiled in place.parent.glob(f"__pycache__/{place.stem}.*.pyc") if place.suffix == ".py" else ():
            compiled.unlink()
        yield path


def main() -> int:
    """Apply what PLAN says below TOP; the exit status."""
    plan, top = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    files: dict[str, bytes] = {}
    said = []
    for patch in plan["patches"]:
        try:
            files |= outcome(patch, lambda path: on_disk(top, path))
        except PatchRefused as error:
            said.append(str(error))
    lines = said or [f"patched {path}" for path in write(top, files)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main())
