"""The plan for containers on a host, and its summary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType

from rigwright.containers import daemon_json, dockerd_flags
from rigwright.containers.container_facts import COMMAND, DISTRIBUTION_DOCKER, PODMAN, ContainerFacts, store_folder
from rigwright.containers.daemon_json import DaemonRecord, Options, UnreadableDaemonConfig
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE, ContainerEngine, group_of
from rigwright.model.containers.container_supply import ContainerSupply
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.deb_package_groups import PackageGroup, find_version_differences, leading_numbers, upstream_version
from rigwright.model.roots import Roots
from rigwright.supply.bundle import Bundle

# Docker's packages that are a Docker: a distribution's, and its own.
DAEMONS = (DISTRIBUTION_DOCKER, "docker-ce")


@dataclass(frozen=True)
class ContainerPlan:
    """The target state of a host's containers."""

    groups: tuple[PackageGroup, ...]
    """Locked packages: the toolkit, and Docker's own."""
    distribution: tuple[str, ...]
    """Packages of the distribution's archive."""
    removed: tuple[str, ...]
    """Packages that go with those that come."""
    leftovers: tuple[str, ...]
    """Files of apt's sources that name the same archives, and go."""
    options: Options | None
    """The target daemon.json; None where it is left as it is."""
    record: DaemonRecord
    """The target record of it."""
    step: str
    """The step by which the daemon reads that: `reload`, `restart` or nothing."""
    restarting: str
    """Why the daemon is started again; empty where it is not."""
    notes: tuple[str, ...]

    @property
    def packages(self) -> tuple[str, ...]:
        """All that has to be there."""
        return (*self.distribution, *(name for one in self.groups for name in one.packages))

    @property
    def holds(self) -> tuple[str, ...]:
        """The packages that apt is to keep as they are."""
        return tuple(sorted(name for one in self.groups for name in one.packages))


@dataclass(frozen=True)
class ContainerRefusal:
    """A host cannot have them."""

    reasons: tuple[str, ...]
    """All of them, each with what to do."""


def plan_containers(
    roots: Roots,
    cards: tuple[Card, ...],
    containers: ContainersEntry | None,
    container_supply: ContainerSupply,
    bundle: Bundle | None,
    bundle_folder: str | None,
    facts: ContainerFacts,
) -> ContainerPlan | ContainerRefusal:
    """Plan a rig's containers.

    Args:
        roots: Directories on the host.
        cards: The declared cards by GPU index.
        containers: The declared container engines.
        container_supply: The packages of containers.
        bundle: The bundle, if the rig has one.
        bundle_folder: The folder of the bundle on the operator's machine.
        facts: Its host.
    """
    if bundle:  # other candidates of its apt are not asked
        bundled = bundle.packages(facts.system).versions
        facts = replace(facts, candidates=MappingProxyType(bundled))
    refuse: list[str] = []
    notes: list[str] = []
    known, keys = container_supply.tables, containers
    engines = keys.engines if keys else ()
    groups: list[PackageGroup] = []
    distribution: list[str] = []
    if cards and (toolkit := container_supply.groups.get(TOOLKIT_ARCHIVE)):
        groups.append(toolkit)
    if "docker" in engines:
        one, names = _docker(containers, container_supply, bundle, facts, refuse)
        groups += [one] if one else []
        distribution += names
    if "podman" in engines:
        distribution += _podman(container_supply, bundle, facts, refuse)
    refuse += _find_unbundled(bundle, facts, groups)
    removed = [
        name
        for one in groups
        for name in (known.toolkit if one.name == TOOLKIT_ARCHIVE else known.docker).replaces
        if name in facts.packages
    ]
    leftovers = _find_leftovers(container_supply, bundle_folder, facts, groups, refuse)
    made, record, step, why = _daemon(roots, cards, containers, facts, engines, groups, refuse)
    notes += [
        f"{path} describes the cards too, and is not managed by Rigwright: remove it" for path in facts.foreign_specs
    ]
    notes += [
        f"{path} names an archive managed by Rigwright: it is set aside, and `remove` restores it" for path in leftovers
    ]
    if refuse:
        return ContainerRefusal(tuple(refuse))
    return ContainerPlan(
        tuple(groups), tuple(distribution), tuple(removed), leftovers, made, record, step, why, tuple(notes)
    )


def find_missing_packages(one: ContainerPlan, facts: ContainerFacts) -> list[str]:
    """The packages that a host lacks, in words; empty where it has all."""
    found = [f"{name} is not installed" for name in one.distribution if name not in facts.packages]
    for group in one.groups:
        found += find_version_differences(group, dict(facts.packages))
    found += [f"{name} is still installed" for name in one.removed]
    return found + [f"the installation of {name} was not completed" for name in facts.half]


def find_unheld_packages(one: ContainerPlan, facts: ContainerFacts) -> list[str]:
    """The packages that apt does not hold, in words."""
    return [f"{name} is not held" for name in one.holds if name not in facts.held]


