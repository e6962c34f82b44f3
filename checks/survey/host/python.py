"""What the host's own Python runs or imports first, and no package has brought: it is run by root, and by services."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from checks.survey.host import common

ROOT = Path("/")
LISTS = "var/lib/dpkg/info/*.list"
LONGEST = 1 << 26  # bytes of a package's list
# A folder, or a library, is imported before a module of the same name beside it: nothing else may lie there.
OWN = ("usr/lib/python3.*",)
SITES = (
    *(
        "usr/lib/python3/dist-packages",
        "usr/local/lib/python3.*/dist-packages",
        "usr/local/lib/python3.*/site-packages",
    ),
    *("usr/lib/python3.*/site-packages", "root/.local/lib/python3.*/site-packages"),
)
# before the library's own folder, where there is one (sys.path)
ARCHIVES = ("usr/lib/python3*.zip",)
FIRST = re.compile(r"(site|user)customize(\..*)?")
MADE = "__pycache__"


def look(asked: dict[str, str]) -> dict[str, object]:
    """All of it.

    Args:
        asked: Nothing.
    """
    found = sorted(set(candidates()))
    known = owned() if found else set()
    return {"foreign": [plain(path) for path in found if path not in known]}


def candidates() -> Iterator[str]:
    """What would be run or imported first."""
    for pattern in ARCHIVES:
        yield from (f"/{path.relative_to(ROOT)}" for path in ROOT.glob(pattern))
    for pattern in OWN:
        for folder in ROOT.glob(pattern):
            names = folder.iterdir() if folder.is_dir() else iter(())
            yield from (f"/{path.relative_to(ROOT)}" for path in names if path.name != MADE)
    for pattern in SITES:
        for folder in ROOT.glob(pattern):
            names = folder.iterdir() if folder.is_dir() else iter(())
            yield from (f"/{path.relative_to(ROOT)}" for path in names if first(path))


def first(path: Path) -> bool:
    """Whether it is run at every start: customisations, and `.pth` files with a line of code."""
    if FIRST.fullmatch(path.name):
        return True
    lines = common.lines(common.read(path) or "") if path.suffix == ".pth" else []
    return any(line.startswith(("import ", "import\t")) for line in lines)


def owned() -> set[str]:
    """What packages have of it."""
    found: set[str] = set()
    for path in ROOT.glob(LISTS):
        text = common.read(path, LONGEST) or ""
        if "/python3" in text:
            found.update(line for line in common.lines(text) if "/python3" in line)
    return found


def plain(name: str) -> str:
    """A name that JSON can have."""
    return name.encode("utf-8", "backslashreplace").decode()
