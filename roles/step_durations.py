"""How long the steps of a run took on each host, from earlier runs, and the time that a run has left by them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

MOST_BYTES = 4 << 20  # of the record; a larger file is foreign
MOST_SECONDS = 1e6  # of one part of a step
LEAST_SECONDS = 0.5  # a shorter step is not recorded: an empty one takes that long too
UNRECORDED = 0.2  # seconds that a step counts which has no record
READ_BYTES = "bytes of check --deep"
"""The step of which megabytes are recorded, by which the next run knows how much is left."""
HALFWAY = 30.0  # seconds after which a step without a record counts as half done

StepSeconds = dict[str, float]
"""Part of a step, "" for all that has no parts -> seconds, in order."""


def record_path() -> Path:
    """The record of this user: `$XDG_STATE_HOME/rigwright/step-durations.json`.

    Raises:
        RuntimeError: this user has no home directory.
    """
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "rigwright" / "step-durations.json"


def _limit_seconds(took: float) -> float:
    # in this order NaN is a number, too: a comparison with it keeps the first
    return max(0.0, min(MOST_SECONDS, float(took)))


class StepDurations:
    """Step -> host -> seconds of each of its parts, when it last changed something there; of READ_BYTES, megabytes."""

    def __init__(self, steps: dict[str, dict[str, StepSeconds]] | None = None) -> None:
        self.steps = steps or {}

    @classmethod
    def load(cls) -> StepDurations:
        """Read the record; an empty one where there is none that can be read."""
        with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError, RuntimeError):
            path = record_path()
            if path.stat().st_size <= MOST_BYTES:
                return cls(
                    {
                        str(step): {
                            str(host): {str(part): _limit_seconds(took) for part, took in parts.items()}
                            for host, parts in hosts.items()
                        }
                        for step, hosts in json.loads(path.read_text()).items()
                    }
                )
        return cls()

    def save(self) -> None:
        """Write it in one step, merged with the record there; without permission to write there is no record."""
        with suppress(OSError, RuntimeError):
            path = record_path()
            merged = StepDurations.load().steps
            for step, hosts in self.steps.items():
                merged.setdefault(step, {}).update(hosts)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = path.with_suffix(f".{os.getpid()}")
            new.write_text(json.dumps(merged, indent=1))
            new.replace(path)

    def add(self, step: str, host: str, parts: StepSeconds) -> None:
        """Record a step that has changed something."""
        if sum(parts.values()) >= LEAST_SECONDS:
            self.steps.setdefault(step, {})[host] = {part: round(took, 1) for part, took in parts.items()}

    def expected(self, step: str, host: str) -> StepSeconds | None:
        """The duration of a step on a host, or in the middle on others; None where it has no record."""
        hosts = self.steps.get(step)
        if not hosts:
            return None
        middle = median(sum(parts.values()) for parts in hosts.values())
        return hosts.get(host) or min(hosts.values(), key=lambda parts: abs(sum(parts.values()) - middle))

    def expected_of_roles(self, roles: Collection[str], host: str) -> float | None:
        """Seconds of all recorded steps of these roles on a host, or in the middle on others; None without a record.

        An upper bound: a run seldom changes each of them.
        """
        own = [step for step, hosts in self.steps.items() if role_of_step(step) in roles and host in hosts]
        steps = own or [step for step in self.steps if role_of_step(step) in roles]
        known = [parts for step in steps if (parts := self.expected(step, host))]
        return sum(sum(parts.values()) for parts in known) if known else None


def role_of_step(step: str) -> str:
    """The role of a step: `nvidia_driver` for `NVIDIA driver: Driver module`."""
    return step.partition(":")[0].casefold().replace(" ", "_")


class RunEstimate:
    """Which part of a run on one host is done, which never falls, and the seconds that are left, which never rise."""

    def __init__(self, steps: Sequence[str], host: str, durations: StepDurations) -> None:
        self.expected = [durations.expected(step, host) for step in steps]
        self.is_recorded = any(parts for parts in self.expected)
        self.began = time.monotonic()
        self.number = 0
        self.fraction = 0.0
        self.left: float | None = None

    def update(self, number: int, part: str, before: Mapping[str, float], took: float, done: float | None) -> None:
        """Bring both up to date.

        Args:
            number: Steps that are done.
            part: The part of the step that is under way.
            before: Parts of it that are done -> seconds.
            took: Seconds of this part until now.
            done: How much of it the host reports as done, from 0 to 1; None where it reports nothing.
        """
        count = len(self.expected)
        if not self.is_recorded or number >= count:
            in_step = took + sum(before.values())
            share = (number + in_step / (in_step + HALFWAY)) / count if number < count else 1.0
            self.fraction = max(self.fraction, min(share, 1.0))
            return
        parts = self.expected[number]
        left = sum(sum(later.values()) if later else UNRECORDED for later in self.expected[number + 1 :])
        if parts:
            usual = parts.get(part, 0.0)
            left += (1 - done) * max(usual, took) if done is not None else max(usual - took, 0.0)
            names = [*parts]
            after = names[names.index(part) + 1 :] if part in parts else [name for name in names if name not in before]
            left += sum(parts[name] for name in after)
        elif done:
            left += took * (1 - done) / done
        self.left = left if self.left is None else min(self.left, left)
        elapsed = time.monotonic() - self.began
        self.fraction = max(self.fraction, elapsed / (elapsed + self.left) if elapsed + self.left else 0.0)
