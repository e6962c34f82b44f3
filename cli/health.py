"""`rigwright health`: how every instance is doing now, in detail, once or again and again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import count

import click

from checks.connections import ConnectedHost, map_hosts
from checks.results import STATUS, Conforms, worst_verdict
from cli import exit_codes
from cli.instance_access import INSTANCE_OPTION, connect_boxes, select_instances
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.observed_box import ObservedBox, next_command, observe_host
from cli.shell_completion import LIMIT_OPTION
from cli.tables import format_duration, print_paragraph, print_prose
from rigwright.engines import kind_of
from rigwright.engines.log_causes import StartupFacts
from rigwright.operate import instance_health
from rigwright.operate.instance_health import CardUse, InstanceHealth
from rigwright.problems import format_count, printable
from roles.connection_failures import describe_unreachable_host

WATCH_INTERVAL_S = 5.0  # seconds between two looks
RUNNING = ("ready", "asleep", "silent", "wedged", "failing", "other generation")  # states of a unit that is up


@dataclass(frozen=True)
class HostHealth:
    """One host; what there is of it where it was reached."""

    name: str
    verdict: Conforms
    why: str = ""
    """Why nothing is known of it; empty where something is."""
    took_s: float = 0.0
    instances: list[InstanceHealth] = field(default_factory=list)
    cards: tuple[CardUse, ...] = ()
    cards_say: str = ""
    """What is wrong with cards, as nvidia-smi says it."""
    reboot: bool = False
    """Whether one is pending."""
    jobs: tuple[str, ...] = ()
    """Long work that is under way."""
    kv_tokens: Mapping[str, int] = field(default_factory=dict)
    """Instance -> tokens that its KV cache has room for, as its engine has said at its start."""


def collect_health(box: ConnectedHost, names: set[str]) -> HostHealth:
    """Look at a box; `box` has the facts by which its declared generation is known."""
    began = time.monotonic()
    observed = ObservedBox(box, *observe_host(box.target, box.rig))
    if observed.look is None:
        return HostHealth(box.name, "not reached", observed.why)
    try:
        instances = [observed.assess_health(one) for one in box.rig.instances if one.name in names]
    except click.ClickException as error:
        return HostHealth(box.name, "not reached", printable(error.message).removeprefix(f"{box.name}: "))
    there, say = instance_health.parse_card_uses(observed.look.cards)
    well = all(one.is_well for one in instances) and not say
    verdict: Conforms = "as declared" if well else "not as declared"
    took = round(time.monotonic() - began, 3)
    return HostHealth(box.name, verdict, "", took, instances, there, say, observed.look.reboot, observed.look.jobs)


def prefetch_declared(box: ConnectedHost) -> ConnectedHost:
    """The same box, with what it serves and the facts of it; without them where the connection is gone."""
    try:
        return box.prefetch("served", "facts")
    except click.ClickException:
        return box


def read_kv_capacity(box: ConnectedHost) -> dict[str, int]:
    """Instance -> tokens that its KV cache has room for; of those whose engine has said it."""
    try:
        said = box.read_serving_state().said
    except click.ClickException:
        return {}
    begun: dict[str, StartupFacts] = {
        one.name: kind_of(one).parse_startup(said.get(one.unit, ())) for one in box.rig.instances
    }
    return {name: one.kv_tokens for name, one in begun.items() if one.kv_tokens}


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@INSTANCE_OPTION
@click.option("--json", "as_json", is_flag=True, help="For programs; with --watch a line each time.")
@click.option("--watch", is_flag=True, help=f"Look again every {WATCH_INTERVAL_S:g} s, until interrupted.")
def health(inventory: str, limit: str | None, instance: tuple[str, ...], as_json: bool, watch: bool) -> None:
    """Name the state of every instance of INVENTORY: ready, starting, silent, wedged, failing, failed, or stopped.

    One look takes less than a second a box: each engine is asked for one token, and what it counts is read. An engine
    without an answer is waited for 5 s more. Exit status 0: all are ready. 1: one is not, or a card is sick. 2:
    refused. 3: a host cannot be reached.
    Example: rigwright health ~/boxes/rig.py --watch
    """
    found, gone = connect_boxes(inventory, limit, instance)
    names = {(box.name, one.name) for box, one in select_instances(found, instance)}
    if watch:
        exit_codes.exit_on_interrupt()
    found = map_hosts(found, prefetch_declared)
    room = dict(zip((box.name for box in found), map_hosts(found, read_kv_capacity), strict=True))
    earlier: dict[tuple[str, str], tuple[float, float | None]] = {}
    for number in count():
        began = time.monotonic()
        hosts = map_hosts(found, lambda box: collect_health(box, {name for host, name in names if host == box.name}))
        hosts += [HostHealth(name, "not reached", describe_unreachable_host(why)) for name, why in gone.items()]
        rates = _token_rates(hosts, earlier, began)
        if as_json:
            click.echo(json.dumps([asdict(one) for one in hosts], indent=None if watch else 2))
        else:
            if watch:
                click.echo(f"{chr(10) * (number > 0)}{time.strftime('%H:%M:%S')}")
            for host in hosts:
                _print_health(host, inventory, room.get(host.name, {}), rates)
        if not watch:
            sys.exit(STATUS[worst_verdict([host.verdict for host in hosts])])
        time.sleep(max(0.0, WATCH_INTERVAL_S - (time.monotonic() - began)))


def _token_rates(
    hosts: list[HostHealth], earlier: dict[tuple[str, str], tuple[float, float | None]], now: float
) -> dict[tuple[str, str], float]:
    """Tokens a second since the look before, which is longer than one look."""
    found = {}
    for host in hosts:
        for one in host.instances:
            key, tokens = (host.name, one.instance), one.metrics.tokens
            then, before = earlier.get(key, (0.0, None))
            if tokens is not None and before is not None and tokens >= before:
                found[key] = (tokens - before) / (now - then)
            elif one.tokens_a_second is not None:
                found[key] = one.tokens_a_second
            earlier[key] = (now, tokens)
    return found


def describe_counters(one: InstanceHealth, room: int | None, rate: float | None) -> list[str]:
    """What an engine counts, in words; what it does not count is left out."""
    now, found = one.metrics, []
    if now.kv_used is not None:
        found.append(f"KV cache {now.kv_used:.0%}" + (f" of {room:,} tokens" if room else ""))
    elif one.is_well:
        found.append("KV cache n/a")
    if now.running is not None:
        found.append(f"{now.running:.0f} running, {now.waiting or 0:.0f} waiting")
    if rate is not None:
        found.append(f"{rate:.1f} tokens/s")
    if (length := now.accept_length()) is not None:
        found.append(f"accept length {length:.2f}")
    if (hits := now.hit_rate()) is not None:
        found.append(f"prefix hits {hits:.0%}")
    if now.preemptions:
        found.append(f"{format_count(round(now.preemptions), 'preemption')}")
    return found


def describe_card(card: CardUse) -> str:
    """A card in words; what it does not say is left out."""
    parts = []
    if card.used_mib is not None and card.total_mib:
        parts.append(f"{card.used_mib / 1024:.1f} of {card.total_mib / 1024:.1f} GiB")
    if card.power_w is not None:
        parts.append(f"{card.power_w:.0f}" + (f" of {card.limit_w:.0f} W" if card.limit_w is not None else " W"))
    if card.temperature_c is not None:
        parts.append(f"{card.temperature_c:.0f} C")
    if card.busy_percent is not None:
        parts.append(f"{card.busy_percent:.0f} % busy")
    return f"GPU {card.index}: {', '.join(parts)}"


def _print_health(
    host: HostHealth, inventory: str, room: Mapping[str, int], rates: Mapping[tuple[str, str], float]
) -> None:
    if host.why:
        print_paragraph(f"{host.name}: {host.why}", hang=4)
        return
    for one in host.instances:
        colour = "green" if one.is_well else "red"
        state = click.style(one.state, fg=colour)
        # whoever runs may be silent for less long than its unit is up
        since = ", up" if one.state in RUNNING else " for"
        lasts = (
            f"{since} {format_duration(one.since_s)}" if one.since_s is not None and one.state != "not deployed" else ""
        )
        again = f", restarted {format_count(one.restarts, 'time')}" if one.restarts else ""
        print_prose(f"{host.name}  {one.instance}: {state}{lasts}{again}")
        if one.note:
            print_paragraph(printable(one.note), lead=" " * 4)
        if command := next_command(one.assessed, inventory, host.name):
            click.echo(f"    next: {printable(command)}")
        if line := "; ".join(describe_counters(one, room.get(one.instance), rates.get((host.name, one.instance)))):
            print_paragraph(line, lead=" " * 4)
        for error in one.errors:
            print_paragraph(printable(error), lead=" " * 4)
    for card in host.cards:
        print_paragraph(f"{host.name}  {describe_card(card)}", hang=4)
    for line in (host.cards_say, "a reboot is pending" if host.reboot else "", *(f"{job} runs" for job in host.jobs)):
        if line:
            print_paragraph(f"{host.name}: {printable(line)}", hang=4)
