"""`rigwright bench serving`, on the throwaway host."""

import json
from pathlib import Path

from tests.bench.bench_command import run_bench
from tests.bench.conftest import BenchBox
from tests.hosts.support import is_serving, main_pid


def test_an_instance_is_timed_bare_in_its_unit_and_through_its_port_and_serves_again(
    box: BenchBox, tmp_path: Path
) -> None:
    before = main_pid(box.host)
    file = tmp_path / "figures.json"
    small = ("--streams", "1,2", "--requests", "1", "--tokens", "8", "--loads", "2", "--rounds", "2")
    said = run_bench("serving", box.inventory, *small, "--json", file)
    assert "socket unit and proxy, at worst: TTFT" in said
    figures = json.loads(file.read_text())
    for beside in ("unit_by_bare", "port_by_unit"):
        counted = {streams: len(pairs["first_later_s"]["loads"]) for streams, pairs in figures[beside].items()}
        assert counted == {"1": 4, "2": 4}
    assert is_serving(box.host)
    assert main_pid(box.host) != before
    assert box.host.run("find /run -maxdepth 1 -name 'rw-bench*'") == ""
