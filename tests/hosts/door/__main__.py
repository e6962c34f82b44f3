"""Runs the cases of these modules, several at a time: `python3 -m door FOLDER PORT [NAME...]`.

Prints JSON: case -> its failure, or "". Most of a case is waiting for a limit of nginx: each of the worlds below FOLDER
(its folders of one digit) runs one case at a time. World N has the ports from PORT + 10 * N.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import queue
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from door import answering, harmful, hostile, leaving, limiting, messages, taken, talking, uploading
from door.world import Case, World, until

CASES: dict[str, Case] = {
    name: case
    for module in (answering, limiting, leaving, talking, hostile, harmful, messages, taken, uploading)
    for name, case in vars(module).items()
    if inspect.iscoroutinefunction(case) and case.__module__ == module.__name__ and name[:1] != "_" and name != "idle"
}


async def one(case: Case, folder: Path, port: int) -> str:
    """What went wrong, or nothing."""
    world = World(folder, port)
    try:
        await world.start(**getattr(case, "given", {}))
        # the router's own, which it asks as it starts
        await until(lambda: world.reached() == len(world.engines))
        for engine in world.engines.values():
            engine.reached.clear()
        await asyncio.wait_for(case(world), 120)
    except Exception:
        return f"{traceback.format_exc()}\nnginx: {world.stderr()[-4000:]}"
    finally:
        await world.stop()
    return ""


def main() -> int:
    folder, port, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if folder.name.isdigit():
        print(json.dumps(asyncio.run(one(CASES[names[0]], folder, port))))
        return 0
    worlds = sorted(folder.glob("[0-9]"))
    free = queue.Queue[Path]()
    for world in worlds:
        free.put(world)

    def run(name: str) -> str:
        """A case in a process and a world that no other case has meanwhile."""
        world = free.get()
        try:
            command = [sys.executable, "-B", "-m", "door", str(world), str(port + 10 * int(world.name)), name]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            return str(json.loads(done.stdout)) if not done.returncode else f"exit status {done.returncode}"
        finally:
            free.put(world)

    names = names or list(CASES)
    with ThreadPoolExecutor(len(worlds)) as pool:
        print(json.dumps(dict(zip(names, pool.map(run, names), strict=True))))
    return 0


sys.exit(main())
