"""The plan of a rollout: a look at each box, the batches, and their table."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import click

from checks.connections import ConnectedHost, map_hosts, map_inventory
from cli.exit_codes import HostUnreached
from cli.inventory_loading import MAX_INVENTORY_BYTES
from cli.plan import HostPlan, plan_box
from cli.prog_name import prog_name
from cli.tables import print_prose, print_table
from rigwright.gateway.served_models import offers_of
from rigwright.host_selection import format_hosts
from rigwright.local_files import read_content
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_facts import release_key
from rigwright.nvidia.packages.driver_target import find_previous_driver, find_rollback_refusals
from rigwright.rollout.batch_plan import RolloutBatch, RolloutBox
from rigwright.rollout.box_marker import format_moment
from rigwright.rollout.state_file import RolloutAction, RolloutSettings
from rigwright.weights.weight_server import find_sharing_boxes
from roles.connection_failures import describe_unreachable_host
from roles.rollback import describe_rollback_refusal, find_rollback_target
from roles.step_durations import StepDurations

SERVES = ("ready", "asleep", "other generation")
ABSENT = ("not deployed", "stopped by hand")
"""States of an instance that no rollout waits for."""


def survey_boxes(inventory: str, targets: Collection[str], settings: RolloutSettings) -> list[RolloutBox]:
    """Look at all boxes of an inventory; those outside of the rollout may be out of reach.

    Raises:
        click.ClickException: the change of a target would be refused, or needs a reboot without consent.
        HostUnreached: a target does not answer.
    """
    seen, gone = map_inventory(
        inventory, None, lambda box: plan_box(box, upgrading=settings.action == "upgrade" and box.name in targets)
    )
    found, plans = [box for box, _ in seen], {box.name: one for box, one in seen}
    if missing := {name: why for name, why in gone.items() if name in targets}:
        lines = [f"{name}: {describe_unreachable_host(why)}" for name, why in missing.items()]
        raise HostUnreached("\n".join([*lines, "nothing was changed; --limit leaves boxes out"]))
    listed = [box for box in found if box.name in targets]
    if settings.action == "rollback":
        refused = map_hosts(listed, lambda box: _describe_rollback_fault(box, settings.to))
        reasons = [f"{box.name}: refused: {one}" for box, one in zip(listed, refused, strict=True) if one]
    elif settings.action == "driver rollback":
        reasons = [f"{name}: refused: {one}" for name in targets for one in find_driver_faults(plans[name])]
    else:
        reasons = [f"{name}: refused: {one}" for name in targets for one in plans[name].refused]
        reasons += [
            f"{box.name}: needs a reboot: --reboot consents"
            for box in listed
            if plans[box.name].plan.reboots and not (settings.reboot or box.rig.driver.reboot)
        ]
    if reasons:
        raise click.ClickException("\n".join(reasons))
    sources = find_sharing_boxes(
        {box.name: box.rig.network.peers for box in found}, {box.name: box.rig.share for box in found}
    )
    durations = StepDurations.load()
    boxes = [_describe_box(box, plans[box.name], sources[box.name], durations, settings) for box in found]
    return boxes + [RolloutBox(name, fault="unreachable") for name in gone]


def _describe_rollback_fault(box: ConnectedHost, to: int | None) -> str:
    served = box.read_serving_state()
    number = find_rollback_target(served) if to is None else to
    return "" if number == served.current else describe_rollback_refusal(served, number, box.rig.reserved_gpus)


def find_drivers(plan: HostPlan) -> tuple[str, str]:
    """The installed driver of a box, and the one to which a rollback returns; each empty without one."""
    if plan.driver is None:
        return "", ""
    facts = plan.driver[2]
    return facts.library.driver if facts.library else "", find_previous_driver(facts)


def find_driver_faults(plan: HostPlan) -> tuple[str, ...]:
    """Why the driver of a box cannot be rolled back; empty if it can."""
    if plan.driver is None or plan.unbundled is None or not plan.driver[0].managed:
        return ("its driver is not managed: --limit leaves the box out",)
    installed, previous = find_drivers(plan)
    if previous and release_key(previous) > release_key(installed):
        return (
            f"driver {previous} is stored and newer than the installed {installed}, so no rollback goes to it: "
            f"--limit leaves the box out, `{prog_name()} deploy --upgrade-driver` upgrades it",
        )
    return find_rollback_refusals(plan.unbundled, plan.driver[2], previous)


def _describe_box(
    box: ConnectedHost,
    plan: HostPlan,
    sources: Collection[str],
    durations: StepDurations,
    settings: RolloutSettings,
) -> RolloutBox:
    ready = [name for name, state in plan.instance_states.items() if state.state in SERVES]
    models = list_models(box.rig.instances, box.rig.gateway)
    faults = [
        state.describe()
        for state in plan.instance_states.values()
        if plan.generation and state.state not in (*SERVES, "running", *ABSENT)
    ]
    roles = {step.role for step in plan.plan.steps}
    if settings.action == "rollback":
        roles = {"serving"}
    elif settings.action == "driver rollback":
        roles = {"driver_rollback"}
    elif settings.action == "upgrade":
        roles |= {"nvidia_driver", "serving"}
    interrupted = find_interrupted(box.rig, plan.plan.interrupted, settings.action)
    return RolloutBox(
        box.name,
        frozenset(sources),
        count_ready(models, ready),
        count_ready(models, [name for name in ready if name in interrupted]),
        dict(box.rig.gateway.aliases) if box.rig.gateway else {},
        "; ".join(faults),
        durations.expected_of_roles(roles, box.name) if roles else 0.0,
        plan.generation,
        box.rig.gateway.fleet.pair.partner if box.rig.gateway and box.rig.gateway.fleet.pair else "",
        frozenset(tree for tree, is_there in plan.compiled.items() if not is_there),
        frozenset(tree for tree, is_there in plan.compiled.items() if is_there),
        find_drivers(plan) if settings.action == "driver rollback" else None,
        settings.windows or box.rig.maintenance_windows,
    )


def find_interrupted(rig: Rig, units: Collection[str], action: RolloutAction) -> set[str]:
    """The instances that a rollout interrupts: those whose units a deploy stops, and those that other boxes use, for
    the box leaves rotation. A driver upgrade or a rollback interrupts all.
    """
    lent = rig.gateway.fleet.listener.lent if rig.gateway and rig.gateway.fleet.listener else {}
    return {one.name for one in rig.instances if action != "deploy" or one.unit in units or one.name in lent}


def list_models(instances: tuple[Instance, ...], gateway: Gateway | None) -> dict[str, tuple[str, ...]]:
    """Model -> the instances that serve it: by names of gateways, its own and those of boxes that use its instances, or
    by the model of each instance.
    """
    lent = gateway.fleet.listener.lent if gateway and gateway.fleet.listener else {}
    pairs = [(model, name) for name, models in lent.items() for model in models]
    if gateway and gateway.serves_clients:
        pairs += [(one.name, each.name) for one in offers_of(instances, gateway) for each in one.instances]
    else:
        pairs += [(one.model_name, one.name) for one in instances if one.name not in lent]
    found: dict[str, tuple[str, ...]] = {}
    for model, name in dict.fromkeys(pairs):
        found[model] = (*found.get(model, ()), name)
    return found


def count_ready(models: Mapping[str, Sequence[str]], ready: Collection[str]) -> dict[str, int]:
    """Model -> how many of its instances are among these; models without one are absent."""
    counts = {model: sum(name in ready for name in names) for model, names in models.items()}
    return {model: count for model, count in counts.items() if count}


def print_batches(batches: Sequence[RolloutBatch], soak_minutes: int) -> None:
    """Print a row for each batch, with its opening where a box has maintenance windows, and the expected duration."""
    has_windows = any(batch.opening for batch in batches)
    rows: list[tuple[str, ...]] = []
    for number, batch in enumerate(batches, 1):
        left = ", ".join(f"{model} {now} of {before}" for model, (now, before) in batch.capacity.items())
        word = " (canary)" if batch.is_canary else ""
        opening = (format_moment(batch.opening) if batch.opening else "at any time",) if has_windows else ()
        minutes = _format_minutes(batch.seconds, soak_minutes)
        rows.append((f"{number}{word}", ", ".join(batch.boxes), *opening, minutes, left))
    names = ("batch", "boxes", *(("begins",) if has_windows else ()), "minutes", "ready instances meanwhile")
    print_table(names, rows)
    known = [batch.seconds for batch in batches if batch.seconds is not None]
    unknown = len(batches) - len(known)
    total = max(sum(known) / 60, 0.1) + soak_minutes * len(batches)
    missing = f"; no record for {unknown} of {len(batches)} batches" if unknown else ""
    click.echo(f"expected: at most {total:.1f} minutes, gates not counted{missing}")


def print_builders(receivers: Mapping[str, Sequence[str]], builders: Mapping[str, Sequence[str]]) -> None:
    """Print for each engine the boxes that compile it, and those that copy it."""
    for tree, names in receivers.items():
        copies = f", copied by {format_hosts(names)} if both have equal digests" if names else ", copied by no box"
        print_prose(f"{tree}: compiled by {format_hosts(builders[tree])}{copies}")


def _format_minutes(seconds: float | None, soak_minutes: int) -> str:
    return "unknown" if seconds is None else f"{max(seconds / 60, 0.1) + soak_minutes:.1f}"


def digest_inputs(inventory: str, supplies: Mapping[str, str]) -> tuple[str, str]:
    """SHA-256 of the inventory with the catalogue and patches next to it, and of the locks and bundles of all boxes."""
    path = Path(inventory).absolute()
    content = hashlib.sha256()
    files = [path, *(one for noun in ("catalog", "patches") for one in sorted((path.parent / noun).rglob("*")))]
    for one in files:
        if one.is_file():
            text = read_content(one, MAX_INVENTORY_BYTES)
            content.update(f"{one.relative_to(path.parent)}\0{len(text)}\0".encode() + text)
    supply = "\n".join(f"{name} {digest}" for name, digest in sorted(supplies.items()))
    return content.hexdigest(), hashlib.sha256(supply.encode()).hexdigest()