def _docker(
    containers: ContainersEntry | None,
    container_supply: ContainerSupply,
    bundle: Bundle | None,
    facts: ContainerFacts,
    refuse: list[str],
) -> tuple[PackageGroup | None, list[str]]:
    """The locked packages of Docker that are to be there, or else names of the distribution's."""
    least, keys = container_supply.tables.minimum_version("docker"), containers
    source = keys.docker if keys else None
    locked = container_supply.groups.get(group_of(DOCKER_ARCHIVE, facts.system))
    there = next((name for name in DAEMONS if name in facts.packages), "")
    if source == "docker" and locked is None:
        refuse.append(f"no Docker is locked for {facts.system}: {_docker_input_hint(facts.system)}")
        return None, []
    if locked and source != "distribution" and (there != DISTRIBUTION_DOCKER or source == "docker"):
        if _is_at_least(locked.version, least):
            return locked, []
        refuse.append(f"Docker {locked.version} is locked, but CDI needs {least}: lock a newer one")
        return None, []
    if there == "docker-ce" and source is None:
        if not _is_at_least(facts.packages[there], least):
            refuse.append(
                f"{_describe_outdated(there, facts.packages[there], least)}: {_docker_input_hint(facts.system)}"
            )
        return None, []  # the operator's own, new enough
    if there == "docker-ce":
        refuse.append(
            'docker-ce is installed, but containers.docker is "distribution": remove docker-ce, docker-ce-cli '
            "and containerd.io, or omit that key"
        )
        return None, []
    version = facts.packages.get(DISTRIBUTION_DOCKER) or facts.candidates.get(DISTRIBUTION_DOCKER, "")
    if not version:
        refuse.append(_describe_unavailable(bundle, facts, DISTRIBUTION_DOCKER, _docker_input_hint(facts.system)))
    elif not _is_at_least(version, least):
        if locked and source is None:
            return locked, []
        refuse.append(f"{_describe_outdated(DISTRIBUTION_DOCKER, version, least)}: {_docker_input_hint(facts.system)}")
    if "podman-docker" in facts.packages:
        refuse.append(f"podman-docker is installed, which conflicts with {DISTRIBUTION_DOCKER}: remove it")
    # in newer releases its command is a package of its own
    command = [COMMAND] if COMMAND in facts.candidates or COMMAND in facts.packages else []
    return None, [DISTRIBUTION_DOCKER, *command]


def _podman(
    container_supply: ContainerSupply, bundle: Bundle | None, facts: ContainerFacts, refuse: list[str]
) -> list[str]:
    least = container_supply.tables.minimum_version("podman")
    version = facts.packages.get(PODMAN) or facts.candidates.get(PODMAN, "")
    if not version:
        refuse.append(_describe_unavailable(bundle, facts, PODMAN, "remove it from containers.engines"))
    elif not _is_at_least(version, least):
        refuse.append(
            f"{_describe_outdated(PODMAN, version, least)}: remove it from containers.engines, or install a "
            f"newer release of "
            "the distribution"
        )
    return [PODMAN]


def _describe_unavailable(bundle: Bundle | None, facts: ContainerFacts, name: str, instead: str) -> str:
    if bundle:
        return f"{bundle.folder} has no {name} for {facts.system}: {_bundle_hint(facts.system)}"
    if facts.apt_failure:
        unknown = f"it is unknown whether an archive has {name}"
        return f"{unknown}, for the host's {facts.apt_failure}: repair the sources of apt"
    return f"no archive of {facts.system} has {name}: {instead}"


def _find_unbundled(bundle: Bundle | None, facts: ContainerFacts, groups: list[PackageGroup]) -> list[str]:
    """Which locked packages would have to come, and are not in the rig's bundle with all that they need."""
    if bundle is None:
        return []
    there = facts.system in bundle.systems
    return [
        f"{bundle.folder} has no {one.name} {one.version} for {facts.system}: {_bundle_hint(facts.system)}"
        for one in groups
        if find_version_differences(one, dict(facts.packages))
        and not (there and all(map(bundle.find, one.packages.values())))
    ]


def _find_leftovers(
    container_supply: ContainerSupply,
    bundle_folder: str | None,
    facts: ContainerFacts,
    groups: list[PackageGroup],
    refuse: list[str],
) -> tuple[str, ...]:
    """Files of apt's sources that name an archive of ours a second time: apt refuses two that differ in their key."""
    from rigwright.containers.container_facts import source_path

    found: list[str] = []
    if bundle_folder:  # then ours is not among the sources
        return ()
    for group in groups:
        known = container_supply.tables.toolkit if group.name == TOOLKIT_ARCHIVE else container_supply.tables.docker
        for file in facts.sources:
            named, others = file.match_origins(known.origins)
            if not named or file.path == source_path(group):
                continue
            if others:
                refuse.append(
                    f"{file.path} names {known.origins[0]} and other archives: remove that line, or apt reads the same "
                    "archive twice with two keys"
                )
            else:
                found.append(file.path)
    return tuple(dict.fromkeys(found))


