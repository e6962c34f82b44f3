"""Facts about a host's containers before a deploy: the probe's answer as a typed value."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import MappingProxyType

from rigwright.apt_transactions import SourceFile
from rigwright.containers import daemon_json
from rigwright.host.package_states import PACKAGE_SCHEMA, read_package_states
from rigwright.host.script_output import (
    Schema,
    apt_failure,
    file_name,
    free_text,
    octal,
    one_of,
    optional,
    parse_output,
    path,
    text,
    tolerant,
    word,
    yes_or_no,
)
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.archive_tables import CDI_SPEC as CDI_SPEC
from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE
from rigwright.model.containers.archive_tables import REFRESH_UNIT as REFRESH_UNIT
from rigwright.model.containers.container_supply import ContainerSupply
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.deb_package_groups import PackageGroup
from rigwright.model.inventory_feature import FactSource
from rigwright.model.roots import Roots
from rigwright.nvidia.value_parsers import maybe, package, version
from rigwright.render import render

# Docker's packages by their names in distributions, and podman's.
DISTRIBUTION_DOCKER, COMMAND, PODMAN = "docker.io", "docker-cli", "podman"
SPECS = ("/etc/cdi", "/run/cdi")
REFRESH_PATH = "nvidia-cdi-refresh.path"
IN_FORCE = "/run/rigwright-docker"
SOCKET = "/run/docker.sock"
MOST = 200  # containers that are named


@dataclass(frozen=True)
class ContainerFacts:
    """One host, as found."""

    os_id: str
    os_version: str
    packages: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Installed package -> version, of those that the tables name."""
    candidates: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Package -> the version that apt would install."""
    half: tuple[str, ...] = ()
    """Packages whose installation was begun and not ended."""
    held: frozenset[str] = frozenset()
    recorded: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Package -> version of those that we have installed last."""
    kept: tuple[tuple[str, str], ...] = ()
    """(group, version) of package files that are kept."""
    sources: tuple[SourceFile, ...] = ()
    options: str | None = None
    """Docker's daemon.json; None without one."""
    mode: int = 0o644
    """That file's."""
    odd: str = ""
    """The kind of an object that is no file: a link, a folder and so on."""
    record: str = ""
    """Rigwright's record of that."""
    found: str | None = None
    """The daemon.json before us; None where there was none."""
    docker_runs: bool = False
    program: str = ""
    """The program of the daemon that runs; empty where none does."""
    arguments: tuple[str, ...] = ()
    """The arguments that it was started with."""
    snap: bool = False
    """Whether there is a Docker that is a snap."""
    in_force: str | None = None
    """The daemon.json that the running daemon has read, empty for none; None if unknown."""
    live_restore: bool = False
    """Whether containers stay when that daemon ends; the one that is started then has to be told so, too."""
    containers: tuple[str, ...] = ()
    """Names of those that run on Docker."""
    asked: bool = True
    """Whether the daemon that runs has said which those are."""
    stale: tuple[str, ...] = ()
    """The faults of the spec of the cards, in the host's words; empty where it names them as they are."""
    refresh: tuple[tuple[str, str], ...] = ()
    """(unit, "enabled", or how else it is) of those that write specs."""
    foreign_specs: tuple[str, ...] = ()
    """Specs of NVIDIA's cards that another program or person has written."""
    ours: bool = False
    """Whether a deploy has brought containers here."""
    apt_failure: str = ""
    """Why apt-cache names no candidates; empty where it does."""

    @property
    def system(self) -> str:
        """Distribution and release, such as debian-12."""
        return f"{self.os_id}-{self.os_version}"

    @property
    def has_running_containers(self) -> bool:
        """Whether containers of other users run on Docker, or may."""
        return self.docker_runs and (bool(self.containers) or not self.asked)


SCHEMA: Schema = {
    **PACKAGE_SCHEMA,
    "os_id": (word,),
    "os_version": (maybe,),
    "candidate": (package, version),
    "apt_failure": (text, text),
    "recorded": (package, version),
    "kept": (tolerant(file_name), tolerant(file_name)),
    "source": (path, text),
    "options": (text,),
    "mode": (octal,),
    "odd": (one_of("a link", "no file"),),
    "record": (text,),
    "found": (text,),
    "docker": (yes_or_no,),
    "program": (tolerant(path, "?"),),
    "argument": (free_text,),
    "snap": (yes_or_no,),
    "in_force": (text,),
    "containers": (text,),
    "info": (text,),
    "stale": (free_text,),
    "refresh": (word, optional(word, "none")),
    "foreign_spec": (tolerant(path),),
    "ours": (yes_or_no,),
}


