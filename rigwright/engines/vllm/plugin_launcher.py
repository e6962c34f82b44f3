"""Starts vLLM by a plugin's launcher: `python -I FILE KEY_FILE DOOR LAUNCHER ARGUMENT...`, in the plugin's environment.

A launcher is a program that a plugin brings in the place of `vllm serve`. It may serve in this very process or start
another Python to do so; either imports the door (launcher.py, beside this file) by its name. KEY_FILE is where that
finds the key, DOOR what vLLM calls its class.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

# As launcher.py has it: a path, which is no secret.
KEY_FILE = "RW_KEY_FILE"


def main() -> None:
    """Become the launcher."""
    os.environ[KEY_FILE], door, launcher, *arguments = sys.argv[1:]
    folder = str(Path(__file__).parent)
    # last, for nothing else is to be found here
    sys.path.append(folder)
    os.environ["PYTHONPATH"] = folder
    sys.argv = [launcher, *arguments, "--middleware", door]
    found = [*entry_points(group="console_scripts", name=launcher)]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} distributions have an entry point {launcher}, expected 1")
    sys.exit(found[0].load()())


# processes that vLLM starts import this file, too
if __name__ == "__main__":
    main()
