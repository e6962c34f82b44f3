"""The gateway's router as systemd starts it, with sockets of its own, and what stands in for nginx's admin socket."""

import fcntl
import hashlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from threading import Event, Thread
from typing import Any

from rigwright.gateway.request_rules import load_request_rules
from rigwright.project_root import ROOT
from tests.unit.polling import wait_until
from tests.unit.text_handler import TextHandler

ROUTER = ROOT / "roles/gateway/host/router"
PYTHON = "/usr/bin/python3"
CHAT = "chat/completions"
ALICE, BOB, SLOW = "rw-" + "a" * 43, "rw-" + "b" * 43, "rw-" + "c" * 43


@dataclass(frozen=True)
class RouterAnswer:
    """An answer."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found = self.json["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return dict(found)


def bearer_header(clear: str) -> dict[str, Any]:
    """The header of a caller with a key."""
    return {"Authorization": f"Bearer {clear}"}


def key_entry(clear: str, name: str, **limits: object) -> dict[str, object]:
    """An entry of keys.json."""
    digest = hashlib.sha256(clear.encode()).hexdigest()
    free = {"models": None, "requests_per_minute": None, "streams": None}
    return {"id": digest[:16], "name": name, "sha256": digest, **free, **limits}


def model_entry(*instances: str, **more: object) -> dict[str, object]:
    """An entry of the settings' models."""
    usual = {
        "paths": [CHAT, "completions"],
        "queue": 64,
        "sticky": "",
        "slots": 4,
        "allow_fields": [],
        "salted": False,
        "usage_on_request": False,
    }
    return {"instances": list(instances), "engine_name": {one: f"{one}.gguf" for one in instances}, **usual, **more}


def router_settings(**changes: object) -> dict[str, Any]:
    """Settings of a router that probes no instance while a test runs."""
    usual = {"aliases": {}, "origins": [], "probe": {"every": 3600, "timeout": 60}, "digest": "1"}
    return usual | changes


@dataclass
class StandInNginx:
    """Stands in for nginx's admin socket: its state, its orders, and how instances answer through it."""

    instances: dict[str, dict[str, float]] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, bytes]] = field(default_factory=list)
    """Targets and bodies."""
    probes: dict[str, int] = field(default_factory=dict)
    """The status by instance; 0: none before `let_go`."""
    let_go: Event = field(default_factory=Event)

    def count_request(self, target: str) -> int:
        return sum(one == target for one, _ in self.asked)


class _NginxSocketServer(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    nginx: StandInNginx


class _NginxSocketHandler(TextHandler):
    server: _NginxSocketServer

    def do_GET(self) -> None:
        nginx = self.server.nginx
        self.send_text(200, json.dumps({"digest": "d", "instances": nginx.instances, "keys": nginx.keys}))

    def do_POST(self) -> None:
        nginx = self.server.nginx
        nginx.asked.append((self.path, self.read_body()))
        _, verb, name = self.path.split("/", 2)
        status = nginx.probes.get(name, 200) if verb == "probe" else 204
        if not status:
            nginx.let_go.wait(60)
            status = 200
        self.send_text(status, "" if status == 204 else "{}")


@contextmanager
def run_stand_in_nginx(path: Path) -> Iterator[StandInNginx]:
    nginx = StandInNginx()
    server = _NginxSocketServer(str(path), _NginxSocketHandler)
    server.nginx = nginx
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield nginx
    finally:
        nginx.let_go.set()
        server.shutdown()
        server.server_close()
        path.unlink()


class UnixHTTPConnection(HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self.path))


@dataclass
class RouterFixture:
    """A router's files and sockets."""

    folder: Path
    settings: dict[str, Any]
    keys: list[dict[str, object]] = field(default_factory=list)
    ending: list[dict[str, object]] = field(default_factory=list)
    pid: int = 0
    listening: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("links", "out", "rotation"):
            (self.folder / name).mkdir()
        places = {name: self.folder / name for name in ("links", "out", "rotation")}
        places["admin"] = self.folder / "admin.sock"
        self.settings.setdefault("fields", [one.setting for one in load_request_rules()])
        self.settings.update({name: str(path) for name, path in places.items()})
        for name in ("light", "heavy"):
            one = socket.socket(socket.AF_UNIX)
            one.bind(str(self.folder / f"{name}.sock"))
            one.listen(64)
            self.listening.append(one)

    @property
    def out_folder(self) -> Path:
        return self.folder / "out"

    @property
    def read_stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    def write_settings(self) -> None:
        (self.folder / "settings.json").write_text(json.dumps(self.settings))
        (self.folder / "keys.json").write_text(json.dumps({"keys": self.keys, "ending": self.ending}))

    @contextmanager
    def running(self) -> Iterator["RouterFixture"]:
        """The router, once it answers; it ends with the block."""
        try:
            self.start()
            wait_until(lambda: self.ask("/state").status == 200)
            yield self
        finally:
            self.stop()

    def start(
        self, command: tuple[str, ...] = (PYTHON, "-I", str(ROUTER)), *, write: bool = True, **environment: str
    ) -> None:
        """As systemd does: file 3 is the first socket, file 4 the second."""
        if write:
            self.write_settings()
        error = os.open(self.folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        files = [str(self.folder / name) for name in ("settings.json", "keys.json")]
        # high enough that none is a file that another is to become, and free: a long run has hundreds open
        high = [fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, 10) for one in self.listening]
        places: list[Any] = [(os.POSIX_SPAWN_DUP2, one, 3 + number) for number, one in enumerate(high)]
        places.append((os.POSIX_SPAWN_DUP2, error, 2))
        self.pid = os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", 'umask 077; LISTEN_PID=$$ exec "$@"', "sh", *command, *files],
            {"LISTEN_FDS": "2", "LANG": "C", **environment},
            file_actions=places,
            setpgroup=0,
        )
        for one in [*high, error]:
            os.close(one)

    def link_instance(self, name: str) -> socket.socket:
        """An instance is ready."""
        path = self.folder / f"{name}.sock"
        path.unlink(missing_ok=True)
        made = socket.socket(socket.AF_UNIX)
        made.bind(str(path))
        link = self.folder / "links" / name
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        return made

    def send_hup(self) -> None:
        os.kill(self.pid, signal.SIGHUP)

    def wait_for_exit(self) -> int:
        """Wait for the end; the exit status."""
        found: list[int] = []

        def gone() -> bool:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                found.append(os.waitstatus_to_exitcode(status))
            return bool(pid)

        wait_until(gone)
        self.pid = 0
        return found[0]

    def stop(self) -> None:
        if self.pid:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        for one in self.listening:
            one.close()

    def ask(
        self,
        target: str,
        body: bytes | None = None,
        *,
        to: str = "light",
        method: str = "",
        listener: str = "lan",
        **headers: Any,
    ) -> RouterAnswer:
        connection = UnixHTTPConnection(self.folder / f"{to}.sock")
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(
            method or ("GET" if body is None else "POST"), target, body, {"X-Rw-Listener": listener, **sent}
        )
        answer = connection.getresponse()
        said = RouterAnswer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        connection.close()
        return said

    def route(self, body: object, path: str = CHAT, **more: Any) -> RouterAnswer:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask(f"/route/{path}", text, **more)
