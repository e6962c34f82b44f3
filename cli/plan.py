"""`rigwright plan`: what a deploy of an inventory will do."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass

import click

from checks.looking import Box, boxes, each
from cli.completing import LIMIT
from cli.declared import INVENTORY
from cli.ending import absent, leave
from cli.tables import paragraph, show, size
from rigwright.containers.plan import Refused as NoContainers
from rigwright.containers.plan import container_plan
from rigwright.gateway import host_keys, keyring
from rigwright.gateway import told as gateway
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.holders import sentences
from rigwright.nvidia.driver import told
from rigwright.nvidia.driver.choice import DriverPlan, Refused, driver_plan
from rigwright.nvidia.driver.found import DriverFacts
from rigwright.nvidia.driver.told import as_row
from rigwright.plan import plan as planning
from rigwright.plan.desired import Desired, desired
from rigwright.plan.noted import other_cards
from rigwright.plan.plan import Plan
from rigwright.plan.preflight import evidence, refusals, warnings
from rigwright.serving.differences import changes, down
from rigwright.serving.theirs import Found, leaving
from rigwright.supply.expected import spoken


@dataclass(frozen=True)
class Planned:
    """What `plan` says of one host."""

    plan: Plan
    refused: list[str]
    warnings: list[str]
    driver: tuple[Rig, DriverFacts, DriverPlan | Refused] | None
    """What is there, and what a managed one comes to; None for a rig without cards."""
    lent: list[str]
    """Of cards that are lent: which ones, and who uses them."""
    gateway: list[str]
    """Who will reach what through its gateway."""
    evidence: list[str]
    """What is known of the variants that it serves."""
    changed: list[str]
    """Of instances that are interrupted: by what, and for how long."""
    digest: str
    """The one of the rig's lock and bundle."""


def planned(box: Box, theirs: Found | None = None) -> Planned:
    """What a deploy would do to a box.

    Args:
        box: The box.
        theirs: What is stopped before anything of ours starts there.
    """
    managed = box.rig.driver.managed
    looks = [*(["driver_facts"] if box.rig.cards or managed else []), *(["holders"] if box.rig.lent else [])]
    looks += ["containers"] if box.rig.containers else []
    looks += ["gateway_secrets"] if box.rig.gateway else []
    box = box.ahead("facts", "served", "written", "use", *looks)
    facts, found = box.facts(), box.served()
    facts = leaving(facts, theirs) if theirs else facts
    driver, brought = None, None
    refused: list[str] = []
    if box.rig.cards or managed:
        there = box.driver_facts()
        chosen = driver_plan(box.rig, there)
        driver = (box.rig, there, chosen)
        if managed and isinstance(chosen, Refused):
            refused += chosen.reasons
        elif managed and isinstance(chosen, DriverPlan):
            brought = (there, chosen)
    containers, notes = None, warnings(box.rig, facts) + other_cards(box.rig)
    if box.rig.containers:
        these = container_plan(box.rig, box.containers())
        if isinstance(these, NoContainers):
            refused += these.reasons
        else:
            containers = (box.containers(), these)
            notes += these.notes
    wanted = desired(box.rig, facts, brought, containers)
    refused = [*map(str, box.rig.bundle_faults), *refusals(wanted, time.time()), *refused]
    refused += _keys_refusals(box)
    made = planning.plan(wanted, found)
    lent = sentences(box.rig, box.holders().borrowers if box.rig.lent else (), ended=made.reboots)
    return Planned(
        made,
        refused,
        notes,
        driver,
        lent,
        gateway.sentences(box.rig),
        evidence(box.rig),
        _changed(box, wanted, made),
        box.rig.digest,
    )


def _keys_refusals(box: Box) -> list[str]:
    """Why the box does not take its gateway's keys from their file: it has newer ones."""
    if not box.rig.gateway:
        return []
    file = host_keys.keys_file(box.rig, box.rig.gateway)
    refusal = host_keys.describe_refusal(
        file,
        keyring.load(file),
        box.gateway_secrets(),
        lambda: box.read(host_keys.having, host_keys.having_script(box.rig)),
    )
    return [refusal] if refusal else []


