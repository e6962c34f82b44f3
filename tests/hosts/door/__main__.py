"""Runs what is in these modules, each in a world of its own: `python3 -m door FOLDER PORT [NAME...]`.

Prints JSON: name -> what went wrong, or nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import traceback
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
    folder, port, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(CASES)
    said = {name: asyncio.run(one(CASES[name], folder, port)) for name in names}
    print(json.dumps(said))
    return 0


sys.exit(main())
