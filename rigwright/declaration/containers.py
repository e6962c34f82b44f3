"""What a rig's containers need of the lock, found or refused."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping

from rigwright.engines import kind_of
from rigwright.model.answers import complaint
from rigwright.model.catalog import Catalog
from rigwright.model.containers.tables import DOCKER, TOOLKIT, ContainerTables, KnownArchive, group_of
from rigwright.model.debs.group import Group, group
from rigwright.model.entry import RigEntry
from rigwright.model.instance import Instance
from rigwright.supply.inputs import is_stand_in
from rigwright.supply.lock import Lock


def containers_of(
    entry: RigEntry,
    catalog: Catalog,
    lock: Lock,
    file: str,
    refuse: Callable[[str, str], None],
    known: ContainerTables,
) -> dict[str, Group]:
    """The locked packages that an entry's containers may need: the toolkit, and each system's Docker.

    Args:
        entry: The entry.
        catalog: What is asked for.
        lock: What is locked.
        file: The inventory, for messages.
        refuse: Is told a key and what is wrong with it.
        known: Which packages of each archive there are to install: apt installs all that a group has.
    """
    keys = entry.containers
    if keys is None:
        return {}
    names = {name for name in (*catalog.inputs, *lock.groups) if name.startswith(f"{DOCKER}-")}
    wanted = sorted(name for name in names if "docker" in keys.engines and keys.docker != "distribution")
    if entry.cards:
        wanted.append(TOOLKIT)
    found = {}
    for name in wanted:
        one = group(lock, name)
        if name == TOOLKIT and one is None and name not in catalog.inputs:
            refuse(
                "containers",
                f"no container toolkit is locked, which containers need to find cards: add [inputs.{TOOLKIT}] with "
                f'kind = "deb", sources = ["{TOOLKIT}:stable/deb/amd64"] and the exact version, such as '
                f'"1.20.0", into catalog/ next to the inventory, and run `rigwright lock {shlex.quote(file)}`',
            )
        elif wrong := complaint(name, "deb", catalog.inputs, lock, file):
            refuse("containers", wrong)
        elif one and (surplus := _surplus(lock, one, _archive(known, name))):
            refuse(
                "containers",
                f"{name} is locked with {', '.join(surplus)}, which the table of its archive does not install: run "
                f"`rigwright lock {shlex.quote(file)}`",
            )
        elif one:
            found[name] = one
    return found


def _surplus(lock: Lock, one: Group, archive: KnownArchive) -> list[str]:
    """Packages of a group beyond its archive's table; none while the group is only being locked."""
    return [] if is_stand_in(lock.rows(one.name)) else sorted(set(one.packages) - set(archive.packages))


def _archive(known: ContainerTables, group_name: str) -> KnownArchive:
    return known.toolkit if group_name == TOOLKIT else known.docker


def refuse_uncontained(instances: Iterable[Instance], entry: RigEntry, refuse: Callable[[str, str], None]) -> None:
    """Refuse instances whose containers would not find their cards: nothing brings the spec that names those.

    Args:
        instances: All of the entry's.
        entry: The entry.
        refuse: Is told a key and what is wrong with it.
    """
    for one in instances:
        if one.cards and kind_of(one).contained_by and not entry.containers:
            refuse(
                f"instances.{one.name}.variant",
                f"{one.variant_name}: runs in a container, which needs the container toolkit to find its cards: "
                f'declare "containers": {json.dumps({"engines": [kind_of(one).contained_by]})}, or "docker" if the '
                "release's podman is older than 5.1",
            )


def groups_for(groups: Mapping[str, Group], system: str) -> tuple[Group, ...]:
    """Those of a rig's locked packages that a host may have.

    Args:
        groups: The rig's, by the lock's names.
        system: The host's, such as debian-13.
    """
    return tuple(groups[name] for name in (TOOLKIT, group_of(DOCKER, system)) if name in groups)
