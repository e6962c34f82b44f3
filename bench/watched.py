"""A load as roles/client's job on a host has it, and what the server says of itself meanwhile.

Says, a value each: `second` and `seen`, the server's own figures of that second, by name, each summed over its labels;
and last what bench/load.py prints.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from typing import Any

PULSE = 1.0  # seconds between two looks at the server's own figures
ANSWER = 5.0  # seconds for each of them: a server that is busy may be slow to tell
MOST = 8 << 20  # bytes


def sample(told: str, names: frozenset[str]) -> dict[str, float]:
    """Some figures of a text in Prometheus' format, each the sum over all of its labels."""
    found: dict[str, float] = {}
    for line in told.splitlines():
        name, _, rest = line.replace("{", " {", 1).partition(" ")
        if name in names:
            with suppress(ValueError, IndexError):
                found[name] = found.get(name, 0.0) + float(rest.rpartition("}")[2].split()[0])
    return found


def work(place: Any, asked: dict[str, Any], say: Callable[[dict[str, object]], None]) -> None:
    """Load a place, and watch it.

    Args:
        place: Who is asked.
        asked: `load`, the members of bench/load.py's `Asked` but for where and by which key; `metrics`, the path at
            which the server tells its figures, empty where it does not; `names`, those that are wanted of them.
        say: Says a value.
    """
    load, talk = (importlib.import_module(f"roles.client.host.{name}") for name in ("load", "talk"))
    wanted = load.Asked(at=place.at, key_file="", **asked["load"])
    server = load.Server(partial(talk.Connection, place), place.key)
    over, started = threading.Event(), time.perf_counter()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(load.run, wanted, server)
        running.add_done_callback(lambda _: over.set())
        last = not asked["metrics"]
        pause = 0.0
        while not last:
            last, pause = over.wait(pause), PULSE
            told = b""
            with suppress(OSError, HTTPException), server.asked("GET", asked["metrics"], limit=ANSWER) as answer:
                told = answer.read(MOST)
            seen = sample(told.decode(errors="replace"), frozenset(asked["names"]))
            say({"second": time.perf_counter() - started, "seen": seen})
        say(running.result())