def _changed(box: Box, wanted: Desired, made: Plan) -> list[str]:
    """What is done to instances that are interrupted."""
    if not made.interrupted:
        return []
    written, use, said = box.written(), box.use(), list[str]()
    units = {one.name: one for one in wanted.generation.units}
    for name in made.interrupted:
        if name not in units:
            others = {state.unit for state in wanted.generation.unit_states}
            what = "(restart)" if name in others else "not declared any more (stop)"
            said.append(f"{_instance(name)}: {what}")
            continue
        found = changes(units[name], *written[name]) if name in written else []
        why = "; ".join(found) or ("reboot" if made.reboots else "same settings")
        said.append(f"{_instance(name)}: {why} (restart, {down(use[name].start_seconds if name in use else None)})")
    return said


def _instance(unit: str) -> str:
    return unit.removeprefix("rigwright-").removesuffix(".service")


@click.command()
@INVENTORY
@LIMIT
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def plan(inventory: str, limit: str | None, as_json: bool) -> None:
    """What a deploy of INVENTORY will do to each host, why, how much it fetches, and which instances it interrupts.

    Of a driver that is not managed it says what a managed one would be, as advice. Nothing is changed. Exit status 1
    when a host would be refused, 2 where the command or a file is, 3 when a host cannot be reached.
    """
    found, gone = boxes(inventory, limit)
    seen = dict(zip([box.name for box in found], each(found, planned), strict=True))
    if as_json:
        rows = [
            {
                "host": name,
                "reached": True,
                "refused": one.refused,
                "warnings": one.warnings,
                "steps": [vars(step) for step in one.plan.steps],
                "fetched_bytes": one.plan.fetched_bytes,
                "interrupted": list(one.plan.interrupted),
                "digest": one.digest,
                "lent": one.lent,
                "gateway": one.gateway,
                "evidence": one.evidence,
                "changed": one.changed,
                "driver": as_row(*one.driver) if one.driver else None,
            }
            for name, one in seen.items()
        ]
        click.echo(json.dumps(rows + absent(gone), indent=2))
    else:
        _show(seen)
    leave(gone)
    sys.exit(1 if any(one.refused for one in seen.values()) else 0)


def _show(seen: dict[str, Planned]) -> None:
    rows: list[tuple[str, ...]] = []
    notes = []
    for name, one in seen.items():
        made = one.plan
        rows += [
            (name, step.role, step.what, step.why, size(step.fetched_bytes) if step.fetched_bytes else "")
            for step in made.steps
        ]
        notes += [f"{name}: refused: {reason}" for reason in one.refused]
        notes += [f"{name}: {text}" for text in one.warnings]
        notes += [f"{name}: evidence: {text}" for text in one.evidence]
        notes += [f"{name}: driver: {text}" for text in told.sentences(*one.driver)] if one.driver else []
        notes += [f"{name}: lent: {text}" for text in one.lent]
        notes += [f"{name}: gateway: {text}" for text in one.gateway]
        if not made.steps:
            notes.append(
                f"{name}: nothing to do (folders, users, keys, modes and cards are looked at by `deploy --dry`)"
            )
            continue
        notes += [f"{name}: {text}" for text in one.changed]
        if not made.interrupted:
            notes.append(f"{name}: interrupts nothing that is served now")
        if made.fetched_bytes:
            amount, source = size(made.fetched_bytes), made.bundle_folder
            how = f"gets {amount} from {source}" if source else f"fetches {amount} by the lock"
            notes.append(f"{name}: {how}, beside packages and tools")
    if rows:
        show(("host", "role", "what", "why", "fetched"), rows)
    for digest in dict.fromkeys(one.digest for one in seen.values()):
        whose = ", ".join(name for name, one in seen.items() if one.digest == digest)
        notes.append(f"{whose}: lock and bundle have the digest {spoken(digest)}")
    for note in notes:
        paragraph(note)
