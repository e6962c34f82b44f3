"""Hosts as they are found: converged ones, and processes that are right, for tests to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rigwright.host.unit_states import UnitState
from rigwright.model.facts import HostFacts
from rigwright.model.installation import Installation
from rigwright.model.rig import Instance, Rig
from rigwright.nvidia.cuda.toolkit import toolkit
from rigwright.plan.desired import Desired
from rigwright.serving.generation import Generation, generation
from rigwright.serving.live import Kept, Process, Served
from tests.unit.samples import instance, plan, rig
from tests.unit.scripts import TOOLS

UnitStates = tuple[UnitState, ...]
CONFIG = "/etc/rigwright"
CHAT, CODE = "rigwright-chat.service", "rigwright-code.service"


def two(*instances: Instance) -> Rig:
    """A rig with the instances chat and code, or those given."""
    return rig(*(instances or (instance("chat"), instance("code", port=8021))))


def wanted(made: Rig | None = None) -> Generation:
    """The generation that a rig asks for."""
    return generation(made or two(), {"plain": plan()}, TOOLS)


def comes_to(made: Rig, host: HostFacts, *installations: Installation) -> Desired:
    """What a rig comes to on a host, with these in the place of what its engines are there."""
    there = {one.name: one for one in installations}
    return Desired(made, host, TOOLS, toolkit(made, host), there, wanted(made))


def process(unit_state: UnitState, **changes: Any) -> Process:
    """The process that a unit state asks for, running."""
    right = Process(
        "active", "running", started_from=unit_state.started_from, configured_from=unit_state.configured_from
    )
    return replace(right, **changes)


def kept(
    number: int,
    digest: str = "",
    *references: str,
    found: str | None = None,
    unit_states: UnitStates = (),
    users: frozenset[str] | None = None,
) -> Kept:
    """A generation on the host; an unchanged one unless `found` is given."""
    sealed = digest or f"digest-{number}"
    now = sealed if found is None else found
    return Kept(
        number, sealed, now, "2026-11-01T12:00:00Z", True, frozenset(references), unit_states=unit_states, users=users
    )


def converged(aim: Generation, number: int = 1, **changes: Any) -> Served:
    """A host that serves a generation, with some of it changed."""
    right = Served(
        generations=(kept(number, aim.digest, *aim.files["references"].splitlines(), unit_states=aim.unit_states),),
        current=number,
        loaded=f"All instances of this rig, generation {aim.mark}",
        enabled=True,
        links={name: f"{CONFIG}/current/units/{name}" for name in aim.unit_files},
        processes={unit_state.unit: process(unit_state) for unit_state in aim.unit_states},
        sockets={one.unit: one.addresses for unit_state in aim.unit_states for one in unit_state.holders},
        folders=frozenset(path for path in aim.files["references"].splitlines() if not path.startswith("/srv/models")),
    )
    return replace(right, **changes)
