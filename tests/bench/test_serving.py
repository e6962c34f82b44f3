"""`rigwright bench serving`, on the throwaway host."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.conftest import Box
from tests.bench.support import bench
from tests.hosts.support import main_pid, served


def test_an_instance_is_timed_bare_in_its_unit_and_through_its_port_and_serves_again(box: Box, tmp_path: Path) -> None:
    before = main_pid(box.host)
    file = tmp_path / "figures.json"
    small = ("--streams", "1,2", "--requests", "1", "--tokens", "8", "--loads", "2", "--rounds", "2")
    said = bench("serving", box.inventory, *small, "--json", file)
    assert "socket unit and proxy, at worst: TTFT" in said
    figures = json.loads(file.read_text())
    for beside in ("unit_by_bare", "port_by_unit"):
        counted = {streams: len(pairs["first_later_s"]["loads"]) for streams, pairs in figures[beside].items()}
        assert counted == {"1": 4, "2": 4}
    assert served(box.host)
    assert main_pid(box.host) != before
    assert box.host.run("find /run -maxdepth 1 -name 'rw-bench*'") == ""
