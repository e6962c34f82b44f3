"""A box for tests of the ledger: units, a card and a gateway that carry out its decisions."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field

from roles.residency.host.ledger import decide
from roles.residency.host.state import (
    LOADED,
    Action,
    InstanceSpec,
    LedgerState,
    MemoryDevice,
    Observation,
    UnitObserved,
    Waiter,
    parse_entries,
)

GIB = 1 << 30
CARD = "0"
SIX = {CARD: 6 * GIB}
FULL = MemoryDevice(10 * GIB, 8 * GIB, {"one": 8 * GIB})
TWO = {"one": InstanceSpec(SIX), "two": InstanceSpec(SIX)}


@dataclass
class SimulatedUnit:
    """A unit of systemd's: orders take time."""

    state: str = "inactive"
    until: float = 0.0
    breaks: bool = False
    """Whether its start fails."""
    served: int = 0
    """Requests under way."""
    result: str = "success"


@dataclass
class SimulatedBox:
    """One card, instances on demand, their gateway, and the clients' answers."""

    specs: dict[str, InstanceSpec]
    total: int = 10 * GIB
    foreign: int = 0
    load_s: float = 3.0
    now: float = 1000.0
    state: LedgerState = field(default_factory=LedgerState)
    units: dict[str, SimulatedUnit] = field(default_factory=dict)
    leaving: dict[str, float] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    log: list[tuple[float, str, str]] = field(default_factory=list)
    by_hand: set[str] = field(default_factory=set)
    paused: bool = False
    gateway_up: bool = True
    file: str = "{}"
    """The ledger as the disk has it."""
    number: int = 0
    used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.units = {name: SimulatedUnit() for name in self.specs}

    def used_bytes(self) -> int:
        """Bytes of the card in use: a start takes its memory from its first moment on."""
        return self.foreign + sum(self.ours().values())

    def ours(self) -> dict[str, int]:
        return {
            name: self.specs[name].need[CARD]
            for name, one in self.units.items()
            if one.state in ("active", "activating", "deactivating")
        }

    def advance(self, seconds: float = 0.2) -> None:
        """Time passes, and units follow their orders."""
        self.now += seconds
        for one in self.units.values():
            if one.state == "activating" and self.now >= one.until:
                one.state, one.result = ("restarting", "exit-code") if one.breaks else ("active", "success")
            elif one.state == "deactivating" and self.now >= one.until:
                one.state = "inactive"

    def observe(self) -> Observation:
        requests: dict[str, int | None] = {
            name: one.served if self.gateway_up else None for name, one in self.units.items()
        }
        used, self.used = frozenset(self.used), set()
        return Observation(
            now=self.now,
            units={name: UnitObserved(one.state, one.result, "broken") for name, one in self.units.items()},
            devices={CARD: MemoryDevice(self.total, self.used_bytes(), self.ours())},
            requests=requests,
            used=used,
            stopped_by_hand=frozenset(self.by_hand),
            paused=self.paused,
        )

    def wake(self, name: str, *, may_evict: bool = True, proof: bool = False) -> str:
        """A client that asks; its id."""
        self.number += 1
        client = f"{self.number:06d}"
        self.state.waiters.append(Waiter(client, name, self.now, may_evict=may_evict, proof=proof))
        return client

    def is_open(self, name: str) -> bool:
        """Whether the gateway sends requests there."""
        return self.units[name].state == "active" and self.leaving.get(name, 0.0) <= self.now

    def ask(self, name: str) -> str | None:
        """A request: it goes to the instance, or waits for it; the id of one that waits."""
        if self.is_open(name):
            self.units[name].served += 1
            self.used.add(name)
            return None
        return self.wake(name)

    def decide(self) -> list[Action]:
        """One decision, written down; its actions are not carried out yet."""
        self.state, actions = decide(self.specs, self.state, self.observe())
        self.file = json.dumps(self.state.to_json())
        return actions

    def carry_out(self, action: Action) -> None:
        self.log.append((self.now, action.kind, action.target))
        unit = self.units.get(action.target)
        if action.kind == "answer":
            self.answers[action.target] = action.text
        elif unit is None:
            return
        elif action.kind == "leave":
            self.leaving[action.target] = self.now + 10
        elif action.kind == "stay":
            self.leaving.pop(action.target, None)
        elif action.kind == "cut":
            unit.served = 0
        elif action.kind == "start" and unit.state in ("inactive", "failed"):
            unit.state, unit.until = "activating", self.now + self.load_s
        elif action.kind == "stop" and unit.state not in ("inactive", "failed", "deactivating"):
            unit.state, unit.until = "deactivating", self.now + 0.3
            unit.served = 0

    def step(self, seconds: float = 0.2) -> list[Action]:
        """Time passes, the ledger decides, the box does as it says."""
        self.advance(seconds)
        actions = self.decide()
        for one in actions:
            self.carry_out(one)
        return actions

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.step()

    def restart_service(self) -> None:
        """A new process reads the ledger; clients have to come again."""
        entries = parse_entries(json.loads(self.file), same_boot=True)
        waiting = copy.copy(self.state.waiters)
        self.state = LedgerState(entries, waiting)

    def loaded(self) -> set[str]:
        return {name for name, one in self.state.entries.items() if one.phase in LOADED}

    def reserved(self) -> int:
        """Bytes that the ledger has given out."""
        return sum(self.specs[name].need[CARD] for name in self.loaded())


def box(**specs: InstanceSpec) -> SimulatedBox:
    """A box with these instances; by default with two of which one fits at a time."""
    return SimulatedBox(specs or {"one": InstanceSpec(SIX), "two": InstanceSpec(SIX)})


def observe_units(now: float, device: MemoryDevice | None, requests: int | None = 0, **units: str) -> Observation:
    """An observation of units by their states."""
    observed = {name: UnitObserved(state, "success", "an earlier failure") for name, state in units.items()}
    counts = dict.fromkeys(units, requests)
    return Observation(now, observed, {CARD: device} if device else {}, counts)


def kinds(actions: list[Action]) -> list[tuple[str, str]]:
    """Kind and target of each action."""
    return [(one.kind, one.target) for one in actions]
