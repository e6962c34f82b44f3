"""How a job on a host counts the wheels that pip brings, and what becomes of pip's exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigwright.render import render
from tests.unit import programs
from tests.unit.scripts import stand_in

REQUIREMENTS = "a==1 \\\n    --hash=sha256:0\nb==2 \\\n    --hash=sha256:1\n"
PIP = """echo "Collecting a==1 (from -r x)"
echo "  Downloading a.whl"
echo "Collecting b==2 (from -r x)"
echo "Collecting c==3 (from nowhere)"
echo "Installing collected packages: a, b"
echo "ERROR: no room" >&2
"""


@pytest.mark.parametrize("status", [0, 1, 7])
def test_wheels_are_counted_and_a_failure_stays_one(tmp_path: Path, status: int) -> None:
    stand_in(tmp_path, "pip", f"{PIP}exit {status}")
    (tmp_path / "requirements").write_text(REQUIREMENTS)
    script = f"""set -eu
indexed() {{ "$@"; }}
{render("jobs/wheels.sh.j2")}
wheels {tmp_path}/pip {tmp_path}/requirements --target x
echo done
"""
    done = programs.run(["sh", "-c", script], env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == status
    assert done.stdout.splitlines() == ["[1/2] a==1", "[2/2] b==2", "[2/2] c==3", *(["done"] if status == 0 else [])]
    assert done.stderr == "ERROR: no room\n"
