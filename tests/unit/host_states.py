"""Hosts as they are found: converged ones, and processes that are right, for tests to change."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from rigwright.host.systemd import UnitState
from rigwright.model.fact_types import HostFacts
from rigwright.model.installation import Installation
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.nvidia.cuda_toolkit import plan_toolkit
from rigwright.plan.plan_inputs import TargetState
from rigwright.serving.generation import Generation, build_generation
from rigwright.serving.serving_state import ObservedGeneration, ObservedServing, ObservedUnit
from tests.unit.host_folder import HostFolder
from tests.unit.rendered_scripts import TOOLS
from tests.unit.samples import sample_build, sample_instance, sample_rig

UnitStates = tuple[UnitState, ...]
CONFIG = "/etc/rigwright"
CHAT, CODE = "rigwright-chat.service", "rigwright-code.service"
# as systemctl shows units
SERVES = "ActiveState=active\nSubState=running\nNRestarts=0\nJob=\n"
FAILS = "ActiveState=activating\nSubState=auto-restart\nNRestarts=1\nJob=\n"


def two_instance_rig(*instances: Instance) -> Rig:
    """A rig with the instances chat and code, or those given."""
    return sample_rig(*(instances or (sample_instance("chat"), sample_instance("code", port=8021))))


def target_generation(made: Rig | None = None) -> Generation:
    """The generation that a rig asks for."""
    return build_generation(made or two_instance_rig(), {"plain": sample_build()}, TOOLS)


def serving_host(folder: Path) -> HostFolder:
    """A host that serves generation 1 with chat, and has generation 2 with code, too."""
    host = HostFolder(folder)
    host.write_generation(1, target_generation(two_instance_rig(sample_instance("chat"))))
    host.write_generation(2, target_generation())
    (host.config / "current").symlink_to("generations/1")
    host.set_answers(state=SERVES)
    (folder / "proc").mkdir()
    return host


def rig_target_state(made: Rig, host: HostFacts, *installations: Installation) -> TargetState:
    """The target state of a rig on a host, with these in the place of its engines there."""
    there = {one.name: one for one in installations}
    return TargetState(
        made,
        host,
        TOOLS,
        plan_toolkit(made.roots, made.cards, made.instances, made.envs, made.toolkit, host),
        there,
        target_generation(made),
    )


def running_process(unit_state: UnitState, **changes: Any) -> ObservedUnit:
    """The process that a unit state asks for, running."""
    right = ObservedUnit(
        "active", "running", started_from=unit_state.started_from, configured_from=unit_state.configured_from
    )
    return replace(right, **changes)


def host_generation(
    number: int,
    digest: str = "",
    *references: str,
    found: str | None = None,
    unit_states: UnitStates = (),
    users: frozenset[str] | None = None,
) -> ObservedGeneration:
    """A generation on the host; an unchanged one unless `found` is given."""
    sealed = digest or f"digest-{number}"
    now = sealed if found is None else found
    return ObservedGeneration(
        number, sealed, now, "2026-11-01T12:00:00Z", True, frozenset(references), unit_states=unit_states, users=users
    )


def converged_state(aim: Generation, number: int = 1, **changes: Any) -> ObservedServing:
    """A host that serves a generation, with some of it changed."""
    right = ObservedServing(
        generations=(
            host_generation(number, aim.digest, *aim.files["references"].splitlines(), unit_states=aim.unit_states),
        ),
        current=number,
        loaded=f"All instances of this rig, generation {aim.mark}",
        enabled=True,
        links={name: f"{CONFIG}/current/units/{name}" for name in aim.unit_files},
        processes={unit_state.unit: running_process(unit_state) for unit_state in aim.unit_states},
        sockets={one.unit: one.addresses for unit_state in aim.unit_states for one in unit_state.holders},
        folders=frozenset(path for path in aim.files["references"].splitlines() if not path.startswith("/srv/models")),
    )
    return replace(right, **changes)