def store_folder(roots: Roots) -> str:
    """The folder with package files that are kept, and lists of what is installed, held, set and moved away."""
    return f"{roots.state}/containers"


def relevant_packages(container_supply: ContainerSupply) -> tuple[str, ...]:
    """The packages that the choice has to know of."""
    known = container_supply.tables
    found = [DISTRIBUTION_DOCKER, COMMAND, PODMAN]
    for one in known.archives.values():
        found += [*one.packages, *one.replaces]
    return tuple(dict.fromkeys(found))


def render_probe(
    roots: Roots, cards: tuple[Card, ...], containers: ContainersEntry | None, container_supply: ContainerSupply
) -> str:
    """The probe of a rig's host; its output is for `parse`."""
    return render(
        "probe/containers.sh.j2",
        store=store_folder(roots),
        packages=relevant_packages(container_supply),
        candidates=(DISTRIBUTION_DOCKER, COMMAND, PODMAN),
        daemon_json=daemon_json.PATH,
        most=daemon_json.LARGEST,
        in_force=IN_FORCE,
        socket=SOCKET,
        refresh=(REFRESH_UNIT, REFRESH_PATH),
        spec=CDI_SPEC,
        specs=SPECS,
        cards=bool(cards and containers),
    )


def parse(output: Iterable[str]) -> ContainerFacts:
    """Read what the probe has printed.

    Raises:
        ValueError: it is not what a host can tell, or something is missing.
    """
    told = parse_output(output, SCHEMA)
    states = read_package_states(told)
    containers = _parse_containers(told.all("containers"))
    return ContainerFacts(
        os_id=told.one("os_id"),
        os_version=told.one("os_version"),
        packages=states.versions,
        candidates=MappingProxyType(dict(told.many("candidate"))),
        half=states.half,
        held=frozenset(states.held),
        apt_failure=apt_failure(told),
        recorded=MappingProxyType(dict(told.many("recorded"))),
        kept=tuple((group, kept) for group, kept in told.many("kept") if group and kept),
        sources=tuple(SourceFile(*row) for row in told.many("source")),
        options=next(iter(told.all("options")), None),
        mode=next(iter(told.all("mode")), 0o644),
        odd=next(iter(told.all("odd")), ""),
        record=next(iter(told.all("record")), ""),
        found=next(iter(told.all("found")), None),
        docker_runs=told.one("docker"),
        program=next(iter(told.all("program")), ""),
        arguments=tuple(told.all("argument")),
        snap=any(told.all("snap")),
        in_force=next(iter(told.all("in_force")), None),
        live_restore=_has_live_restore(told.all("info")),
        containers=containers or (),
        asked=containers is not None or not told.one("docker"),
        stale=tuple(told.all("stale")),
        refresh=tuple(told.many("refresh")),
        foreign_specs=tuple(filter(None, told.all("foreign_spec"))),
        ours=told.one("ours"),
    )


def _parse_containers(answers: list[str]) -> tuple[str, ...] | None:
    """The names in Docker's answer to GET /containers/json; None for an invalid answer."""
    try:
        rows = json.loads(answers[0])
        found = [(row.get("Names") or [row["Id"]])[0] for row in rows]
        return tuple(free_text(str(name)).lstrip("/") for name in found[:MOST])
    except (IndexError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _has_live_restore(answers: list[str]) -> bool:
    """The relevant part of its answer to GET /info."""
    try:
        return json.loads(answers[0]).get("LiveRestoreEnabled") is True
    except (IndexError, ValueError, AttributeError, RecursionError):
        return False


SOURCES = "/etc/apt/sources.list.d/rigwright-{}.sources"


def source_path(group: PackageGroup) -> str:
    """The file of apt's sources that names a group's archive."""
    return SOURCES.format(TOOLKIT_ARCHIVE if group.name == TOOLKIT_ARCHIVE else DOCKER_ARCHIVE)


CONTAINER_FACTS = FactSource(
    "containers",
    "containers/probe.sh.j2",
    lambda rig: {"containers": f"{rig.roots.state}/containers"},
    {"containers_ours": (yes_or_no,)},
    lambda output: {"containers_ours": output.one("containers_ours")},
)
