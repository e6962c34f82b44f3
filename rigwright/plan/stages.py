"""Stages of a deploy, in order, and the plan that they make up.

STAGES is the one list: deploy.py has a role for each, a plan asks each what it will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rigwright.containers.container_plan import describe_container_changes
from rigwright.envs import gc
from rigwright.gateway.gateway_units import GATEWAY_PREFIX as GATEWAY_PREFIX
from rigwright.model.instance import loaded_weights
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.nvidia_tables import DriverSupply
from rigwright.monitoring.monitoring_facts import find_pending
from rigwright.monitoring.monitoring_units import monitoring_services, secrets_by_path
from rigwright.monitoring.self_check import MINUTES
from rigwright.nvidia.cards.card_setting_files import render_card_settings
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.driver.driver_plan import DriverPlan
from rigwright.nvidia.driver.driver_summary import describe_driver
from rigwright.nvidia.driver.installed_driver import find_installed_driver
from rigwright.nvidia.packages.driver_target import (
    describe_unloaded,
    find_missing_driver_parts,
    find_unheld_driver_packages,
    needs_transaction,
    plan_driver_target,
)
from rigwright.nvidia.packages.locked_driver import find_locked_driver
from rigwright.patches.patch import describe_patches
from rigwright.plan.host_probe import find_missing_host_packages
from rigwright.plan.plan_inputs import TargetState, find_removed_units, list_orphans
from rigwright.plan.self_check_declaration import self_check_digest
from rigwright.problems import format_count
from rigwright.serving.activation import Activation, find_displaceable, find_surplus, goal_for, plan_activation
from rigwright.serving.generation import Generation
from rigwright.serving.instance_units import PREFIX
from rigwright.serving.serving_state import ObservedServing
from rigwright.weights.weight_server import describe_pending_share, share_endpoint

REBOOT = "reboot"
# The missing parts of a driver are reported in one line: a count stands for those beyond this
LISTED = 2
KIB, GB = 1024, 10**9  # bytes


@dataclass(frozen=True)
class DeployStep:
    """One thing that will be done."""

    role: str
    what: str
    why: str
    fetched_bytes: int = 0
    """From outside the host, as far as the lock knows."""


def _base_steps(wanted: TargetState, found: ObservedServing) -> list[DeployStep]:
    missing = find_missing_host_packages(wanted.rig, wanted.facts)
    whose = "in the bundle" if wanted.rig.bundle else "versions chosen by apt"
    steps = [DeployStep("base", f"packages {', '.join(missing)}", f"not installed; {whose}")] if missing else []
    if not wanted.facts.ledger_whole:
        steps.append(DeployStep("base", f"end the last line of {wanted.rig.roots.ledger}", "it was cut off"))
    return steps


def _tools_steps(wanted: TargetState, found: ObservedServing) -> list[DeployStep]:
    folder = wanted.tools.folder
    return [] if folder in found.folders else [DeployStep("tools", "host tools", f"{folder} is missing")]


def _nvidia_driver_steps(wanted: TargetState, found: ObservedServing) -> list[DeployStep]:
    if wanted.driver:
        return _driver_steps(wanted.rig.driver, wanted.rig.driver_supply, *wanted.driver)
    if wanted.rig.driver.managed:
        return []
    return [DeployStep("nvidia_driver", "stop managing the driver", "it is no longer managed; its packages stay")]


def _container_steps(wanted: TargetState, found: ObservedServing) -> list[DeployStep]:
    if wanted.containers:
        return [
            DeployStep("container_toolkit", what, _abbreviate(list(why)))
            for what, why in describe_container_changes(*wanted.containers)
        ]
    return [DeployStep("container_toolkit", "stop managing containers", "none are declared any more; packages stay")]


def _cuda_toolkit_steps(wanted: TargetState, found: ObservedServing) -> list[DeployStep]:
    cuda = wanted.toolkit
    if cuda is None or not cuda.folder or cuda.folder in found.folders:
        return []
    fetched = sum(wheel.size for wheel in wanted.rig.toolkit.wheels)
    title = f"CUDA toolkit {cuda.version}{describe_patches(cuda.patches)}"
    return [DeployStep("cuda_toolkit", title, f"{cuda.folder} is missing", fetched)]


def _engine_steps(wanted: TargetState, found: ObservedServing) -> list[DeployStep]:
    steps = []
    for made in wanted.installations.values():
        if made.folder not in wanted.facts.built_engines:
            why = f"no build of these inputs ({made.digest}) exists"
            if made.installed_kib:
                final = made.installed_kib * KIB
                peak = final + made.work_kib * KIB + made.fetched_bytes
                why += f"; takes {final / GB:.1f} GB of disk, up to {peak / GB:.1f} GB while it is built"
            steps.append(DeployStep("engines", made.what, why, made.fetched_bytes))
        elif made.folder in wanted.facts.unfit_engines:
            why = "users other than root can change it, or not everyone can run it"
            steps.append(DeployStep("engines", f"owner and modes of {made.folder}", why))
    declared = list(wanted.installations.values())
    there = wanted.facts.weight_bytes
    gone = len(gc.find_leftovers(wanted.rig.roots, wanted.rig.share, declared, wanted.facts.built_engines, there))
    if gone := gone + len(gc.find_undeclared(wanted.rig.roots, declared, there)):
        why = "all that is made of them is whole, or no longer declared"
        steps.append(DeployStep("engines", f"remove {format_count(gone, 'downloaded package')}", why))
    return steps


def _sharing_steps(wanted: TargetState, found: ObservedServing) -> list[DeployStep]:
    rig, facts = wanted.rig, wanted.facts
    if not rig.share:
        return [DeployStep("sharing", "stop sharing weights", "it is no longer declared; the nginx package stays")]
    why = describe_pending_share(rig.roots, rig.share, facts.sharing)
    return [DeployStep("sharing", f"share weights on {share_endpoint(rig.share)}", why)] if why else []


def _monitoring_steps(wanted: TargetState, found: ObservedServing) -> list[DeployStep]:
    rig = wanted.rig
    at = {one.name: f"{one.name}, on {one.endpoint}" for one in monitoring_services(rig)}
    return [
        DeployStep("monitoring", f"run {at[name]}" if name in at else f"remove {name}", why)
        for name, why in find_pending(
            wanted.facts.monitoring, monitoring_services(rig), secrets_by_path(rig.inventory, rig.roots, rig.monitoring)
        ).items()
    ]


def _weight_steps(wanted: TargetState, found: ObservedServing) -> list[DeployStep]:
    steps = []
    for artefact in loaded_weights(wanted.rig.instances):
        there = wanted.facts.weight_bytes.get(wanted.rig.roots.weight_path(artefact), 0)
        if there < artefact.size:
            why = f"{there:,} of {artefact.size:,} bytes are present" if there else "not there"
            steps.append(DeployStep("weights", artefact.file, why, artefact.size - there))
    return steps + _removal_steps("weights", wanted)


def find_activation(wanted: TargetState, found: ObservedServing) -> Activation | None:
    """How what serves comes to what is wanted; None where it is that already."""
    return plan_activation(found, wanted.rig.roots.config, goal_for(found, wanted.generation))


def _serving_steps(wanted: TargetState, found: ObservedServing) -> list[DeployStep]:
    steps = []
    number = found.number_of(wanted.generation)
    if number is None:
        why = _describe_generation_difference(found, wanted.generation)
        steps.append(DeployStep("serving", f"write generation {found.next_number}", why))
    gone = find_removed_units(found, wanted.generation)
    if ends := _format_units(gone):
        steps.append(DeployStep("serving", f"end {ends}", "no longer declared"))
    if way := find_activation(wanted, found):
        left_out = {*gone, *way.prove}
        stop, release = (tuple(one for one in units if one not in left_out) for units in (way.stop, way.release))
        parts = [f"stop {_format_units(stop)}"] if stop else []
        parts += [f"release {_format_units(release)}"] if release else []
        parts += [f"listen on {_format_units(way.listen)}"] if way.listen else []
        parts += [f"start {_format_units(way.restart)}"] if way.restart else []
        parts += [f"reload {_format_units(way.reload)}" for _ in way.reload[:1]]
        parts += [f"wait for {_format_units(way.await_)}"] if way.await_ else []
        parts += _describe_proofs(wanted, found, way)
        what = f"activate generation {number or found.next_number}"
        otherwise = f"without {ends}" if ends else "systemd must load it"
        steps.append(DeployStep("serving", what, "; ".join(parts) or otherwise))
    users = [account.name for account in wanted.facts.users if account.ours]
    loose = find_surplus(found, wanted.rig, wanted.generation, users)
    if loose.generations or loose.paths or loose.users:
        numbers = [f"generation {number}" for number in loose.generations]
        leaving = [f"user {user}" for user in loose.users]
        changed = {one.number for one in found.generations if not one.is_intact}
        why = f"{wanted.rig.keep_generations} generations are kept"
        if loose.generations and changed.issuperset(loose.generations):
            why = "changed after it was written"
        steps.append(DeployStep("serving", f"remove {', '.join([*numbers, *loose.paths, *leaving])}", why))
    return steps + _removal_steps("serving", wanted)


def _describe_proofs(wanted: TargetState, found: ObservedServing, way: Activation) -> list[str]:
    """The instances on demand that an activation wakes, and those that may have to make room."""
    warm = {one.unit for one in wanted.rig.instances if one.keep_warm}
    stays, sleeps = (tuple(one for one in way.prove if (one in warm) is kept) for kept in (True, False))
    parts = [f"wake {_format_units(stays)}, kept warm"] if stays else []
    sleeper = "them" if sleeps[1:] else "it"
    parts += [f"wake {_format_units(sleeps)} once, then let {sleeper} sleep"] if sleeps else []
    room = [unit for unit, _ in find_displaceable(found, way, wanted.generation.unit_states) if unit not in warm]
    return parts + ([f"stop {_format_units(tuple(room))} if the proof needs memory"] if room else [])


def _describe_generation_difference(found: ObservedServing, wanted: Generation) -> str:
    """The reason for a new generation: its services compared with those of the current one's manifest."""
    if found.current is None:
        return "the first one"
    current = next((one for one in found.generations if one.number == found.current), None)
    if current is None or not current.unit_states:
        return f"generation {found.current} differs"
    if not current.is_intact:
        return f"the files of generation {found.current} were changed after it was written"
    before = {one.unit: one for one in current.unit_states}
    after = {one.unit: one for one in wanted.unit_states}
    parts = {
        "adds": after.keys() - before.keys(),
        "removes": before.keys() - after.keys(),
        "changes": {unit for unit in after.keys() & before.keys() if after[unit] != before[unit]},
    }
    said = "; ".join(f"{verb} {_format_units(tuple(sorted(units)))}" for verb, units in parts.items() if units)
    return f"generation {found.current} differs: {said or 'scripts or records around its services'}"


