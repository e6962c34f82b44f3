"""Questions to nvidia-smi on a checked host; an answer that is none is a drift."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from testinfra.host import Host

from checks import Drift
from rigwright.nvidia.cards.presence import LOG

T = TypeVar("T")


def ask(host: Host, question: str, read: Callable[[int, str, str], T]) -> T:
    """Ask one of rigwright.nvidia.smi's questions.

    Raises:
        Drift: nvidia-smi has no answer to it.
    """
    result = host.run(question)
    try:
        return read(result.rc, result.stdout, result.stderr)
    except ValueError as error:
        raise Drift(f"expected an answer of nvidia-smi, found: {error}; {LOG}, then reboot") from None
