"""Runs the cases of these modules, several at a time: `python3 -m door FOLDER PORT [NAME...]`.

Prints JSON: case -> its failure, or "". Most of a case is waiting for a limit of nginx: each of the worlds below FOLDER
(its folders of one digit) runs one case at a time. World N has the ports from PORT + 10 * N.
"""

import asyncio
import importlib
import inspect
import json
import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from door.world import Case, World, until

RESULTS = "results.json"
# Cases that need both processors, or measure memory: they run after all others, one at a time.
BUSY = {
    "four_hundred_streams_take_less_than_a_hundred_megabytes",
    "half_heads_of_one_address_leave_places_for_others",
    "memory_does_not_grow_with_a_stream",
}
MODULES = (
    *("waking", "residency_faults", "uploading", "hostile", "answering", "limiting", "counting", "drain_cases"),
    *("boxes", "talking", "harmful", "messages", "taken", "relaying"),
)
# those that wait longest first
CASES: dict[str, Case] = {
    name: case
    for module in (importlib.import_module(f"door.{name}") for name in MODULES)
    for name, case in vars(module).items()
    if inspect.iscoroutinefunction(case) and case.__module__ == module.__name__ and name[:1] != "_" and name != "idle"
}


async def one(case: Case, folder: Path, port: int) -> str:
    """The failure, or nothing."""
    world = World(folder, port)
    try:
        await world.start(**getattr(case, "given", {}))
        # the router's own, which it asks as it starts
        await until(world.is_probed)
        for engine in world.engines.values():
            engine.reached.clear()
        await asyncio.wait_for(case(world), 120)
    except Exception:
        return f"{traceback.format_exc()}\nnginx: {world.stderr()[-4000:]}"
    finally:
        await world.stop()
    return ""


def main() -> int:
    folder, port, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(CASES)
    worlds = sorted(folder.glob("[0-9]"))
    together = [name for name in names if name not in BUSY]
    # a byte a case: each process takes the next one
    cases, sending = os.pipe()
    os.write(sending, bytes(range(len(together))))
    os.close(sending)
    processes = []
    for world in worlds:
        pid = os.fork()
        if not pid:
            run_cases(world, port + 10 * int(world.name), together, cases)
        processes.append(pid)
    for pid in processes:
        os.waitpid(pid, 0)
    outcomes = dict.fromkeys(names, "its process has ended")
    for world in worlds:
        if (result := world / RESULTS).exists():
            outcomes |= json.loads(result.read_text())
    for name in set(names) - set(together):
        outcomes[name] = asyncio.run(one(CASES[name], worlds[0], port + 10 * int(worlds[0].name)))
    print(json.dumps(outcomes))
    return 0


def run_cases(world: Path, port: int, names: list[str], cases: int) -> NoReturn:
    """Run the cases of a process, one after the other, until none is left."""
    outcomes = {}
    while number := os.read(cases, 1):
        name = names[number[0]]
        outcomes[name] = asyncio.run(one(CASES[name], world, port))
        (world / RESULTS).write_text(json.dumps(outcomes))
    os._exit(0)


sys.exit(main())
