"""The checks of the driver as `rigwright check` runs them: fixtures, order, and a line each."""

import os
import re
import subprocess
import sys
from pathlib import Path

from checks.check_catalogue import list_checks
from rigwright.project_root import ROOT
from tests.unit.nvidia_host import NvidiaFolderHost

NVIDIA = ("nvidia_driver", "nvidia_modules", "nvidia_packages", "nvidia_cards")
FILES = ("base", "preflight", *reversed(NVIDIA))
SETTINGS = ("memory",)
MANAGED = {"N14", "N15", "N16", "N17", "N19", "N20"}
# with any driver, where there is something to hold the box to
DECLARED = {"N12", "N21", "N22", "N24", "N28"}
BASE = sorted(one.id for one in list_checks() if one.id.startswith("B"))
ALL = [f"N{number:02}" for number in (*range(1, 21), 28, *range(21, 28))]


def lines(folder: Path, cards: str) -> list[tuple[str, str, str]]:
    """(verdict, id, the rest) of each line."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "tests.unit.folder_plugin", "--inventory", "x"]
    files = [f"checks/test_{name}.py" for name in FILES]
    environment = os.environ | {"FOLDER": str(folder), "CARDS": cards}
    done = subprocess.run(
        [*command, "-c", "checks/pytest.ini", *files], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    found = re.findall(r"^ *(ok|FAIL|skip) +box +([A-Z][0-9]{2}) +(.*(?:\n {8}.*)*)", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    # a failure has another line at the end, with its finding
    last = {identifier: (word, identifier, " ".join(rest.split())) for word, identifier, rest in found}
    return list(last.values())


def test_they_come_after_preflight_and_a_driver_that_is_gone_has_a_line_each(tmp_path: Path) -> None:
    host = NvidiaFolderHost(tmp_path.resolve())
    found = lines(host.root, "managed")
    assert [identifier for _, identifier, _ in found] == ["P01", *ALL, *BASE]
    skipped = {identifier: rest for word, identifier, rest in found if word == "skip"}
    assert set(skipped) == {"N14", "N17"}
    assert skipped["N14"].endswith(
        "(no driver is locked: the distribution's archive decides the version within the branch)"
    )
    assert skipped["N17"].endswith("(the driver is from the distribution's archive)")
    assert {rest for word, identifier, rest in found if word == "FAIL" and identifier.startswith("N")} == set()

    host.remove("says/asked")
    host.set_smi_answers(
        18, **dict.fromkeys(("gpus", *SETTINGS), "Failed to initialize NVML: Driver/library version mismatch\n")
    )
    found = lines(host.root, "managed")
    red = {identifier: rest for word, identifier, rest in found if word == "FAIL" and identifier.startswith("N")}
    assert set(red) == {"N01", "N02", "N04", "N05", "N06", "N07", "N21", "N22", "N23", "N24", "N27"}
    assert all("Driver/library version mismatch" in rest for rest in red.values())
    # each once, for all checks together: a driver that hangs takes 20 s each time
    asked = (host.root / "says/asked").read_text().split()
    assert {name: asked.count(name) for name in ("gpus", *SETTINGS)} == {"gpus": 1, "memory": 1}


def test_checks_of_a_managed_driver_are_skipped_with_the_reason(tmp_path: Path) -> None:
    found = lines(NvidiaFolderHost(tmp_path.resolve()).root, "yes")
    skipped = {identifier: rest for word, identifier, rest in found if word == "skip"}
    assert {name for name, rest in skipped.items() if rest.endswith("(the driver is not managed)")} == MANAGED
    assert set(skipped) - MANAGED == DECLARED
    assert all("declared)" in skipped[name] for name in DECLARED)
    assert {word for word, identifier, _ in found if identifier in set(ALL) - set(skipped)} == {"ok"}


def test_a_rig_without_cards_skips_each_with_the_reason(tmp_path: Path) -> None:
    found = lines(NvidiaFolderHost(tmp_path.resolve()).root, "no")
    skipped = {identifier: rest for word, identifier, rest in found if word == "skip"}
    assert set(skipped) == set(ALL)
    # kernel settings need no cards
    undeclared = {name for name, rest in skipped.items() if rest.endswith("(none are declared)")}
    assert undeclared == {"N12", "N28"}
    assert all(skipped[name].endswith("(the rig declares no cards)") for name in set(ALL) - undeclared)
