"""The job on a host: takes orders as lines of JSON, carries out each in a thread, and says what came of it in lines.

The first line names the server: the members of `http_exchange.RequestTarget`, and with `credential` that systemd has
handed the key over. Each line after it is an order: `id`, `work` and `asked`. `work` is one of the program's modules,
whose `work(place, asked, say)` is called; whatever it says is a line with that `id`, and the last of an order has
`end`, why it failed, empty where it did not. The job ends with its standard input: with the process that gave the
orders.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from roles.client.host import http_exchange

CREDENTIAL = "api-key"
WRITING = threading.Lock()


def write_line(number: int, value: dict[str, object]) -> None:
    """Write one line; a reader that is gone ends the program."""
    line = json.dumps({"id": number, **value}).encode() + b"\n"
    with WRITING:
        try:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        except OSError:
            os._exit(1)


def run_order(modules: dict[str, ModuleType], place: http_exchange.RequestTarget, given: dict[str, Any]) -> None:
    """Carry out one order to its end."""
    number = given["id"]

    def say(value: dict[str, object]) -> None:
        write_line(number, {"told": value})

    try:
        work: Callable[[http_exchange.RequestTarget, dict[str, Any], Callable[[dict[str, object]], None]], None]
        work = modules[given["work"]].work
        work(place, given["asked"], say)
    except Exception as error:
        write_line(number, {"end": f"{type(error).__name__}: {error}"[:300]})
    else:
        write_line(number, {"end": ""})


def main(modules: dict[str, ModuleType]) -> None:
    """Take orders until their source is gone."""
    source = sys.stdin.buffer
    told = json.loads(source.readline())
    if told.pop("credential"):
        lines = (Path(os.environ["CREDENTIALS_DIRECTORY"]) / CREDENTIAL).read_text().splitlines()
        told["key"] = lines[0].strip() if lines else ""
    place = http_exchange.RequestTarget(**told)
    write_line(0, {"told": {"ready": True}})
    for line in source:
        threading.Thread(target=run_order, args=(modules, place, json.loads(line)), daemon=True).start()
    os._exit(0)
