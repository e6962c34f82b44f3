"""`rigwright status`, `generations` and `logs`: what hosts do now, and did."""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import asdict, dataclass

import click
import gevent
from gevent.queue import Queue

from checks.looking import Box, Rigs, boxes, each, leave
from cli import interrupts
from cli.declared import INVENTORY, LIMIT
from cli.tables import show, size
from rigwright.declaration.rig import Rig
from rigwright.engines.log import Begun, betrayed
from rigwright.gateway.given import GATEWAY_UNIT, ROUTER_UNIT
from rigwright.problems import printable, unknown
from rigwright.serving.activation import goal
from rigwright.serving.live import Process, Served
from roles import root

JSON = click.option("--json", "as_json", is_flag=True, help="For programs.")
UNIT = re.compile(r"rigwright-[a-z0-9][a-z0-9-]{0,47}\.service")


@dataclass(frozen=True)
class Row:
    """One instance."""

    instance: str
    variant: str
    port: int | None
    cards: list[int]
    slots: int | None
    context_per_sequence: int | None
    state: str
    since: str
    restarts: int
    memory_bytes: int | None
    kv_tokens: int | None
    """Tokens that its KV cache has room for, as its engine has said."""
    backend: str
    """What computes attention, likewise."""
    load_seconds: float | None
    current: bool
    """Whether its process was started from what the inventory declares."""


@dataclass(frozen=True)
class Status:
    """One host."""

    host: str
    generation: int | None
    declared: bool
    """Whether that generation is the inventory's."""
    activation_cut_off: bool
    at_work: str
    """Who holds the deploy lock, since when, doing what."""
    instances: list[Row]
    gateway: str
    """How the gateway is doing and where it listens; empty without one."""


def _status(box: Box) -> Status:
    box = box.ahead("served", "facts", "use", "holder")
    found = box.served()
    aim = goal(found, box.desired().generation)
    use, holder = box.use(), box.holder()
    states = {state.unit: state for state in aim.unit_states}
    ports = {held.leads_to: held.port for name in found.processes if (held := found.held(name)) and held.leads_to}
    declared = {i.unit: i for i in box.rig.instances}
    rows = []
    for name in sorted(
        {*declared, *(n for n, p in found.processes.items() if UNIT.fullmatch(n) and p.state != "inactive")}
    ):
        instance = declared.get(name)
        process, held = found.processes.get(name), found.held(name)
        capacity = instance.variant.capacity if instance else None
        begun = instance.kind.begun(found.said.get(name, ())) if instance else Begun()
        rows.append(
            Row(
                instance=name.removeprefix("rigwright-").removesuffix(".service"),
                variant=instance.variant_name if instance else "not declared",
                # one of before it had a socket listens there itself
                port=ports.get(name) or (held.port if held else 0) or None,
                cards=sorted(held.cards) if held else [],
                slots=capacity[0] if capacity else None,
                context_per_sequence=capacity[1] if capacity else None,
                state=_word(process),
                since=use[name].since if name in use else "",
                restarts=process.restarts if process else 0,
                memory_bytes=use[name].memory if name in use else None,
                kv_tokens=begun.kv_tokens,
                backend=begun.backend,
                load_seconds=begun.load_seconds,
                current=bool(process and name in states and process.fits(states[name])),
            )
        )
    return Status(
        host=box.name,
        generation=found.current,
        declared=aim.number is not None and aim.number == found.current,
        activation_cut_off=found.activating and not found.job,
        at_work=f"{holder.who} since {holder.since}: {holder.doing}" if holder and holder.who else "",
        instances=rows,
        gateway=_gateway(box.rig, found),
    )


def _gateway(rig: Rig, found: Served) -> str:
    if not rig.gateway:
        return ""
    states = {_word(found.processes.get(unit)) for unit in (GATEWAY_UNIT, ROUTER_UNIT)}
    places = [place for one in rig.gateway.listeners.values() for place in one.addresses]
    return f"{' and '.join(sorted(states))}, on {', '.join(sorted(places))}"


def _word(process: Process | None) -> str:
    if process is None:
        return "not there"
    return process.state if process.state in ("active", "inactive", "failed") else f"{process.state} ({process.sub})"


@click.command()
@INVENTORY
@LIMIT
@JSON
def status(inventory: str, limit: str | None, as_json: bool) -> None:
    """What every host of INVENTORY serves now, and whether that is what the inventory declares.

    Exit status 2 when a host cannot be reached. `rigwright check` proves more, and takes longer.
    """
    found, gone = boxes(inventory, limit)
    seen = each(found, _status)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in seen], indent=2))
    else:
        _show(seen, inventory)
    leave(gone)


