"""Plugins: wheels that no index has, out of an operator's file; an invalid one is refused before it is unpacked.

The file's bytes are the locked ones, and their contents are untrusted: a name in it may lead anywhere, and a module of
it may stand in the place of another package's.
"""

from __future__ import annotations

import configparser
import hashlib
import json
import lzma
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from .lists import list_wheel_files, normalize_distribution_name, parse_record_rows
from .tree import PART, SHOWN, EnvironmentRejected, escape_word, sha256

IN_ZIP = re.compile(r"(?:[^/]+/)?dist/([A-Za-z0-9_][A-Za-z0-9._+-]{0,200}\.whl)")
LARGEST = 2 << 30
"""Bytes of all that is in an archive."""
MOST = 20_000
"""Files of an archive."""
READ = 1 << 20
"""Bytes of a wheel's METADATA, or of its entry points."""
PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
"""Name of a program that a wheel installs."""
BLANKS = tuple(" \t\f\v;")
AT_START = frozenset(("sitecustomize", "usercustomize"))
"""Modules that every Python imports by itself."""
IN_SITE = re.compile(r"lib/python3\.[0-9]+/site-packages/(.+)")
DESCRIBED, ALSO = ".dist-info", (".egg-info", ".egg", ".egg-link")
"""How names end of what describes a package to Python, and in the ways before that (importlib.metadata)."""
FORMAT = re.compile(r"1\.[0-9]{1,3}")
LISTS = ("RECORD", "RECORD.jws", "RECORD.p7s")
FOLDER, NAMED = "plugins", "plugins.json"
"""Where wheels of plugins lie beside the plan, and what says which those are."""


@dataclass(frozen=True)
class PluginWheel:
    """The contents of a plugin's wheel."""

    modules: frozenset[str]
    """First parts of the names that it can be imported by."""
    commands: frozenset[str]
    requires: tuple[str, ...]
    """Its requirements, as it writes them."""
    python: str = ""
    """Versions of Python that it is for, in the same way; empty for all."""
    paths: tuple[str, ...] = field(default=(), compare=False)
    """Its files in site-packages, without those that describe it."""


def extract_plugin_wheels(plan: Mapping[str, Any], conda: Iterable[str], into: Path) -> None:
    """Put the wheel of every plugin into a folder, and write down there which those are.

    Raises:
        EnvironmentRejected: with all that is wrong with one.
    """
    found = []
    others = (
        {Path(one["path"]).name: list_wheel_names(Path(one["path"])) for one in plan["wheels"]}
        if plan["plugins"]
        else {}
    )
    there = [match[1] for path in conda if (match := IN_SITE.fullmatch(path))]
    programs = {path.removeprefix("bin/") for path in conda if path.startswith("bin/")}
    others["a conda package"] = (frozenset(map(module_name, there)), frozenset(programs))
    for one in plan["plugins"]:
        file = Path(one["path"])
        path = extract_wheel(file, into)
        inside = inspect_wheel(path, one)
        if path.name in others:
            raise _describe_refusal(file, [f"its wheel {escape_word(path.name)} is named as another package's"])
        if wrong := [line for name, has in others.items() for line in find_shadowed_names(inside, *has, name)]:
            raise _describe_refusal(file, wrong)
        others[file.name] = (inside.modules, inside.commands)
        found.append({"name": one["name"], "version": one["version"], "sha256": sha256(path), "path": str(path)})
    (into / NAMED).write_text(json.dumps(found))


def find_shadowed_names(
    inside: PluginWheel, modules: frozenset[str], commands: frozenset[str], of: str
) -> Iterator[str]:
    """The modules of a plugin that would stand in the place of another one's, a line each."""
    for name in sorted(inside.modules & modules):
        yield f"its module {escape_word(name)} is {escape_word(of)}'s"
    for name in sorted(inside.commands & commands):
        yield f"its program {escape_word(name)} is {escape_word(of)}'s"


