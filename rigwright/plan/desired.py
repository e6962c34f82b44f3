"""What a rig comes to on one host: pure functions of rig, lock and host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from rigwright.containers.found import ContainerFacts
from rigwright.containers.plan import ContainerPlan
from rigwright.delivery.tools import Tools
from rigwright.delivery.tools import tools as tools_of
from rigwright.engines import kinds
from rigwright.engines.kind import InstallingKind
from rigwright.envs.env import environment
from rigwright.model.facts import HostFacts
from rigwright.model.installation import Installation
from rigwright.model.nvidia.toolkit import Toolkit
from rigwright.model.rig import Instance, Rig
from rigwright.nvidia.cards.placement import nearest_node
from rigwright.nvidia.cuda.toolkit import toolkit
from rigwright.nvidia.driver.choice import DriverPlan
from rigwright.nvidia.driver.found import DriverFacts
from rigwright.serving.generation import Generation, generation


@dataclass(frozen=True)
class Desired:
    """What a rig comes to on one host."""

    rig: Rig
    facts: HostFacts
    tools: Tools
    toolkit: Toolkit | None
    """The CUDA toolkit; None where nothing is made with one."""
    installations: Mapping[str, Installation]
    """Engine or environment -> what it is there."""
    generation: Generation
    driver: tuple[DriverFacts, DriverPlan] | None = None
    """The host's, and the one that it is to have; None where the driver is the operator's, or refused."""
    containers: tuple[ContainerFacts, ContainerPlan] | None = None
    """What its host has for containers, and what it is to have; None where none are declared, or refused."""


def desired(
    rig: Rig,
    facts: HostFacts,
    driver: tuple[DriverFacts, DriverPlan] | None = None,
    containers: tuple[ContainerFacts, ContainerPlan] | None = None,
) -> Desired:
    """What a rig comes to on a host.

    Args:
        rig: What the host is to be.
        facts: The host.
        driver: As in `Desired`.
        containers: As in `Desired`.
    """
    tools = tools_of(rig, facts)
    made: dict[str, Installation] = {one.name: environment(rig, one, facts) for one in rig.envs}
    for name, engine in rig.engines.items():
        kind = cast("InstallingKind", kinds()[engine.kind])
        made[name] = kind.installation(rig, name, engine, facts)
    nodes = {one.name: node_of(facts, one) for one in rig.instances}
    return Desired(
        rig, facts, tools, toolkit(rig, facts), made, generation(rig, made, tools, nodes), driver, containers
    )


def node_of(facts: HostFacts, instance: Instance) -> int | None:
    """The NUMA node whose processors and memory an instance has; None where it has all."""
    return nearest_node(facts, instance.cards) if instance.cards else None
