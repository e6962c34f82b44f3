"""The bytes of every file in every generation: they are few and small."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from checks.survey.host import common

LARGEST = 1 << 22  # bytes of a file of a generation; its templates come to a few KiB
SHOWN = re.compile(r"manifest\.json|(units|env)/[a-z0-9_][a-z0-9_.\\-]{0,200}")
LONGEST, ALL = 1 << 16, 1 << 19  # bytes of a text that is shown, and of all of them


def look(asked: dict[str, str]) -> dict[str, object]:
    """All of them.

    Args:
        asked: `config`, `folder` (of the generations), and the names of `meta`, `proven` and `activating`.
    """
    config, folder = Path(asked["config"]), Path(asked["folder"])
    numbers = [one for one in listed(folder) if re.fullmatch("[1-9][0-9]{0,8}", one)]
    current = config / "current"
    return {
        "kept": [kept(folder / one, asked) for one in sorted(numbers, key=int)],
        "current": common.plain(str(current.readlink())) if current.is_symlink() else "",
        "activating": (config / asked["activating"]).exists(),
        "beside": [common.plain(one) for one in listed(config)],
        "texts": texts(current) if current.is_symlink() else {},
    }


def texts(folder: Path) -> dict[str, str]:
    """Path -> text of the files that say what a generation runs."""
    found: dict[str, str] = {}
    left = ALL
    paths = ["manifest.json", *(f"{one}/{name}" for one in ("env", "units") for name in listed(folder / one))]
    for path in paths:
        if SHOWN.fullmatch(path) and (text := common.entire(folder / path, min(LONGEST, left) + 1)):
            left -= len(text.encode())
            found[path] = text
    return found


def kept(folder: Path, asked: dict[str, str]) -> dict[str, object]:
    """One of them."""
    files = {}
    for top, folders, names in os.walk(folder):
        for name in [*names, *folders]:
            path = Path(top, name)
            place = common.plain(str(path.relative_to(folder)))
            if place not in (asked["meta"], asked["proven"]) and (told := entry(path)):
                files[place] = told
    meta = (common.read(folder / asked["meta"]) or "").split()
    references = common.lines(common.read(folder / "references") or "")
    return {
        "number": int(folder.name),
        "sealed": common.plain(meta[0]) if meta else "",
        "files": files,
        "lost": [common.plain(path) for path in references if not os.path.lexists(path)],
        "proven": (folder / asked["proven"]).exists(),
    }


def entry(path: Path) -> str:
    """The state of a file or link; none of a folder."""
    try:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            return f"-> {common.plain(str(path.readlink()))}"
        if stat.S_ISDIR(state.st_mode):
            return ""
        if not stat.S_ISREG(state.st_mode) or state.st_size > LARGEST:
            return "no file of a generation"
        return f"{hashlib.sha256(path.read_bytes()).hexdigest()} {stat.S_IMODE(state.st_mode):o}"
    except FileNotFoundError:
        return ""


def listed(folder: Path) -> list[str]:
    """The names in a folder; none where there is none."""
    return sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
