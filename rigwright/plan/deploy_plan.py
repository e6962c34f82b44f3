"""What a deploy will do to a host, why, how much of it, and who notices: pure functions of rig, lock and host."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rigwright.plan.plan_inputs import TargetState
from rigwright.plan.stages import REBOOT, DeployStep, applicable_stages, find_activation
from rigwright.serving.listeners import PREFIX
from rigwright.serving.observed import ObservedServing


@dataclass(frozen=True)
class DeployPlan:
    """Everything that will be done, and what clients notice."""

    steps: tuple[DeployStep, ...]
    interrupted: tuple[str, ...]
    """Instances that run now and will be stopped or started again."""
    bundle_folder: str | None = None
    """Where all that is fetched comes from instead, on the operator's machine."""

    @property
    def fetched_bytes(self) -> int:
        """From outside the host."""
        return sum(step.fetched_bytes for step in self.steps)

    @property
    def reboots(self) -> bool:
        """Whether the host will be rebooted, or asks for it."""
        return any(step.what == REBOOT for step in self.steps)


def plan_deploy(wanted: TargetState, found: ObservedServing) -> DeployPlan:
    """What a deploy of a rig will do to a host as it is now.

    Args:
        wanted: What the rig comes to there.
        found: What the host serves.
    """
    steps = [step for stage in applicable_stages(wanted) for step in stage.pending(wanted, found)]
    way = find_activation(wanted, found)
    up = {name for name, process in found.processes.items() if process.running}
    touched = {*way.stop, *way.restart} if way else set()
    # who speaks through a port whose service is started again is interrupted
    touched |= {unit_state.leads_to for unit_state in wanted.generation.unit_states if unit_state.unit in touched}
    made = DeployPlan(tuple(steps), (), wanted.rig.bundle_folder)
    touched = up if made.reboots else up & touched
    return replace(made, interrupted=tuple(sorted(name for name in touched if not name.startswith(PREFIX))))
