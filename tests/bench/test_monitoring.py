"""`rigwright bench monitoring`, with as little as it takes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.support import bench


def test_an_instance_is_timed_while_its_box_is_asked_and_while_it_is_not(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    said = bench("monitoring", "--release", "debian-12", "--rounds", "1", "--seconds", "0.5", "--json", file)
    assert "of a core every 5 s" in said
    figures = json.loads(file.read_text())
    assert [len(figures[name]) for name in ("watched", "alone")] == [1, 1]
    assert figures["look_s"] > 0
    assert 0 < figures["node_bytes"] < 40e6
