"""The memory that an instance needs: as measured by records of its starts, or computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from .observation import MEMINFO_ROW, parse_memory, read
from .state import HOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARGIN_PARTS, CARD_MARGIN, HOST_MARGIN = 50, 256 << 20, 32 << 20  # of a measured need: 2 %, and at least that


def same_starts(record: Mapping[str, Any], fingerprint: str) -> list[Mapping[str, Any]]:
    """The starts of a file of records that are of this form of the unit, the latest first."""
    history = record.get("history")
    rows = [record, *reversed(history if isinstance(history, list) else [])]
    return [row for row in rows if fingerprint and isinstance(row, dict) and row.get("fingerprint") == fingerprint]


def measure_need(
    starts: list[Mapping[str, Any]], device: str, uuid: str, floor: int, total: int | None, limit: int | None
) -> int:
    """Bytes of a device: the largest peak of all starts and a margin, for one that ended at once had less to do.

    Args:
        starts: Those of the same form.
        device: The device.
        uuid: Of a card.
        floor: The computed bytes. They count where nothing was measured, or more than the device has.
        total: The device's bytes; None if unknown.
        limit: The most that the instance may have of it; None if there is no limit.
    """
    measured = max(_peaks(starts, device, uuid), default=0)
    need = measured + max(HOST_MARGIN if device == HOST else CARD_MARGIN, measured // MARGIN_PARTS)
    if not measured or (total is not None and need > total):
        return floor
    return need if limit is None else min(need, limit)


def share_of_host(declared: str, device: str) -> int | None:
    """A declared part of the host's memory in bytes; None for a card, and where the kernel does not tell."""
    rows = {row[1]: int(row[2]) << 10 for row in map(MEMINFO_ROW.match, read("/proc/meminfo").splitlines()) if row}
    return parse_memory(declared, rows["MemTotal"]) if device == HOST and "MemTotal" in rows else None


def _peaks(starts: list[Mapping[str, Any]], device: str, uuid: str) -> Iterator[int]:
    for one in starts:
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            row = one["host"] if device == HOST else one["cards"][uuid]
            yield int(row["peak"])


def load_seconds(starts: list[Mapping[str, Any]]) -> float:
    """Seconds that a start takes, by the latest one; 0 if unknown."""
    with suppress(KeyError, TypeError, ValueError, IndexError, OverflowError):
        return float(starts[0]["seconds"])
    return 0.0
