"""The shelf: a folder of this machine that throwaway hosts fetch from, for what has no address elsewhere."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PORT = 8080
MODEL = "tiny-rig.gguf"
ROOT = Path(__file__).resolve().parent.parent


def start_shelf(folder: Path, address: str, cgroup: str, log: Path) -> None:
    """Serve a folder with the tiny model in it, in a process and a cgroup of its own; returns once it listens.

    Raises:
        RuntimeError: the server ends at once; the text is its log.
    """
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "lab.file_server_program", str(folder / MODEL), address, str(PORT), cgroup]
    with open(log, "a") as output:
        server = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    while server.poll() is None:
        with suppress(OSError), socket.create_connection((address, PORT), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the file server on {address}:{PORT} does not start: {log.read_text()}")
