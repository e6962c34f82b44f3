"""Environments with vLLM, made of kept wheels on this machine: no throwaway host is needed to ask vLLM something."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock
from tests.stand_ins import conda_python, wheel_cache
from tests.stand_ins.environment_source import is_for_interpreter
from tests.stand_ins.wheel_cache import CachedWheel

# on the disk: a closure is installed in 8 GB
FOLDERS = "/var/tmp"


@contextmanager
def environments_folder() -> Iterator[Path]:
    """A folder for some; they share what is the same in them."""
    folder = Path(tempfile.mkdtemp(prefix="rigwright-vllm-", dir=FOLDERS))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def make_environment(folder: Path, group: str, interpreter: conda_python.Interpreter) -> Path:
    """Install a locked group; returns the environment's Python.

    Args:
        folder: Of `environments`.
        group: Of wheels, in the shipped locks.
        interpreter: Their Python.
    """
    rows = [row for row in Lock.load([ROOT / "locks"]).groups[group] if is_for_interpreter(row, interpreter)]
    found = [CachedWheel(row.name, row.version, row.file, row.sha256, row.size) for row in rows]
    wheel_cache.fetch_wheels(found, interpreter.series)
    uv, made = str(Path(sys.executable).with_name("uv")), folder / group
    around = {**os.environ, "UV_CACHE_DIR": str(folder / "cache"), "UV_NO_CONFIG": "1", "UV_OFFLINE": "1"}
    subprocess.run([uv, "venv", "-q", "--python", str(interpreter.program), str(made)], env=around, check=True)
    put = [uv, "pip", "install", "-q", "--no-index", "--no-deps", "--link-mode", "hardlink", "--python", str(made)]
    subprocess.run([*put, *(str(wheel.cache_path) for wheel in found)], env=around, check=True)
    return made / "bin" / "python"


def start_program(python: Path, module: str) -> subprocess.Popen[str]:
    """Start a program of this repository in an environment, which asks no network and keeps what it keeps there."""
    kept = python.parent.parent / "kept"
    kept.mkdir(exist_ok=True)
    around = {"HOME": str(kept), "PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (kept / f"{module}.log").open("w") as log:
        return subprocess.Popen([python, "-m", module], cwd=ROOT, env=around, stderr=log, text=True, **pipes)


def program_output(program: subprocess.Popen[str], given: object = None) -> str:
    """The output of a started program, given some JSON."""
    printed, _ = program.communicate("" if given is None else json.dumps(given))
    assert program.returncode == 0, f"it ended with {program.returncode}"
    return printed
