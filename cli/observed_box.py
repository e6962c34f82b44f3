"""A box with one look at how its instances are, and the states that all verbs name by it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from checks import Drift
from checks.connections import ConnectedHost, HostReadFailed
from checks.survey.health import read_health
from cli.prog_name import prog_name
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.operate.instance_health import HealthFacts, InstanceHealth, assess_health
from rigwright.operate.instance_state import (
    AssessedState,
    DeclaredProcess,
    StateFacts,
    assess_state,
    declared_processes,
)
from rigwright.problems import printable
from roles import root_shell


@dataclass(frozen=True)
class ObservedBox:
    """A connected host, and a look at it."""

    box: ConnectedHost
    look: HealthFacts | None
    why: str
    """Why the look failed; empty where it did not."""

    @cached_property
    def declared(self) -> Mapping[str, DeclaredProcess]:
        """Unit of an instance -> its declared process.

        Raises:
            checks.connections.HostReadFailed: the host does not tell the facts that decide it.
        """
        return declared_processes(self.box.resolve_desired().generation)

    def assess_health(self, instance: Instance) -> InstanceHealth:
        """An instance's state with its figures; raises as `declared`."""
        if self.look is None:
            state = assess_state(instance.name, StateFacts(unreachable=self.why))
            return InstanceHealth(state.instance, state.state, state.note)
        unit = self.look.units.get(instance.unit)
        # a process alone differs from the declared one
        active = unit is not None and unit.active == "active"
        return assess_health(self.look, instance, self.declared.get(instance.unit) if active else None)

    def assess_state(self, instance: Instance) -> AssessedState:
        """An instance's state; raises as `declared`."""
        return self.assess_health(instance).assessed

    def describe_unloaded(self, instance: Instance, inventory: str) -> str:
        """Why a sleeping instance on demand gives no answer at its own socket, and the next command; else empty."""
        unit = self.look.units.get(instance.unit) if self.look else None
        if not (self.look and unit and instance.is_on_demand and unit.active == "inactive"):
            return ""
        if instance.name in self.look.stopped:
            return ""
        command = f"{prog_name()} {shlex.join(['start', inventory, instance.name, '--limit', self.box.name])}"
        return f"{instance.name} is asleep, and only requests at the gateway load it; next: `{command}`"


def observe_host(target: Any, rig: Rig | None) -> tuple[HealthFacts | None, str]:
    """A look at a host; None with the reason where there is none."""
    try:
        return read_health(target, rig), ""
    except (ValueError, Drift, root_shell.ConnectionGone) as error:
        return None, printable(str(error))


def observe_box(box: ConnectedHost, *looks: str) -> ObservedBox:
    """Look at a box while it tells some of `checks.connections.SCRIPTS`.

    Raises:
        checks.connections.HostConnectionLost: the connection is gone.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        look = pool.submit(observe_host, box.target, box.rig)
        box = box.prefetch("facts", *looks)
        return ObservedBox(box, *look.result())


def describe_unanswered(box: ConnectedHost, instance: Instance, inventory: str, *, asleep: bool = True) -> str:
    """Why an instance gives no answer at its own socket, and the next command; empty where its state does not say why.

    Args:
        box: Its host.
        instance: The instance.
        inventory: The file.
        asleep: Whether sleep is a reason, too.
    """
    try:
        observed = observe_box(box)
        state = observed.assess_state(instance)
    except HostReadFailed as error:
        return error.message.removeprefix(f"{box.name}: ")
    if not state.is_ready:
        return printable(describe_state(state, inventory, box.name))
    return printable(observed.describe_unloaded(instance, inventory)) if asleep else ""


def next_command(state: AssessedState, inventory: str, host: str) -> str:
    """The command line that comes next, as it is typed here; empty where there is nothing to do."""
    if not state.remediation:
        return ""
    verb, *words = state.remediation
    return f"{prog_name()} {shlex.join([verb, inventory, *words, '--limit', host])}"


def describe_state(state: AssessedState, inventory: str, host: str) -> str:
    """One sentence without its end: an instance's state, the reason and the next command."""
    command = next_command(state, inventory, host)
    return state.describe() + (f"; next: `{command}`" if command else "")
