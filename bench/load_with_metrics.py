"""A load as roles/client's job on a host has it, and what the server says of itself meanwhile.

Says, a value each: `second` and `told`, some lines of the server's metrics at that second; and last what
bench/load_generator.py prints.
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

PULSE = 1.0  # seconds between two looks at the server's metrics
ANSWER = 5.0  # seconds for each of them: a server that is busy may be slow to tell
MOST = 8 << 20  # bytes


def lines(told: bytes, names: frozenset[str]) -> str:
    """Those lines of a text in Prometheus' format that are of some names: all of it is much, each second."""
    text = told.decode(errors="replace")
    return "\n".join(line for line in text.splitlines() if line.replace("{", " ", 1).partition(" ")[0] in names)


def work(place: Any, asked: dict[str, Any], say: Callable[[dict[str, object]], None]) -> None:
    """Load a place, and watch it.

    Args:
        place: The server that is asked.
        asked: `load`, the members of bench/load_generator.py's `LoadRequest` but for where and by which key; `metrics`,
            the path at which the server tells them, empty where it does not; `names`, those that are wanted.
        say: Says a value.
    """
    names = ("load_generator", "http_exchange")
    load, exchange = (importlib.import_module(f"roles.client.host.{name}") for name in names)
    wanted = load.LoadRequest(at=place.at, key_file="", **asked["load"])
    server = load.LoadTarget(partial(exchange.TargetConnection, place, whole=wanted.longest), place.key)
    telling = load.LoadTarget(partial(exchange.TargetConnection, place), place.key)
    over, started = threading.Event(), time.perf_counter()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(load.run_load, wanted, server)
        running.add_done_callback(lambda _: over.set())
        last, pause = not asked["metrics"], 0.0
        while not last:
            last, pause = over.wait(pause), PULSE
            told = b""
            with (
                suppress(OSError, HTTPException),
                telling.open_request("GET", asked["metrics"], limit=ANSWER) as answer,
            ):
                told = answer.read(MOST)
            say({"second": time.perf_counter() - started, "told": lines(told, frozenset(asked["names"]))})
        say(running.result())
