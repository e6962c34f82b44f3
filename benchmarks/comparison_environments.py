"""Environments of programs that ours are compared with, each from a lock file of its own."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path


def install(lock: Path, folder: Path) -> None:
    """Prepare an environment from its lock, once.

    Raises:
        RuntimeError: pip fails; its words are the text.
    """
    stamp = folder / f".{hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:16]}"
    if stamp.exists():
        return
    print(f"preparing {folder.name} from locks/{lock.name}", file=sys.stderr, flush=True)
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary", ":all:")
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(folder / "bin" / "pip"), "install", *options, "-r", str(lock)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[:2])}: {done.stderr.strip()}")
    stamp.touch()


def installed_version(folder: Path, distribution: str) -> str:
    """Which version of it an environment has."""
    code = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    command = [str(folder / "bin" / "python"), "-c", code, distribution]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
