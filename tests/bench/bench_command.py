"""Benchmarks and benches, run as their users run them."""

import subprocess
import sys
from pathlib import Path

from rigwright.inventory import ROOT


def benchmark(*words: str | Path) -> str:
    """Run `python -m benchmarks` to its end and return its output."""
    return run("benchmarks", *words)


def run_bench(*words: str | Path) -> str:
    """Run `rigwright bench` to its end and return its output."""
    return run("cli", "bench", *words)


def run(module: str, *words: str | Path) -> str:
    """Run a module of the checkout to its end and return its output."""
    command = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"\n{done.stdout}")
    return done.stdout
