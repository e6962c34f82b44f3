"""The components of a rig that advisories name: locked packages, engines, images, the driver, packages of its host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from packaging.utils import canonicalize_name

from rigwright.advisories.advisory_catalog import CONTAINER_TOOLKIT, DRIVER, LLAMA_CPP, MaintainedData
from rigwright.model.catalog_schema import Card
from rigwright.model.deb_package_groups import locked_version
from rigwright.model.instance import Instance, standalone_engines
from rigwright.model.nvidia_tables import DriverSupply, driver_version_of, locked_driver_version
from rigwright.model.rig import Rig
from rigwright.problems import format_count
from rigwright.supply.lock import Artefact, Lock
from rigwright.supply.root_programs import CUDA, GPU_EXPORTER, HUB_CLIENT, INSTALLERS, TOOLS

# Where llama.cpp's advisories place their ranges.
REPOSITORY = "github.com/ggml-org/llama.cpp"
# Source packages of a host that are read: a Debian desktop has some 1500, and the archive some 35,000.
MOST_PACKAGES = 50_000
# The output format of dpkg-query, one package a line (dpkg-query(1), --showformat).
QUERY = "${db:Status-Status}\\t${Package}\\t${source:Package}\\t${source:Version}\\t${Version}\\n"
_LINE = re.compile(
    r"([a-z-]{1,40})\t([a-z0-9][a-z0-9+.-]{0,99})\t([a-z0-9][a-z0-9+.-]{0,99})"
    r"\t([0-9A-Za-z.+~:-]{1,128})\t([0-9A-Za-z.+~:-]{1,128})"
)
_DRIVER_PACKAGE = re.compile(r"(?:lib)?nvidia-(?:kernel|driver|compute|utils|dkms|headless|modprobe)[a-z0-9.-]*")


@dataclass(frozen=True)
class Component:
    """One thing of a rig that an advisory may be about."""

    ecosystem: str
    """OSV's name of its index, such as `PyPI` or `Debian:12`; `GIT` for llama.cpp, empty for NVIDIA's own."""
    name: str
    version: str
    """Empty where nothing says it."""
    place: str
    """Where it is, for people: `environment vllm`, `host tools`, `packages of the host`."""
    instances: tuple[Instance, ...] = field(default=(), compare=False)
    """Those that run it."""

    @property
    def key(self) -> str:
        """As the maintained data name it."""
        return f"{self.ecosystem}:{self.name}" if self.ecosystem not in ("", "GIT") else self.name

    def __str__(self) -> str:
        return f"{self.name} {self.version or '(version unknown)'}"


@dataclass(frozen=True)
class Gap:
    """A part of a rig of which no data say which advisories cover it."""

    what: str
    why: str


@dataclass(frozen=True)
class HostPackage:
    """One installed package of a host, by its source package: advisories name those."""

    name: str
    source: str
    source_version: str
    version: str


def parse_packages(text: str) -> tuple[tuple[HostPackage, ...], int]:
    """The output of `dpkg-query --show --showformat=QUERY`: installed packages, and the number of unreadable lines."""
    found: list[HostPackage] = []
    unreadable = 0
    for line in text.splitlines():
        matched = _LINE.fullmatch(line)
        if matched is None or len(found) >= MOST_PACKAGES:
            unreadable += bool(line.strip())
        elif matched[1] == "installed":
            found.append(HostPackage(*matched.groups()[1:]))
    return tuple(found), unreadable


def is_locked(row: Artefact, lock: Lock) -> bool:
    """Whether a row is of the lock itself, not a stand-in for an input that is not locked yet."""
    return row in lock.rows(row.group or row.name)


def collect_components(rig: Rig, lock: Lock, data: MaintainedData) -> tuple[list[Component], list[Gap]]:
    """The locked components of a rig, by the names that advisories have for them, and components without such a name.

    Args:
        rig: The rig.
        lock: The inventory's lock; rows that a rig has beyond it are stand-ins and are no components.
        data: Maintained data, for the builds of llama.cpp.
    """
    found: list[Component] = []
    gaps: list[Gap] = []
    for env in rig.envs:
        users = tuple(one for one in rig.instances if one.env == env.name)
        found += _wheels(env.packages, f"environment {env.name}", lock, gaps, users)
        found += _wheels([one.row for one in env.plugins], f"plugins of {env.name}", lock, gaps, users)
        python = [row for row in env.python if is_locked(row, lock)]
        what = f"{format_count(len(python), 'conda package')} of environment {env.name}"
        if python:
            gaps.append(Gap(what, "OSV has no records of conda packages"))
        else:
            gaps.append(Gap(f"Python of environment {env.name}", "it is not locked"))
    groups = {TOOLS: rig.tools, CUDA: rig.toolkit.wheels, HUB_CLIENT: rig.hub_client, INSTALLERS: rig.installers}
    for name, rows in {**groups, GPU_EXPORTER: rig.gpu_exporter}.items():
        found += _wheels(rows, f"host tools ({name})", lock, gaps)
    found += _engines(rig.instances, rig.engine_artefacts, lock, data, gaps)
    found += _driver(rig.cards, rig.driver_supply, lock, gaps)
    for group, one in rig.container_supply.groups.items():
        rows = tuple(one.packages.values())
        if "toolkit" in group and all(is_locked(row, lock) for row in rows):
            found.append(Component("", CONTAINER_TOOLKIT, locked_version(group, rows), f"locked packages of {group}"))
        gaps.append(
            Gap(f"{format_count(len(one.packages), 'package')} of {group}", "no data name packages of this archive")
        )
    return list(dict.fromkeys(found)), list(dict.fromkeys(gaps))


def _wheels(
    rows: Iterable[Artefact], place: str, lock: Lock, gaps: list[Gap], users: tuple[Instance, ...] = ()
) -> Iterator[Component]:
    for row in rows:
        if row.kind not in ("wheel", "plugin"):
            continue
        if is_locked(row, lock):
            yield Component("PyPI", str(canonicalize_name(row.project)), row.version, place, users)
        else:
            gaps.append(Gap(f"{place}: {row.name}", "it is not locked"))


def _engines(
    instances: tuple[Instance, ...],
    engine_artefacts: Mapping[str, tuple[Artefact, ...]],
    lock: Lock,
    data: MaintainedData,
    gaps: list[Gap],
) -> Iterator[Component]:
    """Engines that are installed by themselves."""
    for name, engine in standalone_engines(instances).items():
        users = tuple(one for one in instances if one.engine_name == name and one.env is None)
        rows = engine_artefacts.get(name, ())
        commit = getattr(engine, "commit", None)
        for row in rows:
            if row.kind == "source" and is_locked(row, lock):
                yield Component("PyPI", str(canonicalize_name(row.project)), row.version, f"source of {name}", users)
                if isinstance(commit, str):
                    # a commit compares with no range: it only equals one that an advisory lists
                    version = f"b{data.builds[commit]}" if commit in data.builds else commit
                    yield Component("GIT", REPOSITORY, version, f"engine {name}", users)
                    yield Component("", LLAMA_CPP, version, f"engine {name}", users)
            elif row.kind == "wheel" and is_locked(row, lock):
                yield Component("PyPI", str(canonicalize_name(row.project)), row.version, f"wheel of {name}", users)
                if build := getattr(engine, "build", None):
                    yield Component("GIT", REPOSITORY, f"b{build}", f"engine {name}", users)
                    yield Component("", LLAMA_CPP, f"b{build}", f"engine {name}", users)
                gaps.append(Gap(f"{row.name} of engine {name}, except llama.cpp", "no data list its linked libraries"))
            elif row.kind in ("source", "wheel"):
                gaps.append(Gap(f"engine {name}", "it is not locked"))
        if serves := getattr(engine, "serves", None):
            # the catalogue says which engine is in the image, and no data say what else is
            yield Component("PyPI", str(serves), str(getattr(engine, "version", "")), f"image of {name}", users)
            gaps.append(Gap(f"image of engine {name}, except {serves}", "no data list the contents of this digest"))


def _driver(cards: tuple[Card, ...], driver_supply: DriverSupply, lock: Lock, gaps: list[Gap]) -> Iterator[Component]:
    if not cards:
        return
    versions = {
        system: locked_driver_version(rows)
        for system, rows in driver_supply.packages.items()
        if all(is_locked(row, lock) for row in rows)
    }
    for system, version in sorted(versions.items()):
        yield Component("", DRIVER, version, f"driver locked for {system}")
    if not versions:
        gaps.append(Gap("NVIDIA driver", "its version is not locked, and no host was asked"))


def collect_host_components(packages: Iterable[HostPackage], system: str, *, driver_known: bool) -> list[Component]:
    """The components of a host's installed packages.

    Args:
        packages: The installed packages.
        system: The host's release, such as debian-12.
        driver_known: Whether the driver's version is known by the lock.
    """
    name, _, release = system.partition("-")
    ecosystem = f"{name.capitalize()}:{release}"
    sources: set[tuple[str, str]] = set()
    drivers: set[str] = set()
    for one in packages:
        # signed kernels have a source package of their own, and advisories name the one that they are made of
        signed = one.source.startswith("linux-signed")
        sources.add(("linux", one.version) if signed else (one.source, one.source_version))
        if _DRIVER_PACKAGE.fullmatch(one.name) and (version := driver_version_of(one.version)):
            drivers.add(version)
    found = [Component(ecosystem, source, version, "packages of the host") for source, version in sorted(sources)]
    if not driver_known:
        found += [Component("", DRIVER, version, "driver of the host") for version in sorted(drivers)]
    return found
