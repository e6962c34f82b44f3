"""Faults of a hub's answers, each as it happens in the world."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Part = Literal["api", "resolve", "file"]
"""Of a hub: descriptions of repositories, the address of a file, and a file's bytes."""


@dataclass
class Fault:
    """Base of all. `met` is set when the first answer has suffered from it."""

    met: threading.Event = field(default_factory=threading.Event, init=False, repr=False)
    part: Part = field(default="file", init=False)


@dataclass
class ConnectionCut(Fault):
    """The connection is closed after so many bytes of an answer."""

    after: int


@dataclass
class StalledAnswer(Fault):
    """Nothing more comes after so many bytes of an answer, until `released` is set."""

    after: int
    released: threading.Event = field(default_factory=threading.Event, repr=False)
    dropped: bool = field(default=False, init=False)
    """Whether the connection ends when it is released."""


@dataclass
class IgnoredRange(Fault):
    """The whole file with status 200, whatever part was asked for."""


@dataclass
class ExpiredSignature(Fault):
    """The signed address that an answer leads to has run out already."""

    def __post_init__(self) -> None:
        self.part = "resolve"


@dataclass
class ChangedContent(Fault):
    """The file's place has another content, with another ETag."""

    content: bytes


@dataclass
class WrongLength(Fault):
    """Content-Length is more, or less, than what is sent; the connection ends with the bytes."""

    by: int


@dataclass
class DamagedContent(Fault):
    """Other bytes under the same ETag; Content-Length is theirs."""

    damage: Callable[[bytes], bytes]


@dataclass
class EndlessAnswer(Fault):
    """Nothing says how long the answer is, and after the file come zeros for ever."""


@dataclass
class ErrorStatus(Fault):
    """An error instead of an answer."""

    code: int
    headers: dict[str, str] = field(default_factory=dict)
    where: Part = "file"

    def __post_init__(self) -> None:
        self.part = self.where


@dataclass
class BrokenXet(Fault):
    """Files are had by Xet too, says the hub, and the server that should have them does not answer."""

    cas: Literal["dead", "stalled"] = "dead"

    def __post_init__(self) -> None:
        self.part = "resolve"


def flipped_byte(where: Literal["first", "middle", "last"]) -> DamagedContent:
    """One byte is another one."""

    def damage(content: bytes) -> bytes:
        at = {"first": 0, "middle": len(content) // 2, "last": len(content) - 1}[where]
        return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]

    return DamagedContent(damage)


def truncated_content(by: int = 1) -> DamagedContent:
    """The last bytes are missing."""
    return DamagedContent(lambda content: content[:-by])


def extended_content(more: bytes = b"\0") -> DamagedContent:
    """There are more bytes than there should be."""
    return DamagedContent(lambda content: content + more)


def empty_content() -> DamagedContent:
    """There are no bytes."""
    return DamagedContent(lambda content: b"")


def replaced_text(other: bytes) -> DamagedContent:
    """It is another file."""
    return DamagedContent(lambda content: other)


def too_many_requests(seconds: int = 1, where: Part = "file") -> ErrorStatus:
    """429: it was asked too often, and says how long to wait."""
    return ErrorStatus(429, {"Retry-After": str(seconds)}, where)


@dataclass
class FaultRule:
    """A fault, and which answers suffer from it."""

    fault: Fault
    repository: str | None
    path: str | None
    times: int | None
    """So many suffer; None for all."""

    def matches_answer(self, repository: str, path: str | None) -> bool:
        """Whether an answer suffers; it is counted."""
        if self.repository not in (None, repository) or self.path not in (None, path):
            return False
        if self.times is not None:
            if not self.times:
                return False
            self.times -= 1
        return True


class FaultRules:
    """All faults of a hub."""

    def __init__(self) -> None:
        self._rules: list[FaultRule] = []
        self._lock = threading.Lock()

    def add_rule(self, rule: FaultRule) -> None:
        """From the next answer on."""
        with self._lock:
            self._rules.append(rule)

    def clear_rules(self) -> None:
        """All is well from the next answer on. A stalled answer is cut off: the client may be gone long since."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            if isinstance(rule.fault, StalledAnswer):
                rule.fault.dropped = True
                rule.fault.released.set()

    def matching_faults(self, part: Part, repository: str, path: str | None) -> list[Fault]:
        """The faults of an answer."""
        with self._lock:
            return [one.fault for one in self._rules if one.fault.part == part and one.matches_answer(repository, path)]


@dataclass(frozen=True)
class RecordedRequest:
    """One request."""

    method: str
    path: str
    """With its query; of a hub's second server it begins with /cdn/."""
    range: str | None
    authorised: bool
    """Whether it came with a token."""
