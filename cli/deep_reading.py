"""Progress of `check --deep`: the bytes that a host has read, the rate, and the time left by its last such run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from roles.progress import progress
from roles.step_durations import READ_BYTES, StepDurations


@contextmanager
def show_deep_reading(host: str) -> Iterator[Callable[[int, list[str]], None]]:
    """Show how much a host has read, until the block ends.

    Args:
        host: Its name.

    Yields:
        A callback for the bytes until now, and the sections of the survey that have not answered yet.
    """
    # the amount of another host says nothing: its weights are others
    expected = StepDurations.load().steps.get(READ_BYTES, {}).get(host, {}).get("", 0.0) * 1e6
    done = 0

    def report(number: int, sections: list[str]) -> None:
        nonlocal done
        done = max(done, number)
        task.last = f"waiting for {', '.join(sections)}" if sections else ""
        task.report_done(done, int(expected) if done <= expected else 0, "bytes")

    with progress.task(host, "reading all files") as task:
        yield report
    made = StepDurations()
    made.add(READ_BYTES, host, {"": done / 1e6})
    made.save()
