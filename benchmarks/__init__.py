"""Benchmarks of Rigwright's own work, each beside another program or a goal: `python -m benchmarks NAME`."""

import json
from dataclasses import asdict, dataclass


class BenchmarkFailed(Exception):
    """A program, a deploy or a verb failed, or changed what it was to leave; the text is the end of its output."""


@dataclass(frozen=True)
class JsonReport:
    """A report that programs can read."""

    def as_json(self) -> str:
        """All of it."""
        return json.dumps(asdict(self), indent=2) + "\n"
