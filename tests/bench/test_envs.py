"""`python -m benchmarks envs`, with as little as it takes."""

import json
from pathlib import Path

import pytest

from tests.bench.bench_command import benchmark
from tests.stand_ins import conda_python


def test_environments_are_timed_beside_uv_and_drawn_once(tmp_path: Path) -> None:
    if not (found := conda_python.find_interpreter()).wanted:
        pytest.skip(f"{found} is here alone")
    file = tmp_path / "figures.json"
    benchmark("envs", "--which", "small", "--json", file)
    figures = json.loads(file.read_text())
    assert {row["what"]: len(row["theirs"]) > 0 for row in figures["rows"]} == {
        "deploy that brings it": True,
        "of it putting together, judging, trying": False,
        "deploy that changes nothing": True,
        "files compared with root's record": False,
    }
    assert all(min(row["ours"]) > 0 for row in figures["rows"])
    assert figures["uplink"] >= 1
