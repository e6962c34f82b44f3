"""Rigs with containers, what is locked for them, and hosts that have some."""

from types import MappingProxyType
from typing import Any

from rigwright.containers.container_facts import ContainerFacts
from rigwright.containers.container_plan import ContainerPlan, ContainerRefusal, plan_containers
from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE, group_of
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.deb_package_groups import PackageGroup
from rigwright.model.rig import Rig
from rigwright.supply.lock import Artefact
from tests.unit.samples import changed_rig, sample_artefact, sample_card, sample_rig

SYSTEM = "debian-13"
FOUR = (
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
)
FIVE = ("containerd.io", "docker-buildx-plugin", "docker-ce", "docker-ce-cli", "docker-compose-plugin")
OWN_DOCKER = group_of(DOCKER_ARCHIVE, SYSTEM)
IN_DEBIAN = {"docker.io": "26.1.5+dfsg1-9+b9", "docker-cli": "26.1.5+dfsg1-9+b9", "podman": "5.4.2+ds1-2+b2"}
KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n-----END PGP PUBLIC KEY BLOCK-----\n"


def locked_deb(name: str, version: str, group: str) -> Artefact:
    """A locked package."""
    file = f"{name}_{version.rpartition(':')[2]}_amd64.deb"
    return sample_artefact(kind="deb", name=name, version=version, group=group, file=file, sources=[f"x:{file}"])


def toolkit_group(version: str = "1.20.0") -> PackageGroup:
    """The four packages."""
    return PackageGroup(
        TOOLKIT_ARCHIVE, version, {name: locked_deb(name, f"{version}-1", TOOLKIT_ARCHIVE) for name in FOUR}, KEY
    )


def docker_group(version: str = "28.5.2") -> PackageGroup:
    """Docker's own five."""
    five = {name: locked_deb(name, f"5:{version}-1~debian.13~trixie", OWN_DOCKER) for name in FIVE}
    return PackageGroup(OWN_DOCKER, version, five, KEY)


def container_rig(
    *groups: PackageGroup, cards: bool = True, mirrors: dict[str, Any] | None = None, **containers: Any
) -> Rig:
    """One with cards, and Docker unless it says otherwise."""
    made = sample_rig(cards=(sample_card("8.6"),) if cards else (), mirrors=mirrors or {})
    keys = ContainersEntry.model_validate({"engines": ("docker",), **containers})
    return changed_rig(made, containers=keys, container_groups={one.name: one for one in groups or (toolkit_group(),)})


def container_facts(*groups: PackageGroup, **changes: Any) -> ContainerFacts:
    """One of Debian 13, on which some groups are installed, and packages by name."""
    there = {name: one.version for group in groups for name, one in group.packages.items()}
    values = {
        "packages": MappingProxyType(there | changes.pop("packages", {})),
        "candidates": MappingProxyType(IN_DEBIAN),
    }
    return ContainerFacts("debian", "13", **{**values, **changes})


def plan_for_host(one: Rig, facts: ContainerFacts) -> ContainerPlan:
    """Its plan."""
    found = plan_containers(
        one.roots, one.cards, one.containers, one.container_supply, one.bundle, one.bundle_folder, facts
    )
    assert isinstance(found, ContainerPlan), found
    return found


def refusal_reasons(one: Rig, facts: ContainerFacts) -> tuple[str, ...]:
    """The reasons of its refusal."""
    found = plan_containers(
        one.roots, one.cards, one.containers, one.container_supply, one.bundle, one.bundle_folder, facts
    )
    assert isinstance(found, ContainerRefusal), found
    return found.reasons
