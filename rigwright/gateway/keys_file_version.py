"""Versions of a keys file: which of two is the later one, and what a host would get back with an earlier one.

A version has a serial, an identifier and the identifiers of those that it was made from. A host takes a version if it
was made from the host's own. No clock orders them: two controllers that change the same version get two versions of one
serial, and the host keeps the one that it has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from rigwright.problems import FrozenModel, format_count, printable
from rigwright.validated_types import matching

HISTORY = 1000
"""Earlier versions that a file names; 20 KB."""
HIGHEST = 10**15
"""Of serials. Their history orders versions, so one that has come so far stays there."""
ID = r"[0-9a-f]{16}"
TOKEN_LIMITS = ("tokens_per_minute", "tokens_per_day", "tokens_per_month")
RIGHTS = ("wake", "evict")  # about sleeping models; each key has them unless its table says `false`
NAMED = 10  # keys that a refusal names of each sort

VersionId = Annotated[str, matching(ID, "16 lowercase hexadecimal digits")]
Rows = Iterable[Mapping[str, object]]


class KeyVersion(FrozenModel):
    """The version of a keys file."""

    serial: int = Field(ge=1, le=HIGHEST, strict=True, description="Number of changes.")
    id: VersionId = Field(description="Of this version, made from the keys, the serial and the version before.")
    before: tuple[VersionId, ...] = Field(
        default=(), max_length=HISTORY, description="Versions that it was made from, the oldest first."
    )


@dataclass(frozen=True)
class HostVersion:
    """The version of the keys on a host; hostile."""

    serial: int
    id: str


def parse_host_version(value: object) -> HostVersion | None:
    """The version in a host's keys; None where it is missing, as in keys from before versions, or invalid."""
    if not isinstance(value, dict):
        return None
    serial, identifier = value.get("serial"), value.get("id")
    if not isinstance(serial, int) or isinstance(serial, bool) or not 0 < serial <= HIGHEST:
        return None
    if not isinstance(identifier, str) or not re.fullmatch(ID, identifier):
        return None
    return HostVersion(serial, identifier)


def version_for(version: KeyVersion | None, content: str) -> KeyVersion:
    """The version of keys that were read with another one, or with none: the same for the same keys.

    Keys that are not those of their version were edited since, by hand or by a command, and are the next one.

    Args:
        version: The version next to them.
        content: The keys as hosts get them.
    """
    if version is None:
        return _make_version(1, (), content)
    parent = version.before[-1:]
    if version.id == _identify(version.serial, parent, content):
        return version
    return _make_version(version.serial + 1, (*version.before, version.id), content)


def next_version(version: KeyVersion, content: str) -> KeyVersion:
    """The version after one, of the same keys: no version that another controller made from that one has it.

    Identifiers that a host reports are no part of it: in a file's history they would have every other host with such
    a version take these keys, though nothing was named that they do there.
    """
    return _make_version(version.serial + 1, (*version.before, version.id), content)


def _make_version(serial: int, before: tuple[str, ...], content: str) -> KeyVersion:
    serial = min(serial, HIGHEST)
    return KeyVersion(serial=serial, id=_identify(serial, before[-1:], content), before=before[-HISTORY:])


def _identify(serial: int, parent: tuple[str, ...], content: str) -> str:
    return hashlib.sha256("\n".join((str(serial), *parent, content)).encode()).hexdigest()[:16]


def is_replaceable(version: KeyVersion, host: str) -> bool:
    """Whether a host with a version, empty for none, takes this one: it is the same, or was made from the host's."""
    return host in ("", version.id, *version.before)


def describe_divergence(file: str, version: KeyVersion, ours: Rows, host: HostVersion | None, host_rows: Rows) -> str:
    """The keys of a host that does not take a file's, and the effect there, in one sentence.

    Args:
        file: The keys file.
        version: Its version.
        ours: Its keys, current ones and those that are about to expire, as hosts get them.
        host: The version on the host.
        host_rows: The host's keys, likewise.
    """
    if host is None:
        older = f"{file} was not made from this host's keys"
    elif version.serial < host.serial:
        older = f"{file} is older: serial {version.serial}, and this host has serial {host.serial}"
    elif version.serial == host.serial:
        older = f"{file} and this host both have serial {host.serial}, from different changes"
    else:
        older = f"{file} has serial {version.serial}, and was not made from this host's serial {host.serial}"
    return "; ".join((older, *describe_effect(ours, host_rows)))


def describe_effect(ours: Rows, host_rows: Rows) -> Iterator[str]:
    """The effect of keys on a host that has others: names of those that would return, vanish, or have other rights."""
    incoming, there = _by_sha256(ours), _by_sha256(host_rows)
    sorts = {
        "would return": [one for key, one in incoming.items() if _is_stronger(one, there.get(key))],
        "would vanish": [one for key, one in there.items() if _is_stronger(one, incoming.get(key))],
        "would get other rights": [
            one for key, one in incoming.items() if key in there and _rights(one) != _rights(there[key])
        ],
    }
    for what, rows in sorts.items():
        if names := sorted({printable(str(one.get("name")))[:48] for one in rows}):
            yield f"{format_count(len(names), 'key')} {what}: {format_key_names(names)}"


def format_key_names(names: Sequence[str]) -> str:
    """Names of keys in a message: the first of them, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if names[NAMED:] else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _by_sha256(rows: Rows) -> dict[str, Mapping[str, object]]:
    return {str(one.get("sha256")): one for one in rows}


def _is_stronger(one: Mapping[str, object], other: Mapping[str, object] | None) -> bool:
    """Whether a key is valid for longer than the other side has it."""
    if other is None:
        return True
    until, limit = one.get("until"), other.get("until")
    if not isinstance(limit, int):
        return False
    return not isinstance(until, int) or until > limit


def _rights(one: Mapping[str, object]) -> tuple[object, ...]:
    limits = (str(one.get(field)) for field in ("models", "requests_per_minute", "streams", *TOKEN_LIMITS))
    return (*limits, *(str(one.get(right, True)) for right in RIGHTS))