def _removal_steps(role: str, wanted: TargetState) -> list[DeployStep]:
    """Removals of a role that have no row otherwise."""
    there = wanted.facts.undeclared
    return [
        DeployStep(role, one.what, one.why)
        for one in list_orphans(wanted.rig)
        if one.role == role and not there.isdisjoint(one.paths)
    ]


def _self_check_steps(wanted: TargetState, found: ObservedServing) -> list[DeployStep]:
    there = wanted.facts.self_check
    if there is None or there == self_check_digest(wanted.rig, wanted.facts.system):
        return []
    what = f"have the box check itself every {MINUTES} minutes"
    return [
        DeployStep("self_check", what, "program, declaration or units differ" if there else "it does not run there")
    ]


@dataclass(frozen=True)
class DeployStage:
    """The part of one role in a deploy."""

    role: str
    pending: Callable[[TargetState, ObservedServing], list[DeployStep]]
    """The changes that it would make to a host, as far as a plan has them."""
    applies: Callable[[TargetState], bool] = lambda wanted: True
    """Whether there is anything for it to see to."""


STAGES = (
    DeployStage("base", _base_steps),
    DeployStage("network", lambda wanted, _: _removal_steps("network", wanted)),
    DeployStage("tools", _tools_steps),
    DeployStage("nvidia_driver", _nvidia_driver_steps, lambda wanted: bool(wanted.driver or wanted.facts.driver_ours)),
    DeployStage(
        "nvidia_cards",
        lambda wanted, _: _removal_steps("nvidia_cards", wanted),
        lambda wanted: (
            not wanted.rig.driver.managed
            and bool(
                render_card_settings(wanted.rig.roots, wanted.rig.cards, wanted.rig.driver)
                or wanted.facts.settings_ours
            )
        ),
    ),
    DeployStage(
        "container_toolkit",
        _container_steps,
        lambda wanted: bool(wanted.containers or (wanted.facts.containers_ours and not wanted.rig.containers)),
    ),
    DeployStage("cuda_toolkit", _cuda_toolkit_steps, lambda wanted: wanted.toolkit is not None),
    # before what is fetched for it: others see what is on its way here
    DeployStage("sharing", _sharing_steps, lambda wanted: bool(wanted.rig.share or wanted.facts.sharing)),
    DeployStage(
        "monitoring",
        _monitoring_steps,
        lambda wanted: bool(wanted.rig.monitoring or wanted.facts.monitoring.is_present),
    ),
    DeployStage("engines", _engine_steps),
    DeployStage("weights", _weight_steps),
    DeployStage("serving", _serving_steps),
    # after it: the box is compared with the serving state of that time
    DeployStage("self_check", _self_check_steps),
)


