"""`python -m benchmarks gateway`, with as little as it takes."""

import json
from pathlib import Path

from tests.bench.bench_command import benchmark


def test_a_gateway_is_timed_beside_the_instance_and_another_proxy(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    small = ("--rounds", "1", "--seconds", "0.5", "--streams", "1,4", "--crowd", "16")
    said = benchmark("gateway", *small, "--json", file)
    assert "gateway: TTFT P99 with 4 streams" in said
    figures = json.loads(file.read_text())
    ways = {"socket", "port", "gateway", "gateway, TLS"} | (set() if figures["skipped"] else {"LiteLLM"})
    assert {row["way"] for row in figures["rows"]} == set(figures["short"]) == ways
    assert all(len(load["requests"]) > 0 for row in figures["rows"] for load in row["loads"])
    assert {crowd["streams"] for crowd in figures["crowds"]} == {16}
    assert [one["bodies"] > 0 for one in figures["large"]] == [True, True]
