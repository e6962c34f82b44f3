"""`rigwright status`: what every host serves now, a line an instance, and whether that is what is declared."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import click

from checks import Drift
from checks.backend import UnknownHost, reach
from checks.backend import load as targets_of
from checks.looking import Box, Gone, each
from checks.survey.health import look
from cli.calling import as_given
from cli.completing import LIMIT
from cli.declared import INVENTORY
from cli.ending import Refused
from cli.status_lines import Row, Status, lines, table
from cli.tables import paragraph, say
from rigwright.engines import kind_of
from rigwright.engines.log import Begun
from rigwright.engines.metrics import Metrics
from rigwright.gateway.given import GATEWAY_UNIT, ROUTER_UNIT
from rigwright.inventory import load, tolerating
from rigwright.model.rig import Instance, Rig
from rigwright.operate import health as judging
from rigwright.operate.health import Health, Look
from rigwright.problems import Invalid, Problem, printable
from rigwright.serving.activation import goal
from rigwright.serving.live import INSTANCE, Process, Served
from roles import root
from roles.unreached import away


@dataclass(frozen=True)
class Faulty:
    """A host that is reached, and whose declaration cannot be read."""

    name: str
    target: Any


def _status(box: Box) -> Status:
    with ThreadPoolExecutor(max_workers=2) as pool:
        looking = pool.submit(_look, box.target, box.rig)
        try:
            box = box.ahead("served", "facts", "use", "holder")
            found = box.served()
            aim, use, holder = goal(found, box.desired().generation), box.use(), box.holder()
        except click.ClickException as error:
            looking.cancel()
            return Status(box.name, False, printable(error.message).removeprefix(f"{box.name}: "))
        seen, why = looking.result()
    states = {state.unit: state for state in aim.unit_states}
    ports = {held.leads_to: held.port for name in found.processes if (held := found.held(name)) and held.leads_to}
    declared = {i.unit: i for i in box.rig.instances}
    runs = {unit: _as_served(box, one, found) for unit, one in declared.items()}
    there = {n for n, p in found.processes.items() if INSTANCE.fullmatch(n) and p.state != "inactive"}
    rows = []
    for name in sorted({*declared, *there}):
        instance = runs.get(name)
        process, held = found.processes.get(name), found.held(name)
        capacity = instance.variant.capacity if instance else None
        begun = kind_of(instance).begun(found.said.get(name, ())) if instance else Begun()
        one = judging.health(seen, instance) if instance and seen else _unseen(name, process)
        rows.append(
            Row(
                instance=one.instance,
                variant=instance.variant_name if instance else "not declared",
                declared=declared[name].variant_name if name in declared else "",
                state=one.state if instance else f"{_word(process)}, not declared",
                note=one.note,
                since_s=one.since_s,
                # one of before it had a socket listens there itself
                port=ports.get(name) or (held.port if held else 0) or None,
                cards=sorted(held.cards) if held else [],
                slots=capacity[0] if capacity else None,
                context_per_sequence=capacity[1] if capacity else None,
                restarts=process.restarts if process else 0,
                memory_bytes=use[name].memory if name in use else None,
                kv_tokens=begun.kv_tokens,
                kv_used=one.metrics.kv_used,
                tokens_a_second=one.tokens_a_second,
                running=one.metrics.running,
                waiting=one.metrics.waiting,
                backend=begun.backend,
                load_seconds=begun.load_seconds,
                current=bool(process and name in states and process.fits(states[name])),
                errors=one.errors,
            )
        )
    gpus, say = judging.cards(seen.cards) if seen else ((), "")
    return Status(
        host=box.name,
        reached=not why,
        why=why,
        generation=found.current,
        declared=aim.number is not None and aim.number == found.current,
        activation_cut_off=found.activating and not found.job,
        at_work=f"{holder.who} since {holder.since}: {holder.doing}" if holder and holder.who else "",
        instances=rows,
        gateway=_gateway(box.rig, found),
        gpus=gpus,
        gpus_say=say,
        jobs=seen.jobs if seen else (),
        reboot=bool(seen and seen.reboot),
    )


def _as_served(box: Box, declared: Instance, found: Served) -> Instance:
    """An instance with the variant that the host serves; as declared where nothing serves it, or the catalogue does not
    have that variant any more.
    """
    serves = found.serving.get(declared.name, declared.variant_name)
    if serves == declared.variant_name:
        return declared
    # here, for most hosts serve what is declared
    from rigwright.declaration.edit import Switch, switched

    try:
        rig = load(switched(box.target.data.get("rig"), Switch(declared.name, serves)))
    except Invalid:
        return replace(declared, variant_name=serves)
    return next(one for one in rig.instances if one.name == declared.name)


def _look(target: Any, rig: Rig | None) -> tuple[Look | None, str]:
    """What a look tells; else why it tells nothing."""
    try:
        return look(target, rig), ""
    except (ValueError, Drift, root.Gone) as error:
        return None, printable(str(error))


def _unseen(unit: str, process: Process | None) -> Health:
    """An instance of which systemd alone says something."""
    name = unit.removeprefix("rigwright-").removesuffix(".service")
    return Health(name, "silent", _word(process), None, 0, None, Metrics(), None, ())


def _undeclared(host: Faulty) -> Status:
    """What runs on a host that nobody knows the declaration of."""
    seen, why = _look(host.target, None)
    if seen is None:
        return Status(host.name, False, why)
    gpus, say = judging.cards(seen.cards)
    rows = []
    for name, unit in sorted(seen.units.items()):
        if INSTANCE.fullmatch(name):
            state, note = judging.resting(unit) or ("active", "")
            called = name.removeprefix("rigwright-").removesuffix(".service")
            rows.append(Row(called, "", state, note, unit.since_s, restarts=unit.restarts, memory_bytes=unit.memory))
    more = {"gpus": gpus, "gpus_say": say, "jobs": seen.jobs, "reboot": seen.reboot}
    return Status(host.name, True, instances=rows, at_work="somebody" if seen.holder else "", **more)  # type: ignore[arg-type]


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


def reached(inventory: str, limit: str | None) -> tuple[list[Box], list[Faulty], Gone, list[Problem]]:
    """Hosts whose declaration can be read, those whose cannot, those out of reach, and what is wrong.

    Raises:
        Refused: it is not even known which hosts there are, or how they are reached.
    """
    boxes, faulty, problems = [], [], []
    with tolerating() as wrong:
        try:
            state, targets = targets_of(inventory, limit)
        except (UnknownHost, SystemExit) as error:
            raise Refused(str(error)) from None
        gone = reach(state, targets)
        for name, target in targets.items():
            if name in gone:
                continue
            try:
                boxes.append(Box(name, load(target.data.get("rig")), target))
            except Invalid as error:
                faulty.append(Faulty(name, target))
                problems += error.problems
    return boxes, faulty, gone, sorted({*wrong, *problems})


@click.command()
@INVENTORY
@LIMIT
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(inventory: str, limit: str | None, as_json: bool) -> None:
    """What every host of INVENTORY serves now, and whether that is what the inventory declares.

    Of an inventory that is refused, what runs is told all the same. Exit status 0: all is ready and as declared. 1: it
    is not. 2: the inventory is refused. 3: a host cannot be reached. `rigwright health` says more of each instance,
    and `rigwright check` proves more.
    """
    boxes, faulty, gone, problems = reached(inventory, limit)
    seen = [*each(boxes, _status), *map(_undeclared, faulty)]
    seen += [Status(name, False, away(why)) for name, why in gone.items()]
    if as_json:
        click.echo(json.dumps([asdict(one) for one in seen], indent=2))
    else:
        table(seen)
        for line in lines(seen, inventory):
            paragraph(line)
    for problem in problems:
        say(as_given(str(problem), click.get_current_context()), err=True)
    verdicts = {one.verdict for one in seen}
    sys.exit(3 if 3 in verdicts else 2 if problems else max(verdicts, default=0))
