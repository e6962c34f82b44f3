"""A run on one host: its rig and options, judged again because `--data` comes after the inventory, and the context that
all roles of a deploy share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, cast

import click
from pyinfra import host
from pyinfra.api import deploy
from pyinfra.api.exceptions import PyinfraError

from rigwright.check_waivers import find_deploy_faults
from rigwright.declaration.host_data import find_inventory_data_problems
from rigwright.declaration.shared_resolution import read_once
from rigwright.declaration.variant_selection import VariantSwitch, apply_switch
from rigwright.inventory import RIG_KEYS, load_rig
from rigwright.model.fact_types import HostFacts
from rigwright.model.rig import Rig
from rigwright.monitoring.textfile import deploy_textfile
from rigwright.plan.plan_inputs import TargetState
from rigwright.plan.stages import stage_of
from rigwright.problems import Invalid
from rigwright.run_options import RunOptions, parse_run_options
from rigwright.serving.takeover import ExistingServiceFacts
from rigwright.supply.bundle import describe_digest_mismatch
from roles.deploy_lock import acquire_deploy_lock
from roles.operations.facts import enable_prefetch


def rig_of_host(host: Any, switch: VariantSwitch | None = None) -> Rig:
    """The rig that a pyinfra host is, with another variant of an instance where the run is asked for that.

    Raises:
        PyinfraError: its data is not a valid rig; raised before any operation exists.
    """
    try:
        data = host.data.get("rig")
        return load_rig(apply_switch(data, switch) if switch else data)
    except Invalid as error:
        raise PyinfraError(f"{host.name}: {error}") from None


def orders_of_host(host: Any) -> RunOptions:
    """The orders of the run of a pyinfra host. Only what `--data` gave is judged, not the host's own data.

    Raises:
        PyinfraError: something of it is refused; raised before any operation exists.
    """
    try:
        return parse_run_options(host.inventory.get_override_data())
    except Invalid as error:
        raise PyinfraError(str(error)) from None


@dataclass(frozen=True)
class HostRun:
    """One verb on one host, which has granted the deploy lock."""

    options: RunOptions
    rig: Rig

    @property
    def verb(self) -> str:
        """`deploy`, `upgrade`, `rollback` or `remove`."""
        return self.options.verb


@dataclass(frozen=True)
class DeployContext:
    """Everything that a role of a deploy needs: the one argument of each."""

    target: TargetState
    options: RunOptions = field(default_factory=RunOptions)
    existing: ExistingServiceFacts | None = None
    """The service that this run takes over; None where it takes none over."""

    @property
    def rig(self) -> Rig:
        """The rig that the host becomes."""
        return self.target.rig

    @property
    def facts(self) -> HostFacts:
        """The host before the run."""
        return self.target.facts


Role = Callable[[DeployContext], None]


def role(title: str) -> Callable[[Role], Role]:
    """Make a function a role: the stage of the plan with its name decides whether it applies to a host. A
    run that is restricted to other roles leaves it out.

    Args:
        title: The first part of its operations' names.
    """

    def decorate(function: Role) -> Role:
        stage, add_operations = stage_of(function.__name__), cast("Role", deploy(title)(function))

        @wraps(function)
        def add_applicable(context: DeployContext) -> None:
            if stage.applies(context.target) and context.options.includes_role(stage.role):
                add_operations(context)

        return add_applicable

    return decorate


def start_run() -> HostRun | None:
    """Judge the options and the rig of the running deploy's host, and take its deploy lock.

    Returns:
        The run; None after failing this host, and only this one, because it does not grant the lock.

    Raises:
        PyinfraError: options, rig, bundle or digest are refused; raised before any operation exists.
    """
    options = orders_of_host(host)
    context = click.get_current_context(silent=True)
    file = str((context.params.get("inventory") if context else "") or "the inventory")
    # of all hosts, and the same for each of them
    judge = partial(find_inventory_data_problems, file, host.inventory, RIG_KEYS)
    if problems := read_once((start_run, file, id(host.inventory)), judge):
        raise PyinfraError(str(Invalid(problems)))
    rig = rig_of_host(host, options.switch)
    if options.verb in ("deploy", "upgrade") and (faults := find_deploy_faults(rig)):
        raise PyinfraError("\n".join(map(str, faults)))
    if options.expected_digest and (mismatch := describe_digest_mismatch(rig.digest, options.expected_digest)):
        raise PyinfraError(f"{host.name}: {mismatch}")
    enable_prefetch()
    removing = options.verb == "remove"
    textfile = "" if removing else deploy_textfile(rig.roots, rig.monitoring)
    if not acquire_deploy_lock(f"{options.verb} of {rig.inventory}", removing, textfile):
        return None
    return HostRun(options, rig)
