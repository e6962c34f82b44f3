"""A host's folders, a hub, servers, and the program that brings weights, as a job runs it."""

import atexit
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

import roles
from roles.weights.host import records
from roles.weights.host.records import LockedFile
from tests.stand_ins.hub import StandInHub
from tests.unit import tls_certificates
from tests.unit.file_server import LoopbackFileServer, run_file_server

PACKAGE = Path(roles.__file__).with_name("weights") / "host"
CONTENT = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(6000))
WRONG = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
LYING = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
HALF = len(CONTENT) // 2
REPOSITORY = "org/name"
# as a job's, only quicker
PACE = {"pause": 0.02, "seconds": 1, "longest": 2, "stall": 20.0, "begin": 0.0, "connect": 5, "retry_after": 0.1}

Source = dict[str, Any]
WRAPPER = """#!/bin/sh
shift
exec {python} -I -c 'import runpy, sys
sys.path.append("{site}")
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""


@cache
def client_python() -> str:
    """A Python with the hub's client that another user can start: a developer's own may lie in a home of root's."""
    if all(one.stat().st_mode & 0o001 for one in Path(sys.executable).resolve().parents):
        return sys.executable
    made = Path(mkdtemp(), "python")
    made.parent.chmod(0o755)
    made.write_text(WRAPPER.format(python="/usr/bin/python3", site=sysconfig.get_path("purelib")))
    made.chmod(0o755)
    atexit.register(shutil.rmtree, made.parent)
    return str(made)


def wanted_file(content: bytes = CONTENT, path: str = "a/b/small-q4.gguf") -> LockedFile:
    return LockedFile(path, hashlib.sha256(content).hexdigest(), len(content))


