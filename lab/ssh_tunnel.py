"""An SSH tunnel to a service that listens on a host's loopback interface."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lab.hosts import LabHost

OPEN_LIMIT = 30  # seconds


@contextmanager
def forward_port(host: LabHost, port: int) -> Iterator[int]:
    """Forward a free local port to the host's own; yields the local port.

    Raises:
        TimeoutError: ssh does not open it within OPEN_LIMIT seconds.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        local = int(probe.getsockname()[1])
    forward = ["-N", "-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{local}:127.0.0.1:{port}"]
    command = host.ssh_command()
    client = subprocess.Popen([*command[:-1], *forward, command[-1]])
    try:
        deadline = time.monotonic() + OPEN_LIMIT
        while True:
            try:
                socket.create_connection(("127.0.0.1", local), timeout=1).close()
                break
            except OSError:
                if client.poll() is not None or time.monotonic() > deadline:
                    raise TimeoutError(f"no tunnel to {host.name}:{port}") from None
                time.sleep(0.02)
        yield local
    finally:
        client.terminate()
        client.wait()
