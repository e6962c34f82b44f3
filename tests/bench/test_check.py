"""`rigwright bench check`, over one host."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.conftest import RELEASE
from tests.bench.support import bench


def test_all_checks_are_timed_beside_questions_asked_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    said = bench("check", "--release", RELEASE, "--hosts", "1", "--runs", "1", "--json", file)
    assert "checks a host" in said
    rows = json.loads(file.read_text())["rows"]
    assert [(row["verb"], row["hosts"]) for row in rows] == [("check", 1), ("testinfra", 1)]
    assert all(min(row["seconds"]) > 0 and row["sessions"] > 0 for row in rows)
