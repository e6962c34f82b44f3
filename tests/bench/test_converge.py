"""`python -m benchmarks converge`: it ends only if a deploy has nothing to do after a deploy, nor after the peer."""

import json
from pathlib import Path

from tests.bench.bench_command import benchmark
from tests.bench.conftest import RELEASE


def test_a_deploy_that_changes_nothing_is_timed_beside_the_peer(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    said = benchmark("converge", "--release", RELEASE, "--runs", "1", "--json", file)
    assert "ansible takes" in said
    rows = json.loads(file.read_text())["rows"]
    assert {(row["verb"], row["hosts"]) for row in rows} == {
        (verb, hosts) for verb in ("ansible-playbook", "rig deploy") for hosts in (1, 4)
    }
    assert all(row["ratio"] > 0 and row["sessions"] > 0 for row in rows)
