"""`rigwright status`: the state of every instance, what it serves and whether that is declared, once or repeatedly."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any

import click

from checks.connections import ConnectedHost, UnreachableHosts, connect_and_map, map_hosts
from checks.testinfra_backend import UnknownHost, load_hosts
from cli import exit_codes
from cli.exit_codes import InvalidRequest
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.observed_box import observe_box, observe_host
from cli.option_types import JSON_OPTION
from cli.prog_name import with_typed_inventory
from cli.shell_completion import INSTANCE_OPTION, LIMIT_OPTION
from cli.status_table import HostStatus, InstanceStatus, describe_hosts, print_status_table
from cli.tables import print_paragraph, print_prose
from rigwright.declaration.shared_resolution import share_resolutions
from rigwright.engines import kind_of
from rigwright.engines.log_causes import StartupFacts
from rigwright.gateway.secrets_distribution import GATEWAY_UNIT, HEALTH_UNIT, KEEPALIVED_UNIT, ROUTER_UNIT
from rigwright.inventory import load_rig, tolerate_problems
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance, instance_of
from rigwright.operate import instance_health
from rigwright.operate.instance_health import HealthFacts, InstanceHealth
from rigwright.operate.instance_state import StateFacts, assess_state
from rigwright.problems import Invalid, Problem, describe_unknown, format_count, printable
from rigwright.pull.pull_facts import describe_pull
from rigwright.serving.activation import goal_for
from rigwright.serving.serving_state import INSTANCE, ObservedServing, ObservedUnit
from roles.connection_failures import describe_unreachable_host
from roles.progress import progress

NAMED_HOSTS = 3  # that a line of progress names; of more it has the number
WATCH_INTERVAL_S = 5.0  # seconds between two looks


@dataclass(frozen=True)
class UndeclaredHost:
    """A host that is reached, and whose declaration cannot be read."""

    name: str
    target: Any


def collect_status(box: ConnectedHost, names: Collection[str] = ()) -> HostStatus:
    """Observe a box; with names, these instances alone."""
    began = time.monotonic()
    try:
        observed = observe_box(box, "served", "holder")
        box, look = observed.box, observed.look
        found = box.read_serving_state()
        desired, holder = box.resolve_desired(), box.read_lock_holder()
        aim = goal_for(found, desired.generation)
    except click.ClickException as error:
        return HostStatus(box.name, False, printable(error.message).removeprefix(f"{box.name}: "))
    ports = {held.leads_to: held.port for name in found.processes if (held := found.held_state(name)) and held.leads_to}
    declared = {i.unit: i for i in box.rig.instances}
    runs = {unit: _with_served_variant(box, one, found) for unit, one in declared.items()}
    there = {n for n, p in found.processes.items() if INSTANCE.fullmatch(n) and p.state != "inactive"}
    rows = []
    listed = {unit for unit, one in declared.items() if one.name in names} if names else {*declared, *there}
    for name in sorted(listed):
        instance = runs.get(name)
        held = found.held_state(name)
        capacity = instance.variant.capacity if instance else None
        begun = kind_of(instance).parse_startup(found.said.get(name, ())) if instance else StartupFacts()
        one = observed.assess_health(instance) if instance else _undeclared_health(name, look)
        unit = look.units.get(name) if look else None
        rows.append(
            InstanceStatus(
                **vars(one),
                variant=instance.variant_name if instance else "not declared",
                declared=declared[name].variant_name if name in declared else "",
                current=bool(instance and unit and unit.runs_declared(observed.declared.get(name)))
                or bool(instance and instance.is_on_demand and one.state == "asleep"),
                # one of before it had a socket listens there itself
                port=ports.get(name) or (held.port if held else 0) or None,
                cards=sorted(held.cards) if held else [],
                slots=capacity[0] if capacity else None,
                context_per_sequence=capacity[1] if capacity else None,
                kv_tokens=begun.kv_tokens,
                backend=begun.backend,
                load_seconds=begun.load_seconds,
            )
        )
    gpus, say = instance_health.parse_card_uses(look.cards) if look else ((), "")
    return HostStatus(
        host=box.name,
        reached=not observed.why,
        why=observed.why,
        generation=found.current,
        declared=aim.number is not None and aim.number == found.current,
        activation_cut_off=found.activating and not found.job,
        activation_failed=any(one.number == found.current and not one.proven for one in found.generations)
        and not found.job,
        at_work=f"{holder.who} since {holder.since}: {holder.doing}" if holder and holder.who else "",
        instances=rows,
        gateway=_gateway_state(box.rig.gateway, found, desired.facts.addresses),
        gateway_down=not {"not there", "inactive", "failed"}.isdisjoint(_gateway_states(found, box.rig.gateway)),
        gpus=gpus,
        gpus_say=say,
        jobs=look.jobs if look else (),
        pull=describe_pull(desired.facts.pull) if desired.facts.pull else "",
        reboot=bool(look and look.reboot),
        took_s=round(time.monotonic() - began, 3),
    )


def _undeclared_health(unit: str, look: HealthFacts | None) -> InstanceHealth:
    """An instance that nothing declares: it is not asked for a token."""
    name = instance_of(unit)
    seen = look.units.get(unit) if look else None
    one = assess_state(name, StateFacts(unit=seen))
    unit_facts = (seen.since_s, seen.restarts, seen.memory) if seen else ()
    return InstanceHealth(name, one.state, one.note, *unit_facts)


def _with_served_variant(box: ConnectedHost, declared: Instance, found: ObservedServing) -> Instance:
    """An instance with the variant and the cards that the host serves it with; as declared where nothing serves it, or
    the catalogue does not have that variant any more.
    """
    serves = found.served_variants.get(declared.name, declared.variant_name)
    cards = found.cards_by_instance.get(declared.name, declared.cards)
    if (serves, cards) == (declared.variant_name, declared.cards):
        return declared
    # here, for most hosts serve what is declared
    from rigwright.declaration.variant_selection import VariantSwitch, apply_switch

    try:
        rig = load_rig(apply_switch(box.target.data.get("rig"), VariantSwitch(declared.name, serves, cards)))
    except Invalid:
        return replace(declared, variant_name=serves, cards=cards)
    return next(one for one in rig.instances if one.name == declared.name)


def _undeclared_status(host: UndeclaredHost) -> HostStatus:
    """The state of a host without a known declaration."""
    seen, why = observe_host(host.target, None)
    if seen is None:
        return HostStatus(host.name, False, why)
    gpus, say = instance_health.parse_card_uses(seen.cards)
    rows = [
        InstanceStatus(**vars(_undeclared_health(unit, seen)))
        for unit in sorted(seen.units)
        if INSTANCE.fullmatch(unit)
    ]
    more = {"gpus": gpus, "gpus_say": say, "jobs": seen.jobs, "reboot": seen.reboot}
    return HostStatus(host.name, True, instances=rows, at_work="another process" if seen.holder else "", **more)  # type: ignore[arg-type]


def _gateway_state(gateway: Gateway | None, found: ObservedServing, addresses: Collection[str] = ()) -> str:
    if not gateway:
        return ""
    states = _gateway_states(found, gateway)
    places = [place for one in gateway.listeners.values() for place in one.addresses]
    links = gateway.fleet
    places += [links.listener.endpoint] if links.listener else []
    others = f", with {', '.join(one.name for one in links.remote)}" if links.remote else ""
    shared = ""
    if pair := links.pair:
        shared = f"; has {'' if pair.address in addresses else 'not '}{pair.address}, shared with {pair.partner}"
    return f"{' and '.join(sorted(states))}, on {', '.join(sorted(places))}{others}{shared}"


def _gateway_states(found: ObservedServing, gateway: Gateway | None) -> set[str]:
    if not gateway:
        return set()
    units = (GATEWAY_UNIT, ROUTER_UNIT, *([HEALTH_UNIT, KEEPALIVED_UNIT] if gateway.fleet.pair else []))
    return {_process_state(found.processes.get(unit)) for unit in units}


def _process_state(process: ObservedUnit | None) -> str:
    if process is None:
        return "not there"
    return process.state if process.state in ("active", "inactive", "failed") else f"{process.state} ({process.sub})"


def connect_hosts(
    inventory: str,
    limit: str | None,
    names: Collection[str] = (),
    report: Callable[[list[Problem]], object] = lambda problems: None,
    look: Callable[[ConnectedHost], object] = lambda box: None,
) -> tuple[list[ConnectedHost], list[UndeclaredHost], UnreachableHosts, list[Problem]]:
    """Connected hosts with a valid declaration, those with an invalid one, unreachable hosts, and the problems.

    Args:
        inventory: The file.
        limit: Which hosts of it.
        names: Instances that these hosts must declare.
        report: Is called with the problems before a host is contacted.
        look: Is called with each host that has a valid declaration as soon as it is connected.

    Raises:
        InvalidRequest: the inventory lists no hosts, their connections are refused, or an instance is unknown.
    """
    rigs, problems = {}, []
    with tolerate_problems() as wrong:
        try:
            state, targets = load_hosts(inventory, limit)
        except (UnknownHost, SystemExit) as error:
            raise InvalidRequest(str(error)) from None
        with share_resolutions():
            for name, target in targets.items():
                try:
                    rigs[name] = load_rig(target.data.get("rig"))
                except Invalid as error:
                    problems += error.problems
        known = {one.name for rig in rigs.values() for one in rig.instances}
        if unknown := [f"--instance: {describe_unknown('instance', one, known)}" for one in names if one not in known]:
            raise InvalidRequest("\n".join(unknown))
        found = sorted({*wrong, *problems})
        report(found)
        subject = ", ".join(targets) if len(targets) <= NAMED_HOSTS else format_count(len(targets), "host")
        with progress.task(subject, "connecting", quiet=True):
            declared = {name: ConnectedHost(name, rig, targets[name]) for name, rig in rigs.items()}
            _, gone = connect_and_map(state, targets, lambda name: look(declared[name]) if name in declared else None)
    reached = {name: target for name, target in targets.items() if name not in gone}
    boxes = [declared[name] for name in reached if name in declared]
    invalid = [UndeclaredHost(name, target) for name, target in reached.items() if name not in rigs]
    return boxes, invalid, gone, found


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@INSTANCE_OPTION
@click.option("--watch", is_flag=True, help=f"Repeat every {WATCH_INTERVAL_S:g} s until interrupted.")
@click.option("--verbose", "-v", is_flag=True, help="Also print what engines reported at their start.")
@JSON_OPTION
def status(
    inventory: str, limit: str | None, instance: tuple[str, ...], watch: bool, verbose: bool, as_json: bool
) -> None:
    """Show what hosts serve.

    The state of each instance, its variant, whether it runs as declared, and the cause and next command if not. Each
    engine is asked for one token: this takes less than a second. Also works with an invalid inventory.
    Exit status: 0, all instances are ready and as declared. 1, one is not, or a card is faulty. 2, the command or the
    inventory is refused. 3, a host was not reached.
    Example: rigwright status rig.py --watch
    """
    known: dict[str, HostStatus] = {}

    def look(box: ConnectedHost) -> None:
        known[box.name] = collect_status(box, instance)

    boxes, invalid, gone, problems = connect_hosts(inventory, limit, instance, _print_problems, look)
    if watch:
        exit_codes.exit_on_interrupt()
    earlier: dict[tuple[str, str], tuple[float, float | None]] = {}
    for number in count():
        began = time.monotonic()
        if number:
            map_hosts(boxes, look)
        seen = [*(known[box.name] for box in boxes), *map(_undeclared_status, invalid)]
        seen += [HostStatus(name, False, describe_unreachable_host(why)) for name, why in gone.items()]
        seen = [with_token_rates(one, earlier, began) for one in seen]
        if as_json:
            click.echo(json.dumps([asdict(one) for one in seen], indent=None if watch else 2))
        else:
            if watch:
                click.echo(f"{chr(10) * (number > 0)}{time.strftime('%H:%M:%S')}")
            print_status_table(seen)
            for line in describe_hosts(seen, inventory, verbose=verbose):
                print_paragraph(line)
        if not watch:
            break
        time.sleep(max(0.0, WATCH_INTERVAL_S - (time.monotonic() - began)))
    verdicts = {one.exit_status for one in seen}
    sys.exit(3 if 3 in verdicts else 2 if problems else max(verdicts, default=0))


def _print_problems(problems: list[Problem]) -> None:
    for problem in problems:
        print_prose(with_typed_inventory(str(problem), click.get_current_context()), err=True)


def with_token_rates(
    host: HostStatus, earlier: dict[tuple[str, str], tuple[float, float | None]], now: float
) -> HostStatus:
    """A host with tokens a second since the previous look, if there was one; a look itself is shorter.

    Args:
        host: The host.
        earlier: Host and instance -> time in s and token count of the previous look; gets this one's.
        now: Time of this look in s.
    """
    rows = []
    for one in host.instances:
        then, before = earlier.get((host.host, one.instance), (0.0, None))
        tokens = one.metrics.tokens
        if tokens is not None and before is not None:
            rate = (tokens - before) / (now - then) if tokens >= before else None
            one = replace(one, tokens_a_second=rate)
        earlier[host.host, one.instance] = (now, tokens)
        rows.append(one)
    return replace(host, instances=rows)