_STAGE_OF_ROLE = {stage.role: stage for stage in STAGES}


def stage_of(role: str) -> DeployStage:
    """The stage of a role.

    Raises:
        KeyError: no stage has a role of this name.
    """
    return _STAGE_OF_ROLE[role]


def applicable_stages(wanted: TargetState) -> tuple[DeployStage, ...]:
    """The stages of a deploy to a host, in order."""
    return tuple(stage for stage in STAGES if stage.applies(wanted))


def _driver_steps(
    driver_entry: DriverEntry, driver_supply: DriverSupply, facts: DriverFacts, made: DriverPlan
) -> list[DeployStep]:
    one = plan_driver_target(made, facts, find_locked_driver(driver_supply, facts.system))
    missing = find_missing_driver_parts(one, facts) or (
        [] if facts.recorded else ["the installed version is not recorded"]
    )
    there = find_installed_driver(driver_supply, facts)
    steps = []
    if missing:
        verb, why = "install", f"installed: {there or 'none'}"
        if made.action == "adopt":
            verb, why = "complete", _abbreviate(missing)
        steps.append(DeployStep("nvidia_driver", f"{verb} driver {describe_driver(made, one.version)}", why))
    elif loose := find_unheld_driver_packages(one, facts):
        steps.append(
            DeployStep("nvidia_driver", f"hold driver {describe_driver(made, one.version)}", _abbreviate(loose))
        )
    if why := made.reboot if missing and needs_transaction(one, facts) else describe_unloaded(one, facts):
        consent = "" if driver_entry.reboot else "; without --reboot the deploy stops there"
        steps.append(DeployStep("nvidia_driver", REBOOT, f"{why}{consent}"))
    return steps