@dataclass
class WeightsFixture:
    """One host, with all that may serve it."""

    folder: Path
    server: LoopbackFileServer
    hub: StandInHub
    python: str = field(default_factory=client_python)
    """Has the hub's client; "" for none."""
    environment: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    pace: dict[str, float] = field(default_factory=lambda: dict(PACE))
    token: bool = False
    """Whether the hub is the one that the token is for."""
    xet: bool = True
    redirects: list[str] = field(default_factory=list)
    """The hub's second server, first of all: it is at the loopback address, too."""

    def __post_init__(self) -> None:
        self.redirects = [self.hub.cdn_url]

    @property
    def root(self) -> Path:
        return self.folder / "models"

    @property
    def records(self) -> Path:
        return self.folder / "weights"

    @property
    def ledger(self) -> Path:
        return self.folder / "owned"

    @property
    def locks(self) -> Path:
        return self.folder / "run/locks"

    def file_path(self, one: LockedFile | None = None) -> Path:
        return self.root / (one or wanted_file()).path

    def part_path(self, one: LockedFile | None = None) -> Path:
        path = self.file_path(one)
        return path.with_name(f"{path.name}.part")

    def place_file(self, path: Path, content: bytes) -> Path:
        """Put a file there by hand."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def url_sources(self, *urls: str) -> list[Source]:
        return [{"kind": "http", "url": url} for url in urls]

    def hub_source(self, commit: str, path: str = "x.gguf") -> Source:
        place = {"kind": "hub", "endpoint": self.hub.url, "repository": REPOSITORY, "revision": commit, "file": path}
        return {**place, "token": self.token, "xet": self.xet}

    def fetch_command(self, wanted: Mapping[LockedFile, list[Source]]) -> list[str]:
        files = [{"path": one.path, "sha256": one.sha256, "size": one.size, "sources": wanted[one]} for one in wanted]
        spec = {
            "root": str(self.root),
            "records": str(self.records),
            "ledger": str(self.ledger),
            "locks": str(self.locks),
            "hub_python": self.python,
            "hub_user": "nobody",
            "sent": "",
            "reserve": 0,
            "redirects": self.redirects,
            "files": files,
            "pace": self.pace,
            **self.settings,
        }
        (self.folder / "spec.json").write_text(json.dumps(spec))
        packages = self.folder / "packages"
        packages.mkdir(exist_ok=True)
        if not (packages / "rigwright_weights").is_symlink():
            (packages / "rigwright_weights").symlink_to(PACKAGE)
        return [sys.executable, "-S", "-m", "rigwright_weights.fetch", str(self.folder / "spec.json")]

    def start_fetch(self, wanted: Mapping[LockedFile, list[Source]]) -> subprocess.Popen[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(self.folder / "packages"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.environment,
        }
        return subprocess.Popen(
            self.fetch_command(wanted), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run_fetch(self, wanted: Mapping[LockedFile, list[Source]]) -> subprocess.CompletedProcess[str]:
        with self.start_fetch(wanted) as process:
            try:
                said, _ = process.communicate(timeout=60)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, said)

    def fetch(self, wanted: Mapping[LockedFile, list[Source]]) -> subprocess.CompletedProcess[str]:
        """Bring files, all of which come."""
        done = self.run_fetch(wanted)
        assert done.returncode == 0, done.stdout
        assert all(map(self.is_fetched, wanted)), done.stdout
        return done

    def fetch_file(self, *urls: str) -> subprocess.CompletedProcess[str]:
        """Bring the one file from these addresses; it comes."""
        return self.fetch({wanted_file(): self.url_sources(*urls)})

    def run_fetch_file(self, *urls: str) -> subprocess.CompletedProcess[str]:
        """Bring the one file from these addresses."""
        return self.run_fetch({wanted_file(): self.url_sources(*urls)})

    def commit_files(self, files: Mapping[str, bytes], **how: Any) -> dict[LockedFile, list[Source]]:
        """Put files on the hub; the wanted part, by name as on a host."""
        commit = self.hub.add_commit(REPOSITORY, files, **how)
        return {
            wanted_file(content, f"{REPOSITORY}/{commit}/{path}"): [self.hub_source(commit, path)]
            for path, content in files.items()
        }

    def is_fetched(self, one: LockedFile) -> bool:
        """Whether a file is as it is to be: right, read-only, and recorded."""
        path = self.file_path(one)
        if not path.exists():
            assert not records.is_record_valid(self.records, self.root, one)
            return False
        assert hashlib.sha256(path.read_bytes()).hexdigest() == one.sha256
        seen = path.stat()
        assert (seen.st_mode & 0o777, seen.st_uid, seen.st_gid) == (0o444, 0, 0)
        assert not self.part_path(one).exists()
        return records.is_record_valid(self.records, self.root, one)

    def leftover_paths(self) -> list[str]:
        """Objects below the root that are neither a named file nor a folder on the way to one."""
        hidden = self.root.rglob(".*")
        return sorted(path.name for path in (*hidden, *self.root.rglob("*.part")))

    def requested_ranges(self) -> list[str]:
        """Which files' bytes the hub was asked for: of both of its servers, by name and range."""
        return [
            f"{one.path.partition('?')[0].rpartition('/')[2]} {one.range}"
            for one in self.hub.asked
            if is_content_request(one)
        ]


def is_content_request(one: Any) -> bool:
    return one.method == "GET" and (one.path.startswith("/cdn/") or one.path.endswith(".json"))


@contextmanager
def make_weights_fixture(folder: Path, *, private: bool = False) -> Iterator[WeightsFixture]:
    """A world, whose hub speaks TLS where it is to be private."""
    # pytest's folders are its user's alone, and the client runs as another one
    for one in (folder, *folder.parents):
        if os.geteuid() == 0 and one.stat().st_mode & 0o777 == 0o700 and one.is_relative_to("/tmp"):
            one.chmod(0o711)
    with (
        run_file_server() as server,
        StandInHub(certificate=tls_certificates.server_certificate() if private else None) as hub,
    ):
        yield WeightsFixture(
            folder, server, hub, environment=tls_certificates.trusting_environment() if private else {}
        )


@pytest.fixture
def host(tmp_path: Path) -> Iterator[WeightsFixture]:
    """A host that fetches, with servers of its own."""
    with make_weights_fixture(tmp_path) as made:
        yield made
