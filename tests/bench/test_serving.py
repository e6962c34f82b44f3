"""`rigwright bench serving`, on the throwaway host."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.conftest import Box
from tests.bench.support import bench
from tests.hosts.support import main_pid, served


def test_an_instance_is_timed_in_its_unit_and_bare_and_serves_again(box: Box, tmp_path: Path) -> None:
    before = main_pid(box.host)
    file = tmp_path / "figures.json"
    small = ("--streams", "1,2", "--requests", "1", "--tokens", "8", "--rounds", "2")
    said = bench("serving", box.inventory, *small, "--json", file)
    assert "unit \N{DIVISION SIGN} bare" in said
    figures = json.loads(file.read_text())
    assert {streams: len(ratio["rounds"]) for streams, ratio in figures["unit_by_bare"].items()} == {"1": 2, "2": 2}
    assert served(box.host)
    assert main_pid(box.host) != before
