"""`rigwright plan`: the changes of a deploy of an inventory."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from checks.connections import ConnectedHost, map_inventory
from checks.required_check_ids import declared_digest
from cli.exit_codes import exit_if_unreached, unreached_rows
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.observed_box import observe_box
from cli.shell_completion import LIMIT_OPTION
from cli.tables import format_size, print_prose, print_records, shorten_digest
from rigwright.check_waivers import find_deploy_faults
from rigwright.containers.container_plan import ContainerRefusal, plan_containers
from rigwright.engines.environment_installer import find_installer
from rigwright.gateway import deployed_keys, keyring, served_models
from rigwright.model.instance import instance_of
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.nvidia_tables import DriverSupply
from rigwright.nvidia.cards.card_facts import describe_borrowers
from rigwright.nvidia.driver import driver_summary
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.driver.driver_plan import DriverPlan, DriverRefusal, plan_driver
from rigwright.nvidia.driver.driver_summary import driver_plan_record
from rigwright.nvidia.packages.bundled_driver import require_bundled_driver
from rigwright.operate.instance_state import AssessedState
from rigwright.plan import stages
from rigwright.plan.plan_inputs import TargetState, build_target_state
from rigwright.plan.preflight import describe_other_cards, describe_variant_evidence, find_refusals, find_warnings
from rigwright.plan.stages import DeployPlan
from rigwright.problems import format_count, printable
from rigwright.serving.takeover import ExistingServiceFacts, without_ports_of
from rigwright.serving.unit_diff import compare_units, describe_downtime_seconds, describe_restart


@dataclass(frozen=True)
class HostPlan:
    """The plan of one host."""

    plan: DeployPlan
    refused: list[str]
    warnings: list[str]
    driver: tuple[DriverEntry, DriverSupply, DriverFacts, DriverPlan | DriverRefusal] | None
    """The installed driver, and the target of a managed one; None for a rig without cards."""
    reserved_gpus: list[str]
    """The reserved cards and the processes that use them."""
    gateway: list[str]
    """The clients, models and addresses of its gateway."""
    evidence: list[str]
    """The evidence of the variants that it serves."""
    changed: list[str]
    """Of instances that are interrupted: by what, and for how long."""
    digest: str
    """The one of the rig's lock and bundle."""
    states: list[str]
    """The states of instances that are not ready now, a sentence each."""
    unverified: list[str]
    """Parts of what a deploy owns that changed since its checks last passed."""
    generation: int | None = None
    """The served one; None for none."""
    instance_states: Mapping[str, AssessedState] = field(default_factory=dict)
    """Declared instance -> its state."""
    compiled: Mapping[str, bool] = field(default_factory=dict)
    """Folder of an engine that is compiled -> whether the host has it."""
    unbundled: DriverPlan | DriverRefusal | None = None
    """The target of the driver if the bundle does not count: a rollback installs kept files."""


def plan_box(box: ConnectedHost, theirs: ExistingServiceFacts | None = None, *, upgrading: bool = False) -> HostPlan:
    """The changes of a deploy to a box.

    Args:
        box: The box.
        theirs: The services that are stopped before anything of ours starts there.
        upgrading: Whether the deploy also moves the driver to the locked one.
    """
    managed = box.rig.driver.managed
    looks = [*(["driver_facts"] if box.rig.cards or managed else []), *(["holders"] if box.rig.reserved_gpus else [])]
    looks += ["containers"] if box.rig.containers else []
    looks += ["gateway_secrets"] if box.rig.gateway else []
    observed = observe_box(box, "served", "written", "use", "owned_state", *looks)
    box = observed.box
    facts, found = box.read_facts(), box.read_serving_state()
    facts = without_ports_of(facts, theirs) if theirs else facts
    driver, brought, unbundled = None, None, None
    refused: list[str] = []
    if box.rig.cards or managed:
        there = box.read_driver_facts()
        entry, supply = box.rig.driver, box.rig.driver_supply
        chosen = plan_driver(box.rig.cards, entry, supply, box.rig.toolkit, there, upgrading=upgrading)
        unbundled = chosen
        if managed and box.rig.bundle:
            chosen = require_bundled_driver(box.rig.bundle, supply, there, chosen, upgrading=upgrading)
        driver = (entry, supply, there, chosen)
        if managed and isinstance(chosen, DriverRefusal):
            refused += chosen.reasons
        elif managed and isinstance(chosen, DriverPlan):
            brought = (there, chosen)
    containers, notes = None, find_warnings(box.rig, facts) + describe_other_cards(box.rig.cards, box.rig.envs)
    if box.rig.containers:
        these = plan_containers(
            box.rig.roots,
            box.rig.cards,
            box.rig.containers,
            box.rig.container_supply,
            box.rig.bundle,
            box.rig.bundle_folder,
            box.read_container_facts(),
        )
        if isinstance(these, ContainerRefusal):
            refused += these.reasons
        else:
            containers = (box.read_container_facts(), these)
            notes += these.notes
    wanted = build_target_state(box.rig, facts, brought, containers)
    refused = [*map(str, find_deploy_faults(box.rig)), *find_refusals(wanted, time.time()), *refused]
    refused += _keys_refusals(box)
    made = stages.plan_deploy(wanted, found)
    reserved_gpus = describe_borrowers(
        box.rig.reserved_gpus,
        box.rig.driver,
        box.read_card_holders().borrowers if box.rig.reserved_gpus else (),
        ended=made.reboots,
    )
    instance_states = {one.name: observed.assess_state(one) for one in box.rig.instances}
    return HostPlan(
        made,
        refused,
        notes,
        driver,
        reserved_gpus,
        served_models.describe_access(box.rig.instances, box.rig.gateway),
        describe_variant_evidence(box.rig.cards, box.rig.instances),
        _describe_changes(box, wanted, made),
        box.rig.digest,
        [state.describe() for state in instance_states.values() if not state.is_ready],
        box.read_owned_state().find_changes(declared_digest(box.rig.digest, wanted.generation.digest))
        if found.current
        else [],
        found.current,
        instance_states,
        {
            one.folder: one.folder in facts.built_engines
            for one in wanted.installations.values()
            if find_installer(box.rig.instances, one).compiles
        },
        unbundled,
    )


