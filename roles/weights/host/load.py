"""Whether a box has better things to do than to hash."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

STALLED = 10.0  # per cent of the time in which some task waits for a disk
PRESSURE = Path("/proc/pressure/io")


class SystemLoad:
    """Looks at the load average, and at the stalls that the kernel counts (accounting/psi), where it does."""

    def __init__(self, most: float, pressure: Path = PRESSURE, pause: float = 2.0) -> None:
        self.most = most
        """Load average a CPU above which the box is busy."""
        self.pressure = pressure
        self.pause = pause
        """Seconds of rest in which the stalls of others are counted."""
        self.begun = False
        """Whether this program has read by now, which is in both numbers."""

    def describe_busy(self) -> str:
        """Why it is, or nothing."""
        load = max(0.0, os.getloadavg()[0] - self.begun) / (os.cpu_count() or 1)
        if load > self.most:
            return f"the load average is {load:.2f} a CPU"
        stalled = self._stall_percent()
        return f"programs wait for the disk {stalled:.0f} % of the time" if stalled > STALLED else ""

    def _stall_percent(self) -> float:
        found = self._parse_pressure()
        if found is None:
            return 0.0
        if not self.begun:
            return found[0]
        # the kernel's averages have our own waiting in them: the load while we rest is others' only
        began = time.monotonic()
        time.sleep(self.pause)
        after = self._parse_pressure()
        return (after[1] - found[1]) / 1e4 / (time.monotonic() - began) if after else 0.0

    def _parse_pressure(self) -> tuple[float, int] | None:
        """Per cent over ten seconds, and microseconds in all; None where the kernel does not count."""
        try:
            said = re.search(r"^some avg10=([0-9.]+) .*total=(\d+)", self.pressure.read_text(), re.MULTILINE)
        except OSError:
            return None
        return (float(said[1]), int(said[2])) if said else None