def _abbreviate(reasons: list[str]) -> str:
    more = f"; and {len(reasons) - LISTED} more" if len(reasons) > LISTED else ""
    return "; ".join(reasons[:LISTED]) + more


def _format_units(units: tuple[str, ...]) -> str:
    said = (unit.rpartition(".")[0].replace(PREFIX, "port ").replace(GATEWAY_PREFIX, "port ") for unit in units)
    # a port has two units
    return ", ".join(dict.fromkeys(name.removeprefix("rigwright-").removeprefix("rigwright_") for name in said))


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
    """The changes of a deploy of a rig to a host as it is now.

    Args:
        wanted: The target state of the rig there.
        found: The serving state of the host.
    """
    steps = [step for stage in applicable_stages(wanted) for step in stage.pending(wanted, found)]
    way = find_activation(wanted, found)
    up = {name for name, process in found.processes.items() if process.running}
    touched = {*way.stop, *way.restart, *way.prove} if way else set()
    # a client of a port is interrupted while its service is started again
    touched |= {unit_state.leads_to for unit_state in wanted.generation.unit_states if unit_state.unit in touched}
    made = DeployPlan(tuple(steps), (), wanted.rig.bundle_folder)
    touched = up if made.reboots else up & touched
    return replace(made, interrupted=tuple(sorted(name for name in touched if not name.startswith(PREFIX))))
