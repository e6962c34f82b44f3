"""Inputs of a plan: the target state of a host, its recorded trees, and what no rig declares any more."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from rigwright.containers.container_facts import ContainerFacts
from rigwright.containers.container_plan import ContainerPlan
from rigwright.engines import kinds
from rigwright.engines.engine_interface import InstallingKind
from rigwright.envs.environment import plan_environment
from rigwright.fetch_job_spec import ToolEnvironment, authority_path, host_tools
from rigwright.gateway.gateway_units import ROTATION
from rigwright.host import script_output
from rigwright.host.script_output import path
from rigwright.model.fact_types import HostFacts
from rigwright.model.installation import Installation, records_folder
from rigwright.model.instance import Instance, loaded_weights, standalone_engines
from rigwright.model.inventory_feature import FactSource
from rigwright.model.nvidia_tables import Toolkit
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.nvidia.cards.card_setting_files import declared_paths, managed_paths, record_path
from rigwright.nvidia.cards.numa_nodes import nearest_node
from rigwright.nvidia.cuda_toolkit import plan_toolkit
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.driver.driver_plan import DriverPlan
from rigwright.serving.generation import Generation, build_generation
from rigwright.serving.serving_state import ObservedServing
from rigwright.weights.verification import REHASH_STAMP, render_rehash_units


@dataclass(frozen=True)
class TargetState:
    """The target state of a rig on one host."""

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
    """The containers of its host, and their target; None where none are declared, or refused."""


def build_target_state(
    rig: Rig,
    facts: HostFacts,
    driver: tuple[DriverFacts, DriverPlan] | None = None,
    containers: tuple[ContainerFacts, ContainerPlan] | None = None,
) -> TargetState:
    """The target state of a rig on a host.

    Args:
        rig: The host's target.
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


SCAN_SCHEMA: script_output.Schema = {
    "there": (script_output.path, script_output.text),
    "pending": (
        script_output.one_of("unrecorded", "extra", "loose", "touched", "changed", "stale"),
        script_output.path,
        script_output.text,
    ),
}
"""The output of roles/trees/host/tree_records.py: which trees are there, of a generation with its own digest; and the
steps, each with its tree and the first place in it."""


def declared_trees(wanted: TargetState) -> tuple[str, ...]:
    """The absolute paths of what is installed for a rig."""
    toolkit = wanted.toolkit.folder if wanted.toolkit else ""
    made = [wanted.rig.roots.installation_path(one.folder) for one in wanted.installations.values()]
    return tuple(path for path in (wanted.tools.folder, toolkit, *made) if path)


@lru_cache(1 << 8)
def _digest_content(content: bytes) -> str:
    """SHA-256 of a program's file, which all hosts have in common."""
    return hashlib.sha256(content).hexdigest()


def scan_request(roots: Roots, texts: Mapping[str, Mapping[str, bytes]]) -> dict[str, object]:
    """The request for the program that looks at them on the host.

    Args:
        roots: Directories on the host.
        texts: Path of a tree -> name -> content of its files; it has no others.
    """
    return {
        "software": roots.software,
        "engines": roots.installations,
        "generations": roots.generations,
        "records": records_folder(roots),
        "ledger": roots.ledger,
        "texts": {tree: {name: _digest_content(text) for name, text in files.items()} for tree, files in texts.items()},
    }


def find_missing_trees(wanted: TargetState, texts: Iterable[str], there: Mapping[str, str]) -> list[str]:
    """The absolute paths of trees that a rig is to have and has not; that of all generations where it lacks its own.

    Args:
        wanted: The target state of the rig on its host.
        texts: Trees of programs of ours.
        there: Tree -> for a generation, the digest of what it says of itself.
    """
    rig = wanted.rig
    lacking = [path for path in (*declared_trees(wanted), *texts) if path not in there]
    return lacking + ([] if wanted.generation.digest in there.values() else [rig.roots.generations])


@dataclass(frozen=True)
class OrphanedFiles:
    """One thing that is taken off where any of its files is there."""

    role: str
    what: str
    why: str
    paths: tuple[str, ...]


def list_orphans(rig: Rig) -> tuple[OrphanedFiles, ...]:
    """The parts of an earlier declaration of a rig that a host may have, and does not keep."""
    gone = []
    if not rig.network.ca_certificates:
        gone.append(
            OrphanedFiles("network", "remove CA certificates", "no longer declared", (authority_path(rig.roots),))
        )
    if not loaded_weights(rig.instances):
        units = (*render_rehash_units(rig.roots), REHASH_STAMP)
        gone.append(OrphanedFiles("weights", "stop hashing weights again", "no model is declared any more", units))
    if not rig.gateway:
        gone.append(OrphanedFiles("serving", "remove the gateway's log rotation", "no longer declared", (ROTATION,)))
    if not rig.driver.managed and (
        left := {*managed_paths(rig.roots), record_path(rig.roots)} - declared_paths(rig.roots, rig.cards, rig.driver)
    ):
        what = "remove settings of cards and kernel"
        gone.append(OrphanedFiles("nvidia_cards", what, "no longer declared", tuple(sorted(left))))
    return tuple(gone)


def find_removed_units(found: ObservedServing, wanted: Generation) -> tuple[str, ...]:
    """Units of a host that are not declared any more: they end, and do not start again.

    Args:
        found: The host.
        wanted: Its target.
    """
    there: Collection[str] = {*found.links, *found.processes, *found.sockets}
    return tuple(sorted(name for name in there if name not in wanted.unit_files and name.endswith(UNIT_SUFFIXES)))


UNIT_SUFFIXES = (".service", ".socket")
"""The suffixes of units that systemd runs or holds something for; a target and a slice are nothing without those."""


ORPHAN_FACTS = FactSource(
    "orphans",
    "probe/orphans.sh.j2",
    lambda rig: {"undeclared": sorted(path for one in list_orphans(rig) for path in one.paths)},
    {"undeclared": (path,)},
    lambda output: {"undeclared": frozenset(output.all("undeclared"))},
)
