"""Locked packages for containers, of a rig and in a bundle."""

from __future__ import annotations

from rigwright.containers.container_facts import COMMAND, DISTRIBUTION_DOCKER, PODMAN
from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, group_of
from rigwright.model.containers.container_supply import ContainerSupply
from rigwright.model.containers.entry import ContainersEntry


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
