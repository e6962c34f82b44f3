"""Benches as an operator runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def bench(*words: str | Path) -> str:
    """Run `rigwright bench` to its end and return what it printed."""
    command = [sys.executable, "-m", "cli", "bench", *map(str, words)]
    done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"\n{done.stdout}")
    return done.stdout
