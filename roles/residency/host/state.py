"""The types of the ledger: specifications, state, observations and actions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASLEEP, STARTING, AWAKE, LEAVING, STOPPING = "asleep", "starting", "awake", "leaving", "stopping"
LOADED = (STARTING, AWAKE, LEAVING, STOPPING)
"""Phases in which an instance has memory."""
KEPT_FORMS = 3
HOST = "host"
"""The device of instances without cards: the memory of the host."""


@dataclass(frozen=True)
class InstanceSpec:
    """An instance on demand, as the inventory declares it."""

    need: Mapping[str, int]
    """Device -> bytes, measured or at least that much."""
    priority: int = 0
    """Instances with a lower one are stopped first."""
    idle: float = 0.0
    """Seconds without requests after which it is stopped; 0: only if another one needs its memory."""
    keep_warm: bool = False
    residence: float = 15.0
    """Seconds for which it stays loaded at least."""
    seconds: float = 0.0
    """That a load takes, by the record of an earlier one; 0 if unknown."""
    form: str = ""
    """The digest of its unit and what that starts."""


@dataclass(frozen=True)
class FormFailures:
    """Starts in a row of one form of an instance's unit that failed, and the pause after them."""

    form: str = ""
    failures: int = 0
    retry_at: float = 0.0
    reason: str = ""


@dataclass
class Entry:
    """One instance in the ledger. Times are those of the monotonic clock of this boot."""

    phase: str = ASLEEP
    since: float = 0.0
    """When the phase began."""
    ready_at: float = 0.0
    last_used: float = 0.0
    answered_at: float = 0.0
    """When a client that waited for it, and was no proof, was last sent there."""
    load_seconds: float = 0.0
    failures: int = 0
    """Starts in a row that failed."""
    retry_at: float = 0.0
    reason: str = ""
    """Of the last failure."""
    form: str = ""
    """That of its unit which the failures are of."""
    others: list[FormFailures] = field(default_factory=list)
    """Failures of other forms, the latest last: an automatic return brings one of them back."""
    seen_starting: bool = False
    """Whether its unit was seen to carry out the order to start."""
    short_since: float | None = None
    """When a client was first found to wait for memory that cannot become free."""
    unknown_since: float | None = None
    """When a client was first found to wait for a device whose use is unknown."""
    sleep_next: bool = False
    """Whether it was woken as a proof only."""

    def take_form(self, form: str) -> None:
        """Have the failures be those of a form of its unit, and keep the ones of the form before."""
        kept = [*self.others, FormFailures(self.form, self.failures, self.retry_at, self.reason)]
        now = next((one for one in kept if one.form == form), FormFailures(form))
        self.others = [one for one in kept if one.form != form and (one.failures or one.reason)][-KEPT_FORMS:]
        self.form, self.failures, self.retry_at, self.reason = form, now.failures, now.retry_at, now.reason


@dataclass(frozen=True)
class Waiter:
    """A client that waits for an instance."""

    id: str
    instance: str
    since: float
    may_evict: bool = True
    proof: bool = False
    """Whether an activation waits for it."""


@dataclass
class LedgerState:
    """All of it. The clients are those of connections, and no part of the file."""

    entries: dict[str, Entry] = field(default_factory=dict)
    waiters: list[Waiter] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The part that outlives the service."""
        return {name: asdict(one) for name, one in self.entries.items()}


def parse_entries(rows: Mapping[str, Any], *, same_boot: bool) -> dict[str, Entry]:
    """Entries of a ledger file.

    Args:
        rows: As `LedgerState.to_json` made them.
        same_boot: Whether the file is of this boot: its times mean nothing in another one.
    """
    found = {}
    for name, row in rows.items():
        values = {one.name: row[one.name] for one in fields(Entry) if one.name in row}
        names = [one.name for one in fields(FormFailures)]
        others = [FormFailures(**{key: one[key] for key in names if key in one}) for one in values.pop("others", [])]
        entry = Entry(**values, others=others)
        if entry.phase not in (ASLEEP, *LOADED) or not same_boot:
            entry = Entry(load_seconds=float(entry.load_seconds))
        found[str(name)] = entry
    return found


@dataclass(frozen=True)
class UnitObserved:
    """A unit, as systemd reports it."""

    state: str = "inactive"
    """active, activating, deactivating, inactive, failed, or restarting between two tries."""
    result: str = "success"
    reason: str = ""
    """The end of its log, of a unit that has failed."""


@dataclass(frozen=True)
class MemoryDevice:
    """A card, or the memory of the host. All in bytes."""

    total: int
    used: int
    """By all processes."""
    ours: Mapping[str, int] = field(default_factory=dict)
    """By each instance on demand, loaded or not."""
    unmeasured: frozenset[str] = frozenset()
    """Instances with processes there whose use the driver does not name."""


@dataclass(frozen=True)
class Observation:
    """The box at one moment."""

    now: float
    units: Mapping[str, UnitObserved] = field(default_factory=dict)
    devices: Mapping[str, MemoryDevice] = field(default_factory=dict)
    """Nothing of a device whose use is unknown: no instance is started on it."""
    requests: Mapping[str, int | None] = field(default_factory=dict)
    """Instance -> requests under way in the gateway; None if the gateway does not answer."""
    used: frozenset[str] = frozenset()
    """Instances that had requests since the last observation."""
    stopped_by_hand: frozenset[str] = frozenset()
    paused: bool = False
    """Whether an activation is under way: only its proofs change something."""


@dataclass(frozen=True)
class Action:
    """One thing to do: start, stop, leave, cut or stay an instance, or answer a client."""

    kind: str
    target: str
    text: str = ""


def refusal(code: str, seconds: float, text: str) -> str:
    """The line of the wake socket that refuses a client.

    Args:
        code: busy, failed, memory or forbidden.
        seconds: Until the client may ask again.
        text: The reason.
    """
    plain = "".join(letter if " " <= letter <= "~" else "?" for letter in text)[:200]
    return f"refused {code} {max(1, math.ceil(seconds))} {plain or 'no reason is known'}"
