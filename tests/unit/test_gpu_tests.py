"""Parts of `./rig test gpu` that need no card."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rigwright.inventory import ROOT
from tests.gpu.machine import check_here
from tests.unit.scripts import stand_in

SMI = "echo '00000000:01:00.0, 0x233510DE, 9.0, 143771, NVIDIA H200'"


def test_checks_of_this_machine_itself_come_to_verdicts(tmp_path: Path) -> None:
    stand_in(tmp_path, "nvidia-smi", SMI)
    done = check_here(
        *("--only", "N02,N03", str(ROOT / "checks/test_nvidia_driver.py")), path=f"{tmp_path}:{os.environ['PATH']}"
    )
    found = re.findall(r"^ *(ok|FAIL|skip) +local +(N[0-9]{2}) ", done.stdout, re.MULTILINE)
    assert {name for _, name in found} == {"N02", "N03"}, done.stdout + done.stderr
