"""What the sandbox costs: an instance as its unit serves it, beside the same command line bare, on the same host.

The two take turns, for a card's memory may not hold both; each turn is a new process. Trust the ratio: what else the
host does is in both. Whoever asks the instance meanwhile is in its figures, and gets no answer while it is stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

from bench.contest import Contest, Deployed, NotMeasured, contest
from bench.figures import BARE, UNIT, Load, Machine, Report, Row, parse
from bench.load import Asked
from checks.looking import Box
from rigwright.declaration.rig import Instance

PROGRAM = Path(__file__).with_name("load.py")
PROMPT = 200  # tokens of each request
ORDER = (UNIT, BARE)  # of turns; the unit has the first, for it runs already
CARD = "timeout 20 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || true"


def measure(
    box: Box,
    instance: Instance,
    streams: Sequence[int],
    requests: int,
    tokens: int,
    rounds: int,
    say: Callable[[str], None],
) -> Report:
    """Put the same load on both ways of serving, in turns.

    Args:
        box: The host.
        instance: One of its, deployed and running.
        streams: How many at once, a load each.
        requests: That each stream makes, one after the other.
        tokens: That each is answered with.
        rounds: How often each way has its turn.
        say: Told what is under way.

    Raises:
        NotMeasured: the instance does not run or does not come up, or answers something else than was asked for.
    """
    if instance.variant.capacity is None:
        raise NotMeasured(f"{instance.name} does not say how many requests it serves at once")
    slots, room = instance.variant.capacity
    if PROMPT + tokens > room:
        raise NotMeasured(
            f"a slot of {instance.name} has {room} tokens: no room for {PROMPT} and an answer of {tokens}"
        )
    rows = {(count, way): Row(count, way) for count in streams for way in (BARE, UNIT)}
    turns = [(number, way) for number in range(rounds) for way in ORDER]
    doing = f"bench serving {instance.name} of {box.rig.inventory}"
    folder = box.desired().installations[instance.engine_name].folder
    with contest(box.target, Deployed(box.rig, instance, folder), doing, say) as found:
        for done, (number, way) in enumerate(turns):
            turn = f"round {number + 1} of {rounds}, {way} (turn {done + 1} of {len(turns)})"
            say(f"{turn}: starting")
            port = found.serve(way)
            say(f"{turn}: warming up")
            _load(found, Asked(port, found.unit.key_file, slots, slots, 1, PROMPT, tokens, seed=0))
            for count in streams:
                say(f"{turn}: {count} streams x {requests} requests on {slots} slots")
                # the same prompts for both ways, and others in every round
                asked = Asked(
                    port, found.unit.key_file, slots, count, requests, PROMPT, tokens, seed=1000 * (number + 1) + count
                )
                rows[count, way].loads.append(load := _load(found, asked))
                say(f"{turn}: {count} streams: {load.tokens_a_second:.1f} tokens/s")
        machine = _machine(box, instance, found)
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return Report(now, machine, PROMPT, tokens, requests, list(rows.values()))


def _load(found: Contest, asked: Asked) -> Load:
    said = found.load(json.dumps(asdict(asked)), PROGRAM.read_text())
    try:
        return parse(said, asked.streams * asked.requests, asked.output_tokens)
    except ValueError as error:
        raise NotMeasured(str(error)) from None


def _machine(box: Box, instance: Instance, found: Contest) -> Machine:
    run = found.remote.run
    version = run(f"timeout 20 {found.unit.bare(0)[0]} --version 2>&1 | sed -n 's/^version: //p'").strip()
    cards = ", ".join(dict.fromkeys(run(CARD).splitlines()))
    return Machine(
        host=box.name,
        instance=instance.name,
        variant=instance.variant_name,
        slots=(instance.variant.capacity or (0, 0))[0],
        card=cards,
        engine=f"{instance.engine.kind} {version}",
        cpus=int(run("nproc")),
    )