def list_wheel_names(wheel: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The modules and programs of a wheel that is no plugin.

    Raises:
        EnvironmentRejected: it cannot be read.
    """
    listed = [path for path, _ in list_wheel_files(wheel, "")]
    with _open_archive(wheel) as archive:
        names = [one for one in archive.namelist() if one.endswith(".dist-info/entry_points.txt")]
        programs = {name for one in names for name in _parse_entry_points(_read_member(archive, one))}
        programs |= {name.rpartition("/")[2] for name in archive.namelist() if ".data/scripts/" in name}
    return frozenset(module_name(path) for path in listed if "/" in path or path.endswith((".py", ".so"))), frozenset(
        programs
    )


def module_name(path: str) -> str:
    """The name by which a file in site-packages is imported, up to the first dot."""
    return path.partition("/")[0].partition(".")[0]


def extract_wheel(file: Path, into: Path) -> Path:
    """The wheel of an operator's file, in a folder: a copy of it, or of the one in a zip's `dist/`.

    Raises:
        EnvironmentRejected: it is no zip, has a name that leads out of it, a link, no wheel or several.
    """
    if file.suffix == ".whl":
        return Path(shutil.copyfile(file, into / file.name))
    with _open_archive(file) as archive:
        found = list_archive_members(archive, file)
        wheels = [path for path in found if path.endswith(".whl")]
        if len(wheels) != 1 or not (of := IN_ZIP.fullmatch(wheels[0])):
            has = ", ".join(map(escape_word, sorted(wheels)[:SHOWN])) or "none"
            raise _describe_refusal(file, [f"it is to have one wheel, in dist/, and has {has}"])
        with archive.open(found[wheels[0]]) as source, (into / of[1]).open("xb") as target:
            shutil.copyfileobj(source, target)
    return into / of[1]


def list_archive_members(archive: zipfile.ZipFile, file: Path) -> dict[str, zipfile.ZipInfo]:
    """The files of an archive by their paths.

    Raises:
        EnvironmentRejected: one's name leads out of it, is there twice or is no name; one is a link; or there is too
        much of it.
    """
    found: dict[str, zipfile.ZipInfo] = {}
    wrong = []
    # Python looks for the end of an archive from behind, and takes that of one inside of it where its own is gone
    if min((one.header_offset for one in archive.infolist()), default=0):
        wrong.append("it cannot be read: it is truncated, or starts with something else")
    for one in archive.infolist()[: MOST + 1]:
        name = one.orig_filename
        if _leads_out(name):
            wrong.append(f"{escape_word(name)} leads out of it, or is not a valid name")
        elif stat.S_IFMT(one.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            wrong.append(f"{escape_word(name)} is a link, or no file")
        elif name in found:
            wrong.append(f"{escape_word(name)} is there twice")
        elif one.flag_bits & 1:
            wrong.append(f"{escape_word(name)} is encrypted")
        elif not name.endswith("/"):
            found[name] = one
    wrong += [
        f"{escape_word(name)} lies below a file"
        for name in found
        if any(above in found for above in _parent_folders(name))
    ]
    if len(archive.infolist()) > MOST or sum(one.file_size for one in found.values()) > LARGEST:
        wrong.append(f"it has more than {MOST} files, or {LARGEST >> 30} GiB")
    if wrong:
        raise _describe_refusal(file, wrong)
    return found


def _parent_folders(name: str) -> Iterator[str]:
    """The folders that a name is in."""
    while name := name.rpartition("/")[0]:
        yield name


def _leads_out(name: str) -> bool:
    parts = name.removesuffix("/").split("/")
    return bool({"", ".", ".."} & {*parts}) or "\\" in name or not name.isprintable()


def inspect_wheel(wheel: Path, wanted: Mapping[str, Any]) -> PluginWheel:
    """The contents of the wheel of a plugin, or of a group whose programs root runs.

    Args:
        wheel: The file.
        wanted: `name` and `version` of its distribution; of a plugin also `imports` and `commands`.

    Raises:
        EnvironmentRejected: it is another one, has other bytes than its own list says, is run by every Python, or
            brings what its description does not name.
    """
    with _open_archive(wheel) as archive:
        found = list_archive_members(archive, wheel)
        tops = {path.partition("/")[0] for path in found}
        infos = {top for top in tops if top.lower().endswith(DESCRIBED)}
        if len(infos) != 1:
            raise _describe_refusal(
                wheel, [f"it is to be one distribution, and is {', '.join(sorted(infos)) or 'none'}"]
            )
        (info,) = infos
        said = parse_fields(archive, f"{info}/METADATA")
        wrong = [*_find_identity_mismatch(info, said, wanted), *_find_format_problems(archive, found, info)]
        points = f"{info}/entry_points.txt"
        listed = _read_member(archive, points) if points in found else ""
        commands = set(_parse_entry_points(listed))
        # pip and this parser read a continued line, and a comment of INI's other kind, in two ways
        wrong += [
            f"{points} has a line that begins with {escape_word(line[0])}"
            for line in listed.splitlines()
            if line[:1] in BLANKS
        ]
        own = []
        for path in found:
            top, _, rest = path.partition("/")
            if top.endswith(".data") and rest.startswith("scripts/") and rest.count("/") == 1:
                commands.add(rest.partition("/")[2])
            elif top.endswith(".data"):
                wrong.append(f"{path} would be installed beside its modules")
            elif top != info:
                own.append(path)
            if path.endswith(".pyc"):
                wrong.append(f"{escape_word(path)} would run in the place of a module's text")
        # pip takes what follows the last slash of a name
        wrong += [
            f"its program {escape_word(one)} has an invalid name"
            for one in sorted(commands)
            if not PROGRAM.fullmatch(one)
        ]
        wrong += [f"{escape_word(top)} would describe a package" for top in sorted(tops) if top.lower().endswith(ALSO)]
        wrong += [f"every Python would run {path}" for path in own if path.endswith(".pth") and "/" not in path]
        modules = frozenset(map(module_name, own))
        wrong += [f"every Python would run {name}" for name in sorted(modules & AT_START)]
        if "imports" in wanted:
            wrong += _find_undescribed_names(modules, commands, wanted)
        wrong += _find_unlisted_members(archive, found, info)
    if wrong:
        raise _describe_refusal(wheel, wrong)
    requires = tuple(map(str, said.get_all("Requires-Dist") or ()))
    return PluginWheel(modules, frozenset(commands), requires, str(said["Requires-Python"] or ""), tuple(own))


def _find_identity_mismatch(info: str, said: Message, wanted: Mapping[str, Any]) -> Iterator[str]:
    """Why a wheel is not the distribution that it is to be, by what describes it."""
    is_to_be = f"{normalize_distribution_name(wanted['name'])} {wanted['version']}"
    name, version = (", ".join(map(str, said.get_all(key) or ("none",))) for key in ("Name", "Version"))
    if (is_ := f"{normalize_distribution_name(name)} {version}") != is_to_be:
        yield f"distribution: it says that it is {escape_word(is_)}, and is to be {is_to_be}"
    elif normalize_distribution_name(info.removesuffix(DESCRIBED)) != normalize_distribution_name(f"{name}-{version}"):
        yield f"distribution: {escape_word(info)} describes it, and is named for another one than {is_to_be}"


def _find_format_problems(archive: zipfile.ZipFile, found: Iterable[str], info: str) -> Iterator[str]:
    """Why nothing would install a wheel (packaging.python.org, "Binary distribution format")."""
    if f"{info}/WHEEL" not in found:
        yield f"it has no {info}/WHEEL, without which nothing installs it"
        return
    version = str(parse_fields(archive, f"{info}/WHEEL")["Wheel-Version"])
    if not FORMAT.fullmatch(version):
        yield f"Wheel-Version: it is {escape_word(version)}, and is to be 1.0 or another of 1"


def _find_undescribed_names(modules: frozenset[str], commands: set[str], wanted: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({one.partition(".")[0] for one in wanted["imports"]} - modules):
        yield (
            f"imports: it has no module {name}; it has {', '.join(map(escape_word, sorted(modules)[:SHOWN])) or 'none'}"
        )
    for name in sorted(commands - {*wanted["commands"]}):
        yield f"commands: it brings the program {escape_word(name)}, which its description does not name"
    for name in sorted({*wanted["commands"]} - commands):
        yield (
            f"commands: it has no program {name}; it has "
            f"{', '.join(map(escape_word, sorted(commands)[:SHOWN])) or 'none'}"
        )


def _find_unlisted_members(archive: zipfile.ZipFile, found: Mapping[str, zipfile.ZipInfo], info: str) -> Iterator[str]:
    listed = dict(parse_record_rows(_read_member(archive, f"{info}/RECORD"), f"{info}/RECORD"))
    lists = [f"{info}/{name}" for name in LISTS]
    for path, one in found.items():
        if path in lists:
            continue
        digest = hashlib.sha256()
        with archive.open(one) as file:
            while part := file.read(PART):
                digest.update(part)
        if listed.get(path) != digest.hexdigest():
            yield f"{path} {'has other bytes than' if path in listed else 'is not in'} its own list"
    yield from (f"{escape_word(path)} is in its own list alone" for path in listed if path not in (*found, *lists))


def _parse_entry_points(content: str) -> list[str]:
    read = configparser.ConfigParser(delimiters=("=",), strict=False, interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign] # names are what they are
    read.read_string(content)
    return [name for group in ("console_scripts", "gui_scripts") if read.has_section(group) for name in read[group]]


def parse_fields(archive: zipfile.ZipFile, name: str) -> Message:
    """The fields of a METADATA or WHEEL file."""
    return HeaderParser().parsestr(_read_member(archive, name))


def _read_member(archive: zipfile.ZipFile, name: str) -> str:
    with archive.open(name) as file:
        content = file.read(READ + 1)
    if len(content) > READ:
        raise ValueError(f"{name} is too large")
    return content.decode()


@contextmanager
def _open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive, for as long as the block runs; whatever of it cannot be read is refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (OSError, EOFError, ValueError, KeyError, RuntimeError) as error:
        raise _describe_refusal(path, [f"it cannot be read: {escape_word(error)}"]) from None
    except configparser.Error as error:
        raise _describe_refusal(
            path, [f"its entry_points.txt is not an INI file: {escape_word(str(error).splitlines()[0])}"]
        ) from None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError):
        raise _describe_refusal(path, ["it cannot be read: it is truncated, or not such an archive"]) from None


def _describe_refusal(file: Path, wrong: Iterable[str]) -> EnvironmentRejected:
    return EnvironmentRejected("\n".join(f"plugin {escape_word(file.name)}: {line}" for line in [*wrong][:SHOWN]))
