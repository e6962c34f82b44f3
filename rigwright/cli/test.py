"""`rigwright test`: all that has to hold before a change lands."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click

from rigwright.inventory import ROOT

STAGES = {
    "lint": [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["shellcheck", "rig", ".ci/run"]],
    "types": [["mypy"]],
    "unit": [["pytest", "tests/unit"]],
    "hosts": [["pytest", "tests/hosts"]],
}


@click.command()
@click.argument("stages", nargs=-1, type=click.Choice(list(STAGES)))
def test(stages: tuple[str, ...]) -> None:
    """Run the project's own tests: lint, types, unit tests, and tests on throwaway hosts. All of them by default.

    Host tests need root and about twenty minutes, most of them for compiling llama.cpp once a Debian release.
    """
    for stage in stages or tuple(STAGES):
        for command in STAGES[stage]:
            click.echo(f"==> {' '.join(command)}")
            started = time.monotonic()
            program = str(Path(sys.executable).with_name(command[0]))
            status = subprocess.run([program, *command[1:]], cwd=ROOT, check=False).returncode
            click.echo(f"==> {stage}: {'ok' if status == 0 else 'failed'} after {time.monotonic() - started:.0f} s")
            if status:
                sys.exit(1)