def _keys_refusals(box: ConnectedHost) -> list[str]:
    """Why the box does not take its gateway's keys from their file: it has newer ones."""
    if not (box.rig.gateway and box.rig.gateway.serves_clients):
        return []
    file = deployed_keys.keys_file_path(box.rig.inventory, box.rig.gateway)
    refusal = deployed_keys.describe_refusal(
        file,
        keyring.load_keyring(file),
        box.read_gateway_secrets(),
        lambda: box.run_and_parse(deployed_keys.parse_deployed_keys, deployed_keys.render_keys_query(box.rig.roots)),
    )
    return [refusal] if refusal else []


def _describe_changes(box: ConnectedHost, wanted: TargetState, made: DeployPlan) -> list[str]:
    """The actions on instances that are interrupted."""
    if not made.interrupted:
        return []
    written, use, said = box.read_written_files(), box.read_resource_usage(), list[str]()
    processes = box.read_serving_state().processes
    units = {one.name: one for one in wanted.generation.units}
    for name in made.interrupted:
        if name not in units:
            others = {state.unit for state in wanted.generation.unit_states}
            what = "restart" if name in others else "no longer declared (stop)"
            said.append(f"{instance_of(name)}: {what}")
            continue
        found = compare_units(units[name], written[name]).describe() if name in written else []
        restart = describe_restart(processes.get(name), units[name].unit_state.started_from)
        why = "; ".join(found) or ("reboot" if made.reboots else restart)
        said.append(
            f"{instance_of(name)}: {why} (restart, "
            f"{describe_downtime_seconds(use[name].start_seconds if name in use else None)})"
        )
    return said


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def plan(inventory: str, limit: str | None, as_json: bool) -> None:
    """Preview a deploy.

    Lists each step with its reason, the bytes to fetch and the instances that it interrupts. Changes nothing.
    Exit status: 0, a deploy can run. 1, a deploy would refuse a host. 2, the command or the inventory is refused. 3, a
    host was not reached.
    Example: rigwright plan rig.py
    """
    found, gone = map_inventory(inventory, limit, plan_box)
    seen = {box.name: one for box, one in found}
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
                "unverified": one.unverified,
                "lent": one.reserved_gpus,
                "gateway": one.gateway,
                "evidence": one.evidence,
                "changed": one.changed,
                "states": one.states,
                "driver": driver_plan_record(*one.driver) if one.driver else None,
            }
            for name, one in seen.items()
        ]
        click.echo(json.dumps(rows + unreached_rows(gone), indent=2))
    else:
        _print_plans(seen)
    exit_if_unreached(gone)
    sys.exit(1 if any(one.refused for one in seen.values()) else 0)


def _print_plans(seen: dict[str, HostPlan]) -> None:
    for name, one in seen.items():
        steps = [
            (step.role, step.what, step.why, format_size(step.fetched_bytes) if step.fetched_bytes else "")
            for step in one.plan.steps
        ]
        if steps:
            print_records(f"{name}: {format_count(len(steps), 'step')}", ("why", "fetched"), steps)
        for note in _describe_plan(one):
            print_prose(f"{name}: {printable(note)}")
    for digest in dict.fromkeys(one.digest for one in seen.values()):
        hosts = ", ".join(name for name, one in seen.items() if one.digest == digest)
        print_prose(f"{hosts}: lock and bundle have the digest {shorten_digest(digest)} (complete in `plan --json`)")


def _describe_plan(one: HostPlan) -> list[str]:
    """The facts of a plan about a host in addition to its steps, a line each."""
    made = one.plan
    notes = [*one.states, *(f"refused: {reason}" for reason in one.refused), *one.warnings]
    notes += [f"evidence: {text}" for text in one.evidence]
    notes += [f"driver: {text}" for text in driver_summary.describe_driver_plan(*one.driver)] if one.driver else []
    notes += [f"lent: {text}" for text in one.reserved_gpus]
    notes += [f"gateway: {text}" for text in one.gateway]
    if one.unverified:
        changed = ", ".join(one.unverified)
        repairs = "a deploy repairs what it owns (`deploy --dry` lists repairs)"
        notes.append(f"no deploy has verified this state since the boot: {changed}; {repairs}")
    if not made.steps:
        return [*notes, "nothing to do (`deploy --dry` also compares folders, users, keys, modes and cards)"]
    notes += one.changed
    if not made.interrupted:
        notes.append("interrupts no instance")
    if made.fetched_bytes:
        amount, source = format_size(made.fetched_bytes), made.bundle_folder
        how = f"gets {amount} from {source}" if source else f"fetches {amount} by the lock"
        notes.append(f"{how}, plus packages and tools")
    return notes
