"""For pytest's `-p`: checks run on hosts that say little; $HOSTS names them, $GENERATION is theirs, and $GONE those of
them that are out of reach, before or while they are asked, or later: unless another one was judged before that. A slow
one answers once the terminal was to show that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Event
from types import SimpleNamespace
from typing import Any

from checks import backend
from checks.survey import take
from checks.survey.taken import Survey
from rigwright import inventory
from rigwright.plan import facts as host_facts
from roles import root
from tests.unit.samples import facts, instance, rig

GENERATION = int(os.environ["GENERATION"]) if os.environ["GENERATION"] else None
ABOUT = {"clock": "2026-02-03T04:05:06Z", "generation": GENERATION, "versions": {"kernel": "6.1"}}
MADE = rig(instance("chat"), instance("code"))
DATA = {"rig": {"name": "box", "inventory": "rig.py", "entry": {}}}


JUDGED, WAITED = Event(), Event()


def pytest_runtest_logreport() -> None:
    """A check has come to a verdict."""
    JUDGED.set()


def taken(target: Any, *_: object, deep: bool, wait: Callable[[list[str]], None]) -> Survey:
    """What a host has answered."""
    if f"{target.name} slow" in os.environ["GONE"]:
        wait(["requests", "weights"])
        assert WAITED.wait(60)
    if f"{target.name} meanwhile" in os.environ["GONE"]:
        raise root.Gone("the connection is gone")
    if f"{target.name} later" in os.environ["GONE"] and not JUDGED.wait(20):
        raise root.Gone("nothing was judged before")
    return Survey({"about": {"told": ABOUT}, "accounts": {"failed": "it died"}})


names = os.environ["HOSTS"].split()
backend.load = lambda _inventory, _limit: (None, {name: SimpleNamespace(name=name, data=DATA) for name in names})
backend.reach = lambda _state, targets: {name: "" for name in targets if f"{name} before" in os.environ["GONE"]}
backend.testinfra_host = lambda _target: SimpleNamespace(check_output=lambda *_: "", check="a host")
inventory.load = lambda _data: MADE
host_facts.parse = lambda _lines: facts()
take.take = taken

from checks.look import Look  # noqa: E402 (it imports what has been replaced above)

is_known = Look._is_known


def waits(made: Look, name: str, _seconds: float) -> bool:
    """Whether a host has answered, without patience."""
    found = is_known(made, name, 0.1)
    if made.asked.done() and not found:
        WAITED.set()
    return found


Look._is_known = waits  # type: ignore[method-assign] # this process is a test's
