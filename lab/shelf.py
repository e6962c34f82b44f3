"""A file server on the lab's bridge, with ranges, from which throwaway hosts fetch what has no address elsewhere.

`python -m lab.shelf FOLDER ADDRESS CGROUP` serves until it is ended.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from lab import cgroups, tiny_model

PORT = 8080
MODEL = "tiny-rig.gguf"
ROOT = Path(__file__).resolve().parent.parent


def application(folder: Path) -> Starlette:
    """The server over a folder."""
    return Starlette(routes=[Mount("/", StaticFiles(directory=folder))])


def start(folder: Path, address: str, cgroup: str, log: Path) -> None:
    """Put the tiny model on the shelf and serve it, in a process and a cgroup of its own; returns once it listens.

    Raises:
        RuntimeError: the server ends at once; the log says why.
    """
    folder.mkdir(exist_ok=True)
    tiny_model.write(folder / MODEL)
    command = [sys.executable, "-m", "lab.shelf", str(folder), address, cgroup]
    with open(log, "a") as output:
        server = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    while server.poll() is None:
        with suppress(OSError), socket.create_connection((address, PORT), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the file server on {address}:{PORT} does not start: {log.read_text()}")


if __name__ == "__main__":
    cgroups.enter(sys.argv[3])
    uvicorn.run(application(Path(sys.argv[1])), host=sys.argv[2], port=PORT, log_level="warning")
