"""The file by which the gateway knows instances on demand that failed or were stopped by hand."""

from __future__ import annotations

import os
from contextlib import suppress

from .state import LedgerState, Observation


def render_wake_states(state: LedgerState, seen: Observation) -> str:
    """A line of each: its name, `failed` or `stopped`, and 1 if the next request starts it all the same.

    Args:
        state: The ledger.
        seen: The box.
    """
    lines = []
    for name, entry in sorted(state.entries.items()):
        if name in seen.stopped_by_hand:
            lines.append(f"{name} stopped 0\n")
        elif entry.reason:
            lines.append(f"{name} failed {int(entry.retry_at <= seen.now)}\n")
    return "".join(lines)


def publish_wake_states(path: str, state: LedgerState, seen: Observation) -> None:
    """Replace the file by that of this moment, in one step; one that cannot be written is removed."""
    text = render_wake_states(state, seen)
    try:
        with suppress(OSError), open(path, encoding="ascii") as file:
            if file.read() == text:
                return
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(text)
        os.replace(f"{path}.new", path)
    except OSError:
        with suppress(OSError):
            os.unlink(path)
