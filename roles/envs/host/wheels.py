"""Judge wheels before one of them is installed: `python3 -m rigwright_envs.wheels FOLDER VENV REQUIREMENT...`, as root.

FOLDER has the wheels of one group of the lock, whose bytes are the locked ones. Root, or a program that root starts,
runs what they install: each wheel passes the rules of plugins (`plugins.look`), none replaces a module or a program of
another one or of VENV (empty where there is none), and each is needed by a REQUIREMENT or by a wheel that is. Nothing
of a wheel is unpacked or run here.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .lists import normalize_distribution_name
from .plugins import find_shadowed_names, inspect_wheel, module_name, parse_fields
from .tree import SHOWN, EnvironmentRejected, escape_word

NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[([^\]]*)\])?")
"""A requirement's distribution and its extras (PEP 508)."""
EXTRA = re.compile(r"""\bextra\s*==\s*["']([^"']*)["']""")
MODULE = re.compile(r"([^/]+?)(?:\.cpython-[^/]*|\.abi3)?\.(?:py|pyc|so)")


def required_distributions(requirements: Iterable[str], wheels: Mapping[str, Iterable[str]]) -> set[str]:
    """The distributions that requirements need, by what the wheels themselves require.

    Of a marker only its extra counts: a wheel that is for other hosts is locked, and needed, too.

    Args:
        requirements: The requested distributions.
        wheels: Distribution, as an index spells it -> its own requirements.
    """
    found: set[tuple[str, str]] = set()
    left = [*requirements]
    while left:
        match = NAME.match(left.pop())
        if not match:
            continue
        name, extras = (
            normalize_distribution_name(match[1]),
            [normalize_distribution_name(one.strip()) for one in (match[2] or "").split(",")],
        )
        for extra in ("", *filter(None, extras)):
            if (name, extra) not in found:
                found.add((name, extra))
                left += [one for one in wheels.get(name, ()) if _is_applicable(one, extra)]
    return {name for name, _ in found}


def _is_applicable(requirement: str, extra: str) -> bool:
    """Whether a distribution requires something with an extra; "" for without one."""
    named = {normalize_distribution_name(one) for one in EXTRA.findall(requirement.partition(";")[2])}
    return extra in named if named else not extra


def find_surplus(requirements: Collection[str], wheels: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Distributions that no requirement needs, a line each.

    Args:
        requirements: The requested distributions.
        wheels: As `required_distributions` takes them.
    """
    for name in sorted({*wheels} - required_distributions(requirements, wheels)):
        yield f"{escape_word(name)} is locked, and nothing that is asked for requires it"


def find_surplus_conda(requirements: Iterable[str], packages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Conda packages that no requirement needs, a line each.

    Args:
        requirements: Match specs: a name, and what is asked of it.
        packages: `name` and `depends` of each, as conda-meta has them.
    """
    depends = {str(one["name"]): one.get("depends", ()) for one in packages}
    found: set[str] = set()
    left = [*requirements]
    while left:
        if (name := re.split(r"[ =<>!~\[]", str(left.pop()), maxsplit=1)[0]) not in found:
            found.add(name)
            left += depends.get(name, ())
    for name in sorted({*depends} - found):
        yield f"{escape_word(name)} is locked, and nothing that is asked for depends on it"


def parse_requires(path: Path) -> tuple[str, ...]:
    """The requirements of a wheel, as its METADATA writes them.

    Raises:
        EnvironmentRejected: it cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (one for one in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one))
            return tuple(map(str, parse_fields(archive, name).get_all("Requires-Dist") or ()))
    except Exception as error:  # each way in which an archive is broken has an exception of its own
        raise EnvironmentRejected(
            f"{escape_word(path.name)} has no METADATA that can be read: {escape_word(error)}"
        ) from None


def find_replacements(wheels: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Files of several wheels, and modules that one wheel has as a file and another one as a folder or a file.

    Args:
        wheels: Name -> its paths in site-packages.
    """
    owners: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name, paths in wheels.items():
        own: dict[str, str] = {}
        above: dict[str, str] = {}
        for path in paths:
            parent, _, last = path.rpartition("/")
            match = MODULE.fullmatch(last)
            own[path] = own[f"{parent}/{match[1]}/" if match else path] = path
            while parent:
                above[f"{parent.rpartition('/')[0]}/{parent.rpartition('/')[2]}/"] = path
                parent = parent.rpartition("/")[0]
        for key, path in own.items():
            if other := owners.get(key) or folders.get(key):
                yield f"{escape_word(path)} of {escape_word(name)} takes the place of what {escape_word(other)} has"
        for key, path in above.items():
            if other := owners.get(key):
                yield f"{escape_word(path)} of {escape_word(name)} takes the place of what {escape_word(other)} has"
        owners |= dict.fromkeys(own, name)
        folders |= dict.fromkeys(above, name)


def collect_venv(venv: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The modules and programs that a new virtual environment has: pip's, and on older releases setuptools'."""
    site = [one for folder in venv.glob("lib/python3.*/site-packages") for one in folder.iterdir()]
    return frozenset(module_name(one.name) for one in site), frozenset(one.name for one in (venv / "bin").iterdir())


def validate_wheels(folder: Path, venv: Path | None, requirements: Collection[str]) -> None:
    """Judge the wheels of a folder.

    Raises:
        EnvironmentRejected: with all that is wrong with one.
    """
    files = sorted(folder.iterdir())
    needs: dict[str, tuple[str, ...]] = {}
    contents: dict[str, Any] = {}
    wrong: list[str] = []
    there = collect_venv(venv) if venv else (frozenset[str](), frozenset[str]())
    programs: dict[str, str] = {}
    for path in files:
        name, version, *_ = path.name.split("-")
        try:
            inside = inspect_wheel(path, {"name": name, "version": version})
        except EnvironmentRejected as error:
            wrong += [line.removeprefix("plugin ") for line in str(error).splitlines()]
            continue
        needs[normalize_distribution_name(name)] = inside.requires
        contents[path.name] = inside.paths
        wrong += [f"{escape_word(path.name)}: {line}" for line in find_shadowed_names(inside, *there, "Python")]
        wrong += [
            f"{escape_word(path.name)}: its program {escape_word(one)} is {escape_word(programs[one])}'s"
            for one in sorted(inside.commands)
            if one in programs
        ]
        programs |= dict.fromkeys(inside.commands, path.name)
    wrong += find_replacements(contents)
    if not wrong:
        wrong += find_surplus(requirements, needs)
    if wrong:
        raise EnvironmentRejected("\n".join(wrong[:SHOWN]))


def main() -> int:
    """Judge the wheels that are named; the exit status."""
    folder, venv, *requirements = sys.argv[1:]
    try:
        validate_wheels(Path(folder), Path(venv) if venv else None, requirements)
    except EnvironmentRejected as error:
        sys.stdout.write(f"these wheels are refused, and nothing of them was installed or run:\n{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
