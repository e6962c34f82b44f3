"""The checks of the driver as `rigwright check` runs them: fixtures, order, and a line each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rigwright.inventory import ROOT
from tests.unit.nvidia_host import NvidiaHost

FILES = ("base", "nvidia_driver", "preflight")


def lines(folder: Path, cards: str) -> list[tuple[str, str, str]]:
    """(verdict, id, the rest) of each line."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.unit.folder_plugin", "--inventory", "x"]
    files = [f"checks/test_{name}.py" for name in FILES]
    environment = os.environ | {"FOLDER": str(folder), "CARDS": cards}
    done = subprocess.run(
        [*command, "-c", "checks/pytest.ini", *files], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    found = re.findall(r"^ *(ok|FAIL|skip) +box +([A-Z][0-9]{2}) +(.*(?:\n {8}.*)*)", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return found


def test_they_come_after_preflight_and_a_driver_that_is_gone_has_a_line_each(tmp_path: Path) -> None:
    host = NvidiaHost(tmp_path.resolve())
    found = lines(host.root, "yes")
    assert [identifier for _, identifier, _ in found] == ["P01", *(f"N0{n}" for n in range(1, 8)), "B01", "B02", "B03"]
    assert {word for word, identifier, _ in found if identifier.startswith("N")} == {"ok"}

    host.remove("says/asked")
    host.says(18, gpus="Failed to initialize NVML: Driver/library version mismatch\n")
    found = lines(host.root, "yes")
    red = {identifier: rest for word, identifier, rest in found if word == "FAIL" and identifier.startswith("N")}
    assert set(red) == {"N01", "N02", "N04", "N05", "N06", "N07"}
    assert all("Driver/library version mismatch" in rest for rest in red.values())
    # once for N02, once for N04, and once for all others together: a driver that hangs takes 20 s each time
    assert (host.root / "says/asked").read_text().split() == ["gpus"] * 3


def test_a_rig_without_cards_skips_each_with_the_reason(tmp_path: Path) -> None:
    found = lines(NvidiaHost(tmp_path.resolve()).root, "no")
    skipped = {identifier: rest for word, identifier, rest in found if word == "skip"}
    assert set(skipped) == {f"N0{number}" for number in range(1, 8)}
    assert all(rest.endswith("(the rig declares no cards)") for rest in skipped.values())
