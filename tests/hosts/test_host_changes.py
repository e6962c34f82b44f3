"""Changes of a host that its rig says nothing of: accepted, changed, told, accepted again, and rolled back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import LabHost

pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)

RULE = "/etc/sudoers.d/ops"
JOB = "/etc/cron.d/nightly"


def check(inventory: Path, *options: str, status: int) -> str:
    """The output of a check, on one line; JSON as it is."""
    words = [sys.executable, "-m", "cli", "check", str(inventory), *options]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd="/", env=os.environ | {"COLUMNS": "80"}, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if "--json" in options else " ".join((done.stdout + done.stderr).split())


def read_changes(inventory: Path) -> dict[str, str]:
    """Key of each change that is not accepted -> kind of change."""
    (host,) = json.loads(check(inventory, "--json", status=1))["hosts"]
    changes: list[dict[str, Any]] = [change for one in host["checks"] for change in one["changes"]]
    return {one["key"]: one["change"] for one in changes if one["counts"]}


def test_changes_are_reported_until_they_are_accepted(converged: LabHost, inventory: Path) -> None:
    assert "not reviewed: " in check(inventory, status=0)
    assert "accepted entries 1 by ana" in check(inventory, "--accept", "--yes", "--author=ana", status=0)
    (file,) = (inventory.parent / "accepted").iterdir()
    first = file.read_text()
    assert ": conforms (" in check(inventory, status=0)

    converged.run(f"echo '%ops ALL=(ALL) NOPASSWD: /usr/bin/systemctl' > {RULE}; chmod 440 {RULE}")
    converged.run(f"mkdir -p /etc/cron.d; echo '0 3 * * * root /usr/bin/true' > {JOB}")
    assert read_changes(inventory) == {RULE: "new", JOB: "new"}
    lines = check(inventory, status=1)
    assert f"sudo rules: {RULE}: new (" in lines
    assert "conforms, 2 changes are not accepted" in lines

    assert "accepted entries 2" in check(inventory, "--accept", "--yes", status=0)
    check(inventory, status=0)
    converged.run(f"sed -i s/systemctl/bash/ {RULE}")
    assert read_changes(inventory) == {RULE: "changed"}
    assert "+%ops ALL=(ALL) NOPASSWD: /usr/bin/bash" in check(inventory, "-v", status=1)

    file.write_text(first)
    ran = check(inventory, status=1)
    assert "FAIL box X01 the accepted entries next to the inventory are those that the host has recorded" in ran
    assert "the host has recorded accepted entries 2; accepted/" in ran
    assert "refused: the host has recorded accepted entries 2" in check(inventory, "--accept", "--yes", status=1)
    file.unlink()
    assert "; the file accepted/" in check(inventory, status=1)
