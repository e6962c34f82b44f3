"""What a deploy takes off a host because its rig does not declare it any more, as far as no other plan says it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rigwright.delivery.network import authority_path
from rigwright.gateway.gateway_units import ROTATION
from rigwright.host.channel import path
from rigwright.model.feature import FactSource
from rigwright.model.instance import loaded_weights
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.card_setting_files import declared_paths, managed_paths, record_path
from rigwright.serving.generation import Generation
from rigwright.serving.observed import ObservedServing
from rigwright.weights.verification import REHASH_STAMP, render_rehash_units


@dataclass(frozen=True)
class OrphanedFiles:
    """One thing that is taken off where any of its files is there."""

    role: str
    what: str
    why: str
    paths: tuple[str, ...]


def list_orphans(rig: Rig) -> tuple[OrphanedFiles, ...]:
    """What a host may have of a rig that was declared before, and does not keep."""
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
        wanted: What it is to serve.
    """
    there: Collection[str] = {*found.links, *found.processes, *found.sockets}
    return tuple(sorted(name for name in there if name not in wanted.unit_files and name.endswith(UNIT_SUFFIXES)))


UNIT_SUFFIXES = (".service", ".socket")
"""What systemd runs or holds for a unit; a target and a slice are nothing without those."""


def _list_orphaned_paths(rig: Rig) -> dict[str, object]:
    return {"undeclared": sorted(path for one in list_orphans(rig) for path in one.paths)}


ORPHAN_FACTS = FactSource(
    "orphans",
    "probe/orphans.sh.j2",
    _list_orphaned_paths,
    {"undeclared": (path,)},
    lambda output: {"undeclared": frozenset(output.all("undeclared"))},
)
