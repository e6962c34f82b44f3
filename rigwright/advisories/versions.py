"""Orders of versions, one for each ecosystem of advisories, and whether a version lies in an affected range."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, total_ordering
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

# Characters of a version; dpkg and PEP 440 set no bound, and the longest of Debian 13 has 47.
LONGEST = 128
# Digits of one number in a version: Python refuses to read more than 4300, and no release has more than 14 (a date).
DIGITS = 32
_BUILD = re.compile(r"b?([0-9]{1,9})")
_DRIVER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}")
_DEB = re.compile(r"(?:([0-9]{1,9}):)?([0-9A-Za-z.+~:-]+)")

Scheme = Literal["pep440", "dpkg", "build", "driver", "opaque"]


@total_ordering
@dataclass(frozen=True, eq=False)
class DebianVersion:
    """A version in dpkg's order (deb-version(7))."""

    epoch: int
    upstream: str
    revision: str

    @property
    def _parts(self) -> tuple[int, list[Any], list[Any]]:
        return self.epoch, _deb_key(self.upstream), _deb_key(self.revision)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DebianVersion) and self._parts == other._parts

    def __lt__(self, other: DebianVersion) -> bool:
        return self._parts < other._parts

    def __hash__(self) -> int:
        return hash((self.epoch, self.upstream, self.revision))


def _deb_key(text: str) -> list[Any]:
    """Text and numbers in turns; of text `~` sorts before its end, letters before all other characters."""
    key: list[Any] = []
    for letters, digits in re.findall(r"([^0-9]*)([0-9]*)", text):
        order = [-1 if one == "~" else ord(one) if one.isalpha() else ord(one) + 256 for one in letters]
        key += [[*order, 0], int(digits or 0)]
    return key


def _debian(text: str) -> DebianVersion | None:
    found = _DEB.fullmatch(text)
    if not found or re.search(rf"[0-9]{{{DIGITS},}}", text):
        return None
    upstream, dash, revision = found[2].rpartition("-")
    return DebianVersion(int(found[1] or 0), upstream if dash else found[2], revision if dash else "0")


def _python(text: str) -> Version | None:
    """The public version: a local build such as `+cpu` is of the same sources, and fixed and affected with them."""
    if re.search(rf"[0-9]{{{DIGITS},}}", text):
        return None
    try:
        return Version(Version(text).public)
    except InvalidVersion:
        return None


def _build(text: str) -> int | None:
    found = _BUILD.fullmatch(text)
    return int(found[1]) if found else None


def _driver(text: str) -> tuple[int, ...] | None:
    return tuple(map(int, text.split("."))) if _DRIVER.fullmatch(text) else None


_PARSERS: dict[Scheme, Callable[[str], Any]] = {
    "pep440": _python,
    "dpkg": _debian,
    "build": _build,
    "driver": _driver,
    "opaque": lambda text: None,
}


@lru_cache(maxsize=1 << 16)
def parse_version(scheme: Scheme, text: str) -> Any:
    """A version that compares in its ecosystem's order; None for an invalid text.

    Args:
        scheme: The order: `pep440` by `packaging`, `dpkg` as deb-version(7), `build` llama.cpp's numbered tags,
            `driver` NVIDIA's numbers, `opaque` for an ecosystem without a known order.
        text: The version.
    """
    return _PARSERS[scheme](text) if text and len(text) <= LONGEST else None


@dataclass(frozen=True)
class Event:
    """One end of a range, as OSV has it: `introduced`, `fixed`, `last_affected` or `limit`."""

    kind: str
    version: str


@dataclass(frozen=True)
class VersionRange:
    """A range of affected versions; `readable` is False where a part of it has an unknown form."""

    events: tuple[Event, ...]
    readable: bool = True


# Which of several ends at one version decides: a range may begin where another is fixed, and end with its only version.
_RANK = {"fixed": 0, "introduced": 1, "last_affected": 2}


def is_affected(
    scheme: Scheme, version: str, ranges: Iterable[VersionRange], listed: Iterable[str] = ()
) -> bool | None:
    """Whether a version lies in one of the ranges or in the list; None where the data do not answer that.

    Args:
        scheme: The order of versions.
        version: The version in question; empty for an unknown one.
        ranges: Affected ranges; an advisory without any and without a list covers every version.
        listed: Affected versions by name.
    """
    ranges, listed = tuple(ranges), tuple(listed)
    if not version:
        return None
    if not ranges and not listed:
        return True
    own = parse_version(scheme, version)
    if any(one == version or (own is not None and parse_version(scheme, one) == own) for one in listed):
        return True
    if not ranges:
        # a list is complete by OSV's definition, but only for versions that can be compared with it
        return None if own is None else False
    answers = [_in_range(scheme, own, one) for one in ranges]
    return True if True in answers else None if None in answers else False


def _in_range(scheme: Scheme, own: Any, one: VersionRange) -> bool | None:
    if own is None or not one.readable or not any(event.kind == "introduced" for event in one.events):
        return None
    placed = []
    for event in one.events:
        if event.kind == "introduced" and event.version == "0":
            placed.append((False, own, event.kind))
            continue
        if event.kind == "limit" and event.version == "*":
            continue
        at = parse_version(scheme, event.version)
        if at is None:
            return None
        placed.append((True, at, event.kind))
    if any(bounded and kind == "limit" and own >= at for bounded, at, kind in placed):
        return False
    # the last end at or below the version decides; `introduced: 0` lies below all others
    before = [
        (at, _RANK[kind]) for bounded, at, kind in placed if bounded and kind != "limit" and _reaches(own, at, kind)
    ]
    if not before:
        return any(not bounded for bounded, _, _ in placed)
    return max(before)[1] == _RANK["introduced"]


def _reaches(own: Any, at: Any, kind: str) -> bool:
    """Whether an end is at or below a version: `last_affected` takes effect right after its version."""
    return bool(own > at if kind == "last_affected" else own >= at)
