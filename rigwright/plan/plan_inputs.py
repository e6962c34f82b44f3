"""What a rig comes to on one host: pure functions of rig, lock and host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from rigwright.containers.container_facts import ContainerFacts
from rigwright.containers.container_plan import ContainerPlan
from rigwright.delivery.tool_environments import ToolEnvironment, host_tools
from rigwright.engines import kinds
from rigwright.engines.kind import InstallingKind
from rigwright.envs.environment import plan_environment
from rigwright.model.facts import HostFacts
from rigwright.model.installation import Installation
from rigwright.model.instance import Instance, standalone_engines
from rigwright.model.nvidia.toolkit import Toolkit
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.placement import nearest_node
from rigwright.nvidia.cuda.toolkit import plan_toolkit
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.driver.driver_plan import DriverPlan
from rigwright.serving.generation import Generation, build_generation


@dataclass(frozen=True)
class TargetState:
    """What a rig comes to on one host."""

    rig: Rig
    facts: HostFacts
    tools: ToolEnvironment
    toolkit: Toolkit | None
    """The CUDA toolkit; None where nothing is made with one."""
    installations: Mapping[str, Installation]
    """Engine or environment -> what it is there."""
    generation: Generation
    driver: tuple[DriverFacts, DriverPlan] | None = None
    """The host's, and the one that it is to have; None where the driver is the operator's, or refused."""
    containers: tuple[ContainerFacts, ContainerPlan] | None = None
    """What its host has for containers, and what it is to have; None where none are declared, or refused."""


def build_target_state(
    rig: Rig,
    facts: HostFacts,
    driver: tuple[DriverFacts, DriverPlan] | None = None,
    containers: tuple[ContainerFacts, ContainerPlan] | None = None,
) -> TargetState:
    """What a rig comes to on a host.

    Args:
        rig: What the host is to be.
        facts: The host.
        driver: As in `TargetState`.
        containers: As in `TargetState`.
    """
    tools = host_tools(rig.roots, rig.tools, facts)
    made: dict[str, Installation] = {
        one.name: plan_environment(rig.roots, rig.cards, rig.instances, rig.envs, rig.toolkit, one, facts)
        for one in rig.envs
    }
    for name, engine in standalone_engines(rig.instances).items():
        kind = cast("InstallingKind", kinds()[engine.kind])
        made[name] = kind.installation(rig, name, engine, facts)
    nodes = {one.name: numa_node_of(facts, one) for one in rig.instances}
    return TargetState(
        rig,
        facts,
        tools,
        plan_toolkit(rig.roots, rig.cards, rig.instances, rig.envs, rig.toolkit, facts),
        made,
        build_generation(rig, made, tools, nodes),
        driver,
        containers,
    )


def numa_node_of(facts: HostFacts, instance: Instance) -> int | None:
    """The NUMA node whose processors and memory an instance has; None where it has all."""
    return nearest_node(facts, instance.cards) if instance.cards else None