def _daemon(
    roots: Roots,
    cards: tuple[Card, ...],
    containers: ContainersEntry | None,
    facts: ContainerFacts,
    engines: tuple[ContainerEngine, ...],
    groups: list[PackageGroup],
    refuse: list[str],
) -> tuple[Options | None, DaemonRecord, str, str]:
    """The target daemon.json, its record, the step by which the daemon reads it, and why it restarts."""
    before = daemon_json.parse_record(facts.record) if facts.record else DaemonRecord()
    ours = daemon_json.required_options(cards, containers) if "docker" in engines else {}
    if before is None:
        refuse.append(
            f"{store_folder(roots)}/daemon.json, which lists the managed Docker options, cannot be read: remove it, "
            f"and all options in {daemon_json.PATH} count as not managed"
        )
        return None, DaemonRecord(), "", ""
    try:
        if facts.odd and (ours or before.set):
            raise UnreadableDaemonConfig(f"is {facts.odd}")
        there = daemon_json.parse_options(facts.options) if ours or before.set else {}
    except UnreadableDaemonConfig as error:
        refuse.append(f"{daemon_json.PATH} {error}: correct it, or remove it")
        return None, before, "", ""
    if "docker" in engines:
        refuse += dockerd_flags.find_daemon_problems(cards, facts, there, ours)
    if not ours and not before.set:
        return None, before, "", ""
    made, record = daemon_json.merge_options(there, ours, before, facts.options is None)
    step = (
        daemon_json.choose_reload_action(_read_options(facts.in_force), made, before.names | record.names)
        if facts.docker_runs
        else ""
    )
    why = "its options have changed" if step == "restart" else ""
    # a daemon that is to keep them reads that before it ends
    ends = facts.has_running_containers and not dockerd_flags.is_keeping_containers(facts, made)
    moved = [
        group
        for group in groups
        if group.name != TOOLKIT_ARCHIVE and find_version_differences(group, dict(facts.packages))
    ]
    if facts.docker_runs and moved:
        why, ends = (
            f"{moved[0].name} {moved[0].version} is installed",
            ends or dockerd_flags.is_ending_containers(facts, there),
        )
    if why and ends and not (containers and containers.restart):
        what = (
            f"{', '.join(facts.containers)} are running"
            if facts.containers
            else "it does not report its running containers"
        )
        refuse.append(
            f"the Docker daemon needs a restart ({why}), and {what}: stop them, declare containers.restart, or "
            f'first deploy only {{"live-restore": True}} in containers.daemon, which keeps them running'
        )
    return made, record, step, why


def _read_options(text: str | None) -> Options | None:
    """The options that a daemon has; None if unknown."""
    try:
        return None if text is None else daemon_json.parse_options(text)
    except UnreadableDaemonConfig:
        return None


def _is_at_least(version: str, least: str) -> bool:
    return leading_numbers(version) >= leading_numbers(least)


def _describe_outdated(name: str, version: str, least: str) -> str:
    return f"{name} {upstream_version(version)} is too old: CDI needs {least} or later"


def _bundle_hint(system: str) -> str:
    return f"recreate it with `rigwright bundle --system {system}`"


def _docker_input_hint(system: str) -> str:
    return (
        f'add [inputs."{group_of(DOCKER_ARCHIVE, system)}"] with kind = "deb", sources = '
        f'["docker:{system.partition("-")[0]}"] and the exact version into catalog/ next to the inventory, '
        "and run `rigwright lock`"
    )


def describe_container_changes(facts: ContainerFacts, plan: ContainerPlan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The changes that it would make, each with its reason.

    Args:
        facts: The host.
        plan: Its own.
    """
    named = [f"{one.name} {one.version}" for one in plan.groups] + list(plan.distribution)
    if missing := find_missing_packages(plan, facts):
        yield f"install {', '.join(named)}", tuple(missing)
    elif loose := find_unheld_packages(plan, facts):
        yield f"hold {', '.join(named)}", tuple(loose)
    if plan.leftovers:
        yield (
            f"set {', '.join(plan.leftovers)} aside",
            ("they name the same archive with another key",),
        )
    if plan.options is not None and (facts.options is None or not _is_unchanged(facts.options, plan)):
        yield f"merge options into {daemon_json.PATH}", ("they differ from the declared ones",)
    if plan.step or plan.restarting:
        how = "reload the Docker daemon" if plan.step == "reload" else "restart the Docker daemon"
        yield how, (plan.restarting or "its options have changed",)
    idle = tuple(f"{unit} is {state}" for unit, state in facts.refresh if state != "enabled")
    if any(one.name == TOOLKIT_ARCHIVE for one in plan.groups) and (facts.stale or idle) and not missing:
        yield "write the CDI spec", (*facts.stale, *idle)


def _is_unchanged(text: str, plan: ContainerPlan) -> bool:
    try:
        return daemon_json.parse_options(text) == plan.options
    except UnreadableDaemonConfig:
        return False
