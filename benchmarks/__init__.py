"""Benchmarks of Rigwright's own work, each beside another program or a goal: `python -m benchmarks NAME`."""


class BenchmarkFailed(Exception):
    """A program, a deploy or a verb failed, or changed what it was to leave; the text is the end of its output."""
