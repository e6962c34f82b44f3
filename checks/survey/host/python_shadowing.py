"""Unpackaged code that the host's Python, used by root and services, would run or import first."""

from __future__ import annotations

import marshal
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from checks.survey.host import common, dpkg

ROOT = Path("/")
INFO = "var/lib/dpkg/info"
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
# Its libraries are imported before what is written in Python, in a folder of modules as well
LIBRARY = ".so"
INSTALLED = 600.0  # s: from when a package's list is written to when all of it is compiled, where no log has that
CLOCK = 2.0  # s: the log of packages has whole seconds
HEAD = 16  # bytes of what was compiled before its code (PEP 552)


def look(asked: dict[str, str]) -> dict[str, object]:
    """All of it.

    Args:
        asked: Nothing.
    """
    found = sorted(set(candidates()))
    known = owned() if found else set()
    return {
        "foreign": [common.plain(path) for path in found if path not in known],
        "other": sorted(map(common.plain, (*compiled(), *compiled_of_packages()))),
    }


def candidates() -> Iterator[str]:
    """The files that would be run or imported first."""
    for pattern in ARCHIVES:
        yield from map(below, ROOT.glob(pattern))
    for pattern in OWN:
        for folder in ROOT.glob(pattern):
            names = folder.iterdir() if folder.is_dir() else iter(())
            yield from (below(path) for path in names if path.name != MADE)
            yield from map(below, libraries(folder))
    for pattern in SITES:
        for folder in ROOT.glob(pattern):
            names = folder.iterdir() if folder.is_dir() else iter(())
            yield from (below(path) for path in names if first(path))


def below(path: Path) -> str:
    """The host's own name for it."""
    return str(path).removeprefix(str(ROOT).rstrip("/"))


def libraries(folder: Path) -> Iterator[Path]:
    """Those in folders of modules."""
    for top, _, names in os.walk(folder):
        yield from (Path(top, name) for name in names if name.endswith(LIBRARY))


def compiled() -> Iterator[str]:
    """The compiled files that run in place of a module's text and differ from it: of this Python's own, where a
    package's coming does not explain it.
    """
    # by its own word, which a test's folder may stand in for
    library = ROOT / f"usr/lib/python3.{sys.version_info[1]}"
    own = re.compile(rf"(?:lib)?python3\.{sys.version_info[1]}(?:-minimal|-stdlib)?(?::[a-z0-9]+)?")
    bases = [str(path.with_suffix("")) for path in (ROOT / INFO).glob("*.list") if own.fullmatch(path.stem)]
    born = common.born(f"{base}.{kind}" for base in bases for kind in ("list", "md5sums"))
    configured = dpkg.configured()
    since = max((_complete(base, born, configured) for base in bases), default=0.0)
    for top, _, names in os.walk(library):
        if not top.endswith(f"/{MADE}"):
            continue
        for path, state in _states(f"{top}/{name}" for name in names if f".{sys.implementation.cache_tag}." in name):
            if state.st_ctime > since and not same(Path(path)):
                yield f"/{Path(path).relative_to(ROOT)}"


def compiled_of_packages() -> Iterator[str]:
    """The same of packages' modules that all Python 3 share."""
    paths = [
        f"{top}/{name}"
        for top, _, names in os.walk(ROOT / SITES[0])
        if top.endswith(f"/{MADE}")
        for name in names
        if f".{sys.implementation.cache_tag}." in name
    ]
    sources = {path: below(_source(Path(path))) for path in paths}
    owners = dpkg.owners(sources.values())
    bases = {name: _base(name) for name in {*owners.values()}}
    born = common.born(f"{base}.{kind}" for base in bases.values() for kind in ("list", "md5sums"))
    configured = dpkg.configured() if paths else {}
    since = {name: _complete(base, born, configured) for name, base in bases.items()}
    for path, state in _states(path for path in paths if sources[path] in owners):
        if state.st_ctime > since[owners[sources[path]]] and not same(Path(path)):
            yield below(Path(path))


def _base(package: str) -> str:
    """The path of dpkg's files about a package, without what they end with."""
    info = ROOT / INFO
    found = next(iter(sorted(info.glob(f"{package}:*.list"))), info / f"{package}.list")
    return str(found.with_suffix(""))


def _complete(base: str, born: dict[str, float], configured: dict[str, float]) -> float:
    """When a package's scripts had compiled all of it: when dpkg says so, and at most so long after its files came."""
    unpacked = dpkg.unpacked(base, born) or 0.0
    ended = configured.get(os.path.basename(base).partition(":")[0], 0.0)
    is_logged = ended and unpacked - INSTALLED < ended < unpacked + INSTALLED
    return ended + CLOCK if is_logged else unpacked + INSTALLED


def _states(paths: Iterator[str] | list[str]) -> Iterator[tuple[str, os.stat_result]]:
    for path in paths:
        with suppress(OSError):
            yield path, os.lstat(path)


def same(path: Path) -> bool:
    """Whether compiled code is that of the text that it is named after; without that text, Python never runs it."""
    source = _source(path)
    kind = path.name.partition(f".{sys.implementation.cache_tag}")[2]
    level = re.fullmatch(r"(?:\.opt-([12]))?\.pyc", kind)
    if not source.is_file() or not level:
        return True
    try:
        code = compile(source.read_bytes(), str(source), "exec", dont_inherit=True, optimize=int(level[1] or 0))
        # nothing of it is run
        return bool(marshal.loads(path.read_bytes()[HEAD:]) == code)  # noqa: S302
    except (OSError, SyntaxError, ValueError, EOFError, TypeError):
        return False


def _source(path: Path) -> Path:
    """The text that something compiled is named after."""
    return path.parent.parent / f"{path.name.partition(f'.{sys.implementation.cache_tag}')[0]}.py"


def first(path: Path) -> bool:
    """Whether it is run at every start: customisations, and `.pth` files with a line of code."""
    if FIRST.fullmatch(path.name):
        return True
    lines = common.lines(common.read(path) or "") if path.suffix == ".pth" else []
    return any(line.startswith(("import ", "import\t")) for line in lines)


def owned() -> set[str]:
    """Paths below python3 folders that packages list."""
    found: set[str] = set()
    for path in (ROOT / INFO).glob("*.list"):
        text = common.read(path, LONGEST) or ""
        if "/python3" in text:
            found.update(line for line in common.lines(text) if "/python3" in line)
    return found
