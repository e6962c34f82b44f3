"""The cost of sandbox and port: an instance as its unit serves it, next to the same command line bare; or the cost of
an image, or of another variant, next to another instance of the same host.

The two take turns, for a card's memory may not hold both; where it does, both may be up at once and be asked load by
load. Each turn is a new process, and how long it takes until it is ready is noted, too. The unit's is asked over its
socket and through its port alternately. Trust the ratios as far as their interval goes: other work of the host is on
both sides, and not always at the same time. Other requests to the instance meanwhile are in its figures, and get no
answer while it is stopped.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path

from bench.alternating_runs import Contest, Deployed, MeasurementFailed, contest
from bench.load_generator import LoadRequest
from bench.load_statistics import PORT, UNIT, LoadTimes, MeasuredMachine, ServingReport, ServingRow, parse_load
from checks.connections import ConnectedHost
from rigwright.model.instance import Instance

PROGRAM = Path(__file__).with_name("load_generator.py")
PROMPT = 200  # tokens of each request
CARD = "timeout 20 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || true"


def measure(
    box: ConnectedHost,
    instance: Instance,
    streams: Sequence[int],
    requests: int,
    tokens: int,
    loads: int,
    rounds: int,
    say: Callable[[str], None],
    other: Instance | None = None,
    *,
    together: bool = False,
) -> ServingReport:
    """Put the same loads on all ways of serving, in turns.

    Args:
        box: The host.
        instance: One of its, deployed and running.
        streams: How many at once, loads of their own each.
        requests: That each stream makes, one after the other, in each load.
        tokens: That each is answered with.
        loads: On each way of serving, in each turn.
        rounds: How often each process has its turn.
        say: Told what is under way.
        other: Another one of the host's, to be asked in place of the bare process.
        together: Whether both processes are up at once, and are asked in turns load by load: a change of the host from
            one minute to the next is on both sides. Its memory has to hold both.

    Raises:
        MeasurementFailed: an instance does not run or does not come up, or answers something else than was asked for.
    """
    slots = min(_slots(one, tokens) for one in (instance, other) if one)
    doing = f"bench serving {instance.name} of {box.rig.inventory}"
    made = box.resolve_desired().installations
    mine = Deployed(box.rig, instance, made[instance.installed_as])
    beside = Deployed(box.rig, other, made[other.installed_as]) if other else None
    if beside is None:
        mine.refuse_without_bare()
    with contest(box.target, mine, doing, say, beside) as found:
        # processes in the order of their turns, and the ways in which each is asked
        ways = {UNIT: (UNIT, PORT), found.against: (found.against,)}
        rows = {(count, way): ServingRow(count, way) for count in streams for way in (found.against, UNIT, PORT)}
        turns = list(_turns(tuple(ways), rounds, together))
        starts: dict[str, list[float]] = {process: [] for process in ways}
        warm = LoadRequest("", "", slots, slots, 1, PROMPT, tokens, seed=0)
        for done, (number, processes) in enumerate(turns):
            turn = f"round {number + 1} of {rounds}, {' and '.join(processes)} (turn {done + 1} of {len(turns)})"
            say(f"{turn}: starting")
            for process in processes:
                starts[process].append(found.serve(process, alone=process == processes[0]))
            say(f"{turn}: warming up")
            asked_in = [way for process in processes for way in ways[process]]
            for way in asked_in:
                _load(found, way, warm)
            for count in streams:
                say(f"{turn}: {count} streams x {requests} requests on {slots} slots, {loads} times")
                asked = replace(warm, streams=count, requests=requests)
                for way, load in _loads(found, asked_in, asked, range(number * loads, (number + 1) * loads)):
                    rows[count, way].loads.append(load)
        machine = _machine(box, instance, found)
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return ServingReport(now, machine, PROMPT, tokens, requests, list(rows.values()), starts)


def _turns(processes: tuple[str, ...], rounds: int, together: bool) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The number of its round and the processes of each turn. The order changes from round to round: a host that gets
    slower, or a card that gets hot, is on both sides.
    """
    for number in range(rounds):
        ordered = processes[::-1] if number % 2 else processes
        yield from [(number, ordered)] if together else [(number, (one,)) for one in ordered]


def _slots(instance: Instance, tokens: int) -> int:
    if instance.variant.capacity is None:
        raise MeasurementFailed(f"{instance.name} does not say how many requests it serves at once")
    slots, room = instance.variant.capacity
    if PROMPT + tokens > room:
        raise MeasurementFailed(
            f"a slot of {instance.name} has {room} tokens: no room for {PROMPT} and an answer of {tokens}"
        )
    return slots


def _loads(
    found: Contest, ways: Sequence[str], asked: LoadRequest, numbers: Iterable[int]
) -> Iterator[tuple[str, LoadTimes]]:
    for number in numbers:
        # the same prompts for all ways, and others in every load
        one = replace(asked, seed=1000 * (number + 1) + asked.streams)
        # the order changes from load to load: a slowdown over time is on both sides
        for way in reversed(ways) if number % 2 else ways:
            yield way, _load(found, way, one)


def _load(found: Contest, way: str, asked: LoadRequest) -> LoadTimes:
    said = found.load(json.dumps(asdict(asked) | found.asks(way)), PROGRAM.read_text())
    try:
        return parse_load(said, asked.streams * asked.requests, asked.output_tokens)
    except ValueError as error:
        raise MeasurementFailed(str(error)) from None


def _machine(box: ConnectedHost, instance: Instance, found: Contest) -> MeasuredMachine:
    run = found.remote.run
    version = run(f"timeout 20 {shlex.quote(found.unit.program)} --version 2>&1 | sed -n 's/^version: //p'").strip()
    cards = ", ".join(dict.fromkeys(run(CARD).splitlines()))
    return MeasuredMachine(
        host=box.name,
        instance=instance.name,
        variant=instance.variant_name,
        slots=(instance.variant.capacity or (0, 0))[0],
        card=cards,
        engine=f"{instance.engine.kind} {version or found.unit.installation.version}",
        cpus=int(run("nproc")),
    )