def _show(seen: list[Status], inventory: str) -> None:
    rows: list[tuple[str, ...]] = []
    # most engines say neither
    said = any(one.kv_tokens for host in seen for one in host.instances)
    for host in seen:
        generation = str(host.generation or "-")
        rows += [
            (
                *(host.host, generation, one.instance, one.variant, one.state, one.since, str(one.port or "")),
                ",".join(str(card) for card in one.cards),
                f"{one.slots} x {one.context_per_sequence}" if one.slots else "",
                *(str(one.restarts), size(one.memory_bytes) if one.memory_bytes else ""),
                *([f"{one.kv_tokens:,}" if one.kv_tokens else "", one.backend] if said else []),
            )
            for one in host.instances
        ] or [(host.host, generation, "none")]
    columns = ("host", "generation", "instance", "variant", "state", "since", "port", "cards", "context")
    show((*columns, "restarts", "memory", *(("KV tokens", "attention") if said else ())), rows)
    for host in seen:
        if not host.declared:
            click.echo(f"{host.host}: the inventory declares something else: `rigwright plan {inventory}` says what")
        if host.activation_cut_off:
            click.echo(f"{host.host}: an activation was cut off: deploy again")
        if host.gateway:
            click.echo(f"{host.host}: gateway {host.gateway}")
        if host.at_work:
            click.echo(f"{host.host}: {host.at_work}")


def _generations(box: Box) -> tuple[Served, str]:
    box = box.ahead("served", "facts")
    found = box.served()
    return found, box.desired().generation.digest


@click.command()
@INVENTORY
@LIMIT
@JSON
def generations(inventory: str, limit: str | None, as_json: bool) -> None:
    """The generations that lie on every host of INVENTORY; `rigwright rollback` goes back to one."""
    found, gone = boxes(inventory, limit)
    seen = each(found, _generations)
    rows = [
        {
            "host": box.name,
            "number": kept.number,
            "created": kept.created,
            "digest": kept.sealed,
            "current": kept.number == state.current,
            "declared": kept.sealed == wanted,
            "intact": kept.intact,
        }
        for box, (state, wanted) in zip(found, seen, strict=True)
        for kept in state.generations
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        leave(gone)
        return
    shown: list[tuple[str, ...]] = []
    for row in rows:
        words = [word for word in ("current", "declared") if row[word]] + ([] if row["intact"] else ["changed by hand"])
        number, digest = str(row["number"]), str(row["digest"])[:12]
        shown.append((str(row["host"]), number, str(row["created"]), digest, ", ".join(words)))
    show(("host", "generation", "written (UTC)", "digest", ""), shown)
    leave(gone)


@click.command()
@INVENTORY
@LIMIT
@click.option("--instance", help="Only this instance.")
@click.option("--lines", "-n", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Last lines.")
@click.option("--follow", "-f", is_flag=True, help="Go on as lines come, until interrupted.")
def logs(inventory: str, limit: str | None, instance: str | None, lines: int, follow: bool) -> None:
    """The journals of the instances of every host of INVENTORY, each line with its host before it.

    What a line betrays is said after it once, on standard error.
    """
    interrupts.end_at_once()

    def judge(rigs: Rigs) -> None:
        names = {i.name for rig in rigs.values() for i in rig.instances}
        if instance is not None and instance not in names:
            raise click.UsageError(f"--instance: {unknown('instance', instance, names)}")

    found, gone = boxes(inventory, limit, judge)
    lost: dict[str, str] = {}
    said: Queue[tuple[str, bool] | None] = Queue(1000)  # no more is read than the terminal takes

    def tell(box: Box, units: list[str]) -> None:
        command = ["journalctl", "--no-pager", "--output=short-iso", f"--lines={lines}"]
        command += ["--follow"] * follow + [f"--unit={unit}" for unit in units]
        causes = dict.fromkeys(cause for one in box.rig.instances for cause in one.kind.causes)
        try:
            for line in box.lines(shlex.join(command)):
                said.put((f"{box.name}  {_plain(line)}", False))
                for cause in list(betrayed(causes, line)):
                    del causes[cause]
                    said.put((f"{box.name}  ==> {cause.sentence}", True))
        except root.Gone as error:
            lost[box.name] = str(error)
        finally:
            said.put(None)

    telling = 0
    for box, served in zip(found, each(found, Box.served), strict=True):
        if units := _journals(box.rig, served, instance):
            gevent.spawn(tell, box, units)
            telling += 1
        else:
            click.echo(
                f"{box.name}: {f'instance {instance} is not' if instance else 'no instance is'} there yet", err=True
            )
    while telling:
        line = said.get()
        if line is None:
            telling -= 1
        else:
            click.echo(line[0], err=line[1])
    for name, why in sorted(lost.items()):
        click.echo(f"{name}: the connection is gone: {printable(why)}", err=True)
    leave(gone)
    if lost:
        sys.exit(2)


def _journals(rig: Rig, served: Served, instance: str | None) -> list[str]:
    """The units of a rig's instances that its host has, and of others that run there; only one instance's if named."""
    # their names are the host's words
    running = {name for name, one in served.processes.items() if one.started_from and UNIT.fullmatch(name)}
    declared = {one.unit for one in rig.instances if instance in (None, one.name)}
    there = declared & {*served.links, *served.processes}
    return sorted(there if instance else there | running)


def _plain(line: str) -> str:
    """Without what could write elsewhere on the terminal than where it belongs."""
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", "", line)
