"""What a lab's hosts take of processors."""

import math
from pathlib import Path

import pytest

from lab import cgroups


@pytest.mark.parametrize(
    ("unified", "seconds"),
    [
        ("usage_usec 1250000\nuser_usec 1000000\nsystem_usec 250000\n", 1.25),
        # the first version's hierarchy beside it counts nothing
        (None, math.nan),
    ],
)
def test_what_a_host_has_taken_is_told_by_the_hierarchy_that_counts(
    unified: str | None, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hierarchy in ("systemd", "unified"):
        (tmp_path / hierarchy / "rwx-box").mkdir(parents=True)
    if unified:
        (tmp_path / "unified/rwx-box/cpu.stat").write_text(unified)
    monkeypatch.setattr(cgroups, "cgroup_hierarchies", lambda: [tmp_path / "systemd", tmp_path / "unified"])
    assert cgroups.cpu_seconds("rwx-box") == pytest.approx(seconds, nan_ok=True)
