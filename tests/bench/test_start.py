"""`python -m benchmarks start`, over one host."""

import json
from pathlib import Path

from tests.bench.bench_command import benchmark
from tests.bench.conftest import RELEASE


def test_verbs_that_change_nothing_are_timed(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    benchmark("start", "--release", RELEASE, "--hosts", "1", "--runs", "1", "--json", file)
    rows = json.loads(file.read_text())["rows"]
    assert [row["verb"] for row in rows] == [
        "--help",
        "validate",
        "status",
        "health",
        "plan",
        "deploy",
        "check",
        "health, frozen",
    ]
    assert all(min(row["seconds"]) > 0 and row["peak_bytes"] > 1e6 for row in rows)
    assert [row["sessions"] > 0 for row in rows] == [False, False, *[True] * 6]
