"""Plugins while they are being locked: an operator's file is opened, one that is not as described is refused, and
what its machine code is for is read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, canonicalize_version, parse_wheel_filename

from cli.lock_resolver import downloads
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.lock_files import LockFolders
from cli.lock_resolver.resolver import LockResolver
from cli.lock_resolver.wheels import HOST, is_installable, machine_code
from rigwright.model.instance import EnvSpec
from rigwright.plugins.plugin import Plugin, find_mismatches
from rigwright.problems import Problem
from rigwright.supply.cuda_machine_code import UnreadableLibrary
from rigwright.supply.lock import Artefact
from roles.envs.host import plugins
from roles.envs.host.tree import EnvironmentRejected


@dataclass
class PluginInspection:
    """The findings in plugins."""

    problems: list[Problem] = field(default_factory=list)
    """Why one is not what its description says, or not for the environment that names it."""
    code: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """SHA-256 of a file -> what its machine code is for, as rows have it."""


def inspect_plugins(
    resolver: LockResolver, folders: LockFolders, envs: Iterable[EnvSpec], rows: Mapping[str, Sequence[Artefact]]
) -> PluginInspection:
    """Open every plugin that an environment names.

    Args:
        resolver: The resolver that finds files.
        folders: The locked plugins before: a file that was judged then, and is not to be had now, stays.
        envs: Environments of the inventory; one of a name counts.
        rows: Input -> what it is locked as.
    """
    by_name = {env.name: env for env in envs if env.plugins}
    found = PluginInspection()
    found.problems += [
        Problem(folders.input_path(plugin.keys.input), env.name, f"plugin {plugin.name}: {line}")
        for env in by_name.values()
        for plugin in env.plugins
        for line in _plugin_problems(resolver, folders, env, plugin, rows, found.code)
    ]
    return found


def _plugin_problems(
    resolver: LockResolver,
    folders: LockFolders,
    env: EnvSpec,
    plugin: Plugin,
    rows: Mapping[str, Sequence[Artefact]],
    code: dict[str, tuple[str, ...]],
) -> Iterator[str]:
    (row,) = rows[plugin.keys.input]
    python = {"python_version": "", "python_full_version": ""}
    versions: dict[str, str] = {}
    for one in rows.get(env.keys.packages, ()):
        versions[canonicalize_name(one.name)] = one.version
        python = {"python_version": (one.python or "").rpartition(".")[0], "python_full_version": one.python or ""}
    yield from find_mismatches(plugin.keys, versions, env.name)
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = _plugin_file(resolver, row, Path(folder))
        except DownloadUnavailable as error:
            if row not in folders.all_rows:
                yield f"{row.file} cannot be judged: {error}"
            return
        wheels = Path(folder, "wheels")
        wheels.mkdir()
        try:
            wheel = plugins.extract_wheel(path, wheels)
            inside = plugins.inspect_wheel(wheel, plugin.plan | {"version": row.version})
            code[row.sha256] = machine_code(wheel)
        except EnvironmentRejected as error:
            yield from (line.removeprefix("plugin ") for line in str(error).splitlines())
            return
        except UnreadableLibrary as error:
            yield f"{row.file} cannot be judged: {error}"
            return
    for name in sorted(inside.modules & {one.replace("-", "_") for one in versions}):
        yield f"{row.file}: its module {name} is another package's"
    full = python["python_full_version"]
    wrong = [
        *filename_problems(wheel.name, plugin.keys.distribution, row.version, full),
        *_python_problems(inside.python, full),
    ]
    yield from (f"{row.file}: {line}" for line in [*wrong, *missing_requirements(inside.requires, versions, python)])


def filename_problems(file: str, distribution: str, version: str, python: str) -> Iterator[str]:
    """Why nothing would install a plugin's wheel by what it is called, a line each.

    Args:
        file: Its name.
        distribution: The expected distribution.
        version: Of that.
        python: The environment's, such as 3.10.20; empty where that is not known.
    """
    try:
        name, found, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        such_as = f"{distribution.replace('-', '_')}-{version}-py3-none-any.whl"
        yield f"{file}: must be named as wheels are, such as {such_as}"
        return
    if (name, str(found)) != (
        canonicalize_name(distribution),
        canonicalize_version(version, strip_trailing_zero=False),
    ):
        yield f"{file}: it is named for {name} {found}: must be {canonicalize_name(distribution)} {version}"
    # a wheel built for the very machine that it is built on names no C library, and is installed on any
    if python and not is_installable(
        file.replace("-linux_x86_64.whl", "-manylinux_2_5_x86_64.whl"), _python_series(python)
    ):
        yield (
            f"{file}: it is for {', '.join(sorted(map(str, tags)))}: must be for Python {python} "
            "on Linux x86_64, as manylinux_2_35 or older, or for any"
        )


def _python_series(python: str) -> tuple[int, int]:
    major, minor, *_ = map(int, python.split("."))
    return major, minor


def _python_problems(asked: str, python: str) -> Iterator[str]:
    """Why a plugin is not for its environment's Python by what it says of that."""
    try:
        if python and not SpecifierSet(asked).contains(python, prereleases=True):
            yield f"Requires-Python: it is for {asked}, and the environment has {python}"
    except InvalidSpecifier:
        yield f"Requires-Python: {asked!r:.200} is invalid: must be versions, such as >=3.10"


def _plugin_file(resolver: LockResolver, row: Artefact, folder: Path) -> Path:
    """The locked file, on this machine.

    Raises:
        DownloadUnavailable: it is not to be had, or is another one.
    """
    if given := downloads.find_local_file(resolver.from_dir, row):
        return given
    urls = {url: url for url in resolver.addresses(row)}
    return downloads.fetch_locked_file(resolver.session, row, urls, folder / row.file, "a plugin")


def missing_requirements(
    requires: Iterable[str], versions: Mapping[str, str], python: Mapping[str, str]
) -> Iterator[str]:
    """The packages that a plugin needs and its environment lacks, a line each: nothing is installed for it.

    Args:
        requires: Its requirements, as it writes them.
        versions: Distribution of the environment, as an index spells it -> its version.
        python: The Python that markers are evaluated for.
    """
    around = {**HOST, "extra": "", **python}
    for text in requires:
        try:
            asked = Requirement(text)
        except InvalidRequirement:
            yield f"Requires-Dist: it has an invalid requirement: {text!r:.200}"
            continue
        if asked.marker and not asked.marker.evaluate(around):
            continue
        there = versions.get(canonicalize_name(asked.name))
        if asked.url or asked.extras:
            yield f"Requires-Dist: it needs {asked}: must be a name and versions, without an extra or an address"
        elif there is None:
            yield f"Requires-Dist: it needs {asked}, which the environment lacks: a plugin cannot add packages"
        elif not asked.specifier.contains(there, prereleases=True):
            yield f"Requires-Dist: it needs {asked}, and the environment has {there}"
