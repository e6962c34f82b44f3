"""Test data, hosts and fetch programs of benchmarks/weight_fetch.py, all on this machine."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import BenchmarkFailed
from rigwright.project_root import ROOT
from rigwright.weights.verification import PACKAGE
from tests.stand_ins.hub import StandInHub

REPOSITORY = "bench/weights"


@dataclass(frozen=True)
class World:
    """Made data, and folders to fetch it into."""

    folder: Path
    commit: str
    files: dict[str, str]
    """Name -> SHA-256."""
    size: int
    """Bytes of each."""

    @property
    def data(self) -> Path:
        """Where the files are made."""
        return self.folder / "data"

    def spec(self, box: str, hub: StandInHub, peers: tuple[str, ...] = ()) -> Path:
        """The file of a run that fetches everything into a box's own folder."""
        root = self.folder / box
        (root / "records").mkdir(parents=True, exist_ok=True)
        wanted = []
        for name, digest in self.files.items():
            one = {"kind": "hub", "endpoint": hub.url, "repository": REPOSITORY, "revision": self.commit, "file": name}
            found = [*({"kind": "peer", "base": base} for base in peers), one]
            path = f"{REPOSITORY}/{self.commit}/{name}"
            wanted.append({"path": path, "sha256": digest, "size": self.size, "sources": found})
        value = {
            "root": str(root / "models"),
            "records": str(root / "records"),
            "ledger": str(root / "owned"),
            "locks": str(root / "locks"),
            "hub_python": sys.executable,
            "hub_user": "nobody",
            "sent": "",
            "redirects": [hub.cdn_url],
            "files": wanted,
        }
        (root / "spec.json").write_text(json.dumps(value))
        return root / "spec.json"

    def fetch(self, spec: Path) -> list[str]:
        """The command of a run, with the programs as they lie on a host."""
        programs = self.folder / "programs"
        if not programs.exists():
            shutil.copytree(ROOT / "roles" / "weights" / "host", programs / PACKAGE)
        return ["env", f"PYTHONPATH={programs}", sys.executable, "-S", "-m", f"{PACKAGE}.fetch", str(spec)]

    def clear(self, box: str) -> None:
        """Take away what a box has."""
        shutil.rmtree(self.folder / box, ignore_errors=True)


@contextmanager
def shared(folder: Path, scratch: Path, log: str = "off") -> Iterator[str]:
    """A static file server of a folder; its access log has a line of status and bytes for each request."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = f"""daemon off;
pid {scratch}/nginx.pid;
error_log {scratch}/nginx.log;
events {{}}
http {{
  log_format short "$status $bytes_sent";
  access_log {log}{" short" if log != "off" else ""};
  client_body_temp_path {scratch}/body;
  proxy_temp_path {scratch}/proxy;
  fastcgi_temp_path {scratch}/fastcgi;
  uwsgi_temp_path {scratch}/uwsgi;
  scgi_temp_path {scratch}/scgi;
  sendfile on;
  server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""
    (scratch / "nginx.conf").write_text(settings)
    server = subprocess.Popen(["nginx", "-c", str(scratch / "nginx.conf"), "-g", "user root;"])
    try:
        while server.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        else:
            raise BenchmarkFailed("nginx does not start; what it said stands above")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def timed(command: list[str], folder: Path = ROOT) -> float:
    """How long a command takes, in seconds.

    Raises:
        BenchmarkFailed: it fails.
    """
    started = time.monotonic()
    end(start(command, folder))
    return time.monotonic() - started


def start(command: list[str], folder: Path = ROOT) -> subprocess.Popen[str]:
    """Start a command; `end` waits for it."""
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(process: subprocess.Popen[str]) -> None:
    """Wait for a command.

    Raises:
        BenchmarkFailed: it fails.
    """
    said, _ = process.communicate()
    if process.returncode:
        raise BenchmarkFailed(said[-1000:] or f"a program ended with {process.returncode}")
