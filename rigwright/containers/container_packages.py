"""The parts of the lock that a rig's containers need, found or refused."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from rigwright.containers.container_facts import COMMAND, DISTRIBUTION_DOCKER, PODMAN
from rigwright.model.containers.archive_tables import (
    DOCKER_ARCHIVE,
    TOOLKIT_ARCHIVE,
    ContainerTables,
    KnownArchive,
    group_of,
    load_container_tables,
)
from rigwright.model.containers.container_supply import ContainerSupply
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.deb_package_groups import PackageGroup, locked_group
from rigwright.model.inventory_feature import RELEASE, Feature, Fields, RigDraft
from rigwright.model.lock_coverage import describe_uncovered
from rigwright.supply.lock import Lock
from rigwright.supply.lock_inputs import is_stand_in


def _resolve_containers(draft: RigDraft) -> Fields:
    tables = load_container_tables(draft.folder)
    groups = _select_groups(draft, tables)
    draft.package_groups += groups
    draft.release_artefacts.append(
        lambda system: (row for one in groups_for(groups, system) for row in one.packages.values())
    )
    return {"containers": draft.entry.containers, "container_supply": ContainerSupply(tables, groups)}


def _select_groups(draft: RigDraft, known: ContainerTables) -> dict[str, PackageGroup]:
    """The locked packages that an entry's containers may need: the toolkit, and each system's Docker.

    Args:
        draft: The entry.
        known: Which packages of each archive there are to install: apt installs all that a group has.
    """
    entry, catalog, lock, file, refuse = draft.entry, draft.catalog, draft.lock, draft.file, draft.refuse
    keys = entry.containers
    if keys is None:
        return {}
    names = {name for name in (*catalog.inputs, *lock.groups) if name.startswith(f"{DOCKER_ARCHIVE}-")}
    wanted = sorted(name for name in names if "docker" in keys.engines and keys.docker != "distribution")
    if entry.cards:
        wanted.append(TOOLKIT_ARCHIVE)
    found = {}
    for name in wanted:
        one = locked_group(lock, name)
        if name == TOOLKIT_ARCHIVE and one is None and name not in catalog.inputs:
            refuse(
                "containers",
                f"no container toolkit is locked, which containers need to find cards: add "
                f"[inputs.{TOOLKIT_ARCHIVE}] with "
                f'kind = "deb", sources = ["{TOOLKIT_ARCHIVE}:stable/deb/amd64"] and the exact version, such as '
                f'"1.20.0", into catalog/ next to the inventory, and run `rigwright lock {shlex.quote(file)}`',
            )
        elif wrong := describe_uncovered(name, "deb", catalog.inputs, lock, file):
            refuse("containers", wrong)
        elif one and (surplus := _find_surplus_packages(lock, one, _archive(known, name))):
            refuse(
                "containers",
                f"{name} is locked with {', '.join(surplus)}, which the table of its archive does not install: run "
                f"`rigwright lock {shlex.quote(file)}`",
            )
        elif one:
            found[name] = one
    return found


def _find_surplus_packages(lock: Lock, one: PackageGroup, archive: KnownArchive) -> list[str]:
    """Packages of a group beyond its archive's table; none while the group is only being locked."""
    return [] if is_stand_in(lock.rows(one.name)) else sorted(set(one.packages) - set(archive.packages))


def _archive(known: ContainerTables, group_name: str) -> KnownArchive:
    return known.toolkit if group_name == TOOLKIT_ARCHIVE else known.docker


def groups_for(groups: Mapping[str, PackageGroup], system: str) -> tuple[PackageGroup, ...]:
    """Those of a rig's locked packages that a host may have.

    Args:
        groups: The rig's, by the lock's names.
        system: The host's, such as debian-13.
    """
    return tuple(groups[name] for name in (TOOLKIT_ARCHIVE, group_of(DOCKER_ARCHIVE, system)) if name in groups)


def distribution_packages(
    containers: ContainersEntry | None, container_supply: ContainerSupply, system: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The packages that a host of a system, such as debian-13, may need, and more that some releases lack."""
    keys = containers
    if keys is None:
        return (), ()
    podman = (PODMAN,) if "podman" in keys.engines else ()
    locked = group_of(DOCKER_ARCHIVE, system) in container_supply.groups
    if "docker" not in keys.engines or keys.docker == "docker" or locked:
        return podman, ()
    return (DISTRIBUTION_DOCKER, *podman), (COMMAND,)


CONTAINERS = Feature(
    "containers", resolve=_resolve_containers, root_groups=(TOOLKIT_ARCHIVE, group_of(DOCKER_ARCHIVE, RELEASE))
)
