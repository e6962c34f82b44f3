"""nginx in a folder of its own, with the stand-ins beside it."""

import asyncio
import hashlib
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from door.clients import posting, read_answer
from door.engines import Box, Engine
from door.residency import ResidencyService

ALICE = "rw-" + "a" * 43
OFTEN = "rw-" + "b" * 43
THRIFTY = "rw-" + "c" * 43
GENTLE = "rw-" + "d" * 43
QUIET = "rw-" + "e" * 43
"""Keys: of a client that may have eight requests under way, of one that may ask once a minute, of one with few tokens,
of one that has no other model stopped, and of one that wakes none."""
# systemd's way to hand sockets over (sd_listen_fds(3)).
HANDED = """
import os, sys
for number, wanted in enumerate(sys.argv[1:3]):
    os.dup2(int(wanted), 3 + number)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "light:heavy"}
os.execv(sys.executable, [sys.executable, "-I", *sys.argv[3:]])
"""
RULES: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("rules.json").read_text())
"""`fields`, rules as the settings have them, and examples that they have `refused` and `passed`."""
SETTINGS: dict[str, object] = {
    "listeners": {
        "lan": {"keys": False, "models": None, "names": []},
        "keyed": {"keys": True, "models": None, "names": []},
        "tls": {"keys": False, "models": None, "names": ["box", "llm.example.org", ".rigs.example.org"]},
    },
    "models": {
        "tiny": {
            "instances": ["one", "two"],
            "engine_name": {"one": "tiny", "two": "tiny-of-two.gguf"},
            "paths": ["chat/completions"],
            "queue": 400,
            "slots": 50,
            "sticky": "header:x-session-id",
            "allow_fields": [],
            "salted": False,
            "usage_on_request": False,
        }
    },
    "aliases": {"gpt-4o": "tiny"},
    "origins": ["https://chat.example", "chrome-extension://abcdef", "app://obsidian.md", "file://"],
    "probe": {"every": 600, "timeout": 60},
    "fields": RULES["fields"],
}

LENDER = "b" * 48
"""The longest name that a box may have: this world's own, for instances that it lends to itself."""
BOX_PORTS = {LENDER: 3, "east": 4, "west": 5}
"""From the world's own port on."""

Case = Callable[["World"], Awaitable[None]]


async def until(met: Callable[[], object], seconds: float = 10) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: it is not, after that time.
    """

    async def wait() -> None:
        while not met():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), seconds)


@dataclass
class World:
    """All of it below one folder, which the configuration was written for."""

    folder: Path
    port: int
    """Of the listener `lan`; `keyed` has the next one, and `tls` the one after."""
    engines: dict[str, Engine] = field(default_factory=dict)
    boxes: dict[str, Box] = field(default_factory=dict)
    """Other boxes, of which the model has instances."""
    lent: dict[str, list[str]] = field(default_factory=dict)
    """Instances that it lends, with the names of gateways that may use them."""
    bound: int = 100
    """Requests of a gateway that may be under way there."""
    router: subprocess.Popen[bytes] | None = None
    nginx: subprocess.Popen[bytes] | None = None
    asked: int = 0
    """How many have asked since it was started."""
    instances: list[str] = field(default_factory=list)
    """Those of the model."""
    remote: list[str] = field(default_factory=list)
    """Instances of other boxes that the model has."""
    residency: ResidencyService = field(init=False)
    """Starts instances on demand, where the model has such."""
    wait: int = 3
    """Seconds that a request waits for that unless it is a stream."""

    def __post_init__(self) -> None:
        self.residency = ResidencyService(self.folder / "residency.sock")

    async def start(self, **changed: object) -> None:
        for name in ("router", "links", "out", "rotation", "engines"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        for file in (self.folder / "log", self.folder / "states", *self.folder.glob("usage-*")):
            file.unlink(missing_ok=True)
        # of an nginx that was killed
        (self.folder / "run/admin.sock").unlink(missing_ok=True)
        # of bodies that nginx had not come to take away when the case before was over
        shutil.rmtree(self.folder / "run/body", ignore_errors=True)
        self.asked = 0
        self.lent = {"two": [self.front]}
        self.settle(**changed)
        self.give_certificate("_front", "declared")
        self.give_certificate("_fleet", "lender")
        others = sorted({str(one).partition("/")[0] for one in self.remote} - {LENDER})
        for name in others:
            self.boxes[name] = Box(name, self.folder / f"run/tls/{name}", self.port + BOX_PORTS[name])
            await self.boxes[name].start()
        (self.folder / "run/engine-keys.json").write_text(json.dumps({"one": "secret-of-one"}))
        for name in ("one", "two"):
            self.engines[name] = Engine(name, self.folder / f"engines/{name}.sock")
            await self.engines[name].start()
            self.link(name)
        if "on_demand" in changed:
            await self.residency.start()
        await self.start_nginx("fleet.conf" if self.remote else "wake.conf" if "on_demand" in changed else "nginx.conf")
        # it asks instances by nginx, once here
        self.start_router()

    async def start_nginx(self, named: str = "nginx.conf") -> None:
        self.nginx = subprocess.Popen(
            ["/usr/sbin/nginx", "-p", f"{self.folder}/run/", "-c", f"{self.folder}/conf/{named}"],
            stderr=(self.folder / "stderr").open("wb"),
        )
        await until(self.answers)
        # nginx listens before it handles signals; an earlier signal would end it
        await asyncio.wait_for(self._has_worker(), 10)

    async def _has_worker(self) -> None:
        while True:
            with suppress(OSError):
                await self.admin("GET /state")
                return
            await asyncio.sleep(0.01)

    def give_keys(self, **rights: bool) -> None:
        """Write the keys, alice's with other rights."""
        free: dict[str, object] = {"models": None, "requests_per_minute": None, "streams": None}
        keys = [
            {"id": one[:16], "name": name, "sha256": one, **free, **limits}
            for name, key, limits in (
                ("alice", ALICE, {"streams": 8, **rights}),
                ("often", OFTEN, {"requests_per_minute": 1}),
                ("thrifty", THRIFTY, {"tokens_per_day": 25}),
                ("gentle", GENTLE, {"evict": False}),
                ("quiet", QUIET, {"wake": False}),
            )
            for one in [hashlib.sha256(key.encode()).hexdigest()]
        ]
        (self.folder / "keys.json").write_text(json.dumps({"keys": keys}))

    def start_router(self) -> None:
        self.give_keys()
        sockets = []
        for name in ("light", "heavy"):
            path = self.folder / f"router/{name}.sock"
            path.unlink(missing_ok=True)
            sockets.append(socket.socket(socket.AF_UNIX))
            sockets[-1].bind(str(path))
            sockets[-1].listen(1024)
        numbers = [one.fileno() for one in sockets]
        files = [self.folder / "conf/router", self.folder / "conf/settings.json", self.folder / "keys.json"]
        self.router = subprocess.Popen([sys.executable, "-c", HANDED, *map(str, (*numbers, *files))], pass_fds=numbers)
        for one in sockets:
            one.close()

    def settle(self, digest: str = "d1", **changed: object) -> None:
        """Write the settings."""
        tiny = {**SETTINGS["models"]["tiny"], **changed}  # type: ignore[index]
        own = {name: f"{self.folder}/{name}" for name in ("links", "out", "rotation")} | {"digest": digest}
        own["usage"] = f"{self.folder}/usage-"
        own["admin"] = f"{self.folder}/run/admin.sock"
        self.instances = tiny["instances"]
        self.remote = [one for one in tiny["instances"] if "/" in one]
        more: dict[str, object] = {}
        if self.remote:
            tiny["engine_name"] = dict.fromkeys(tiny["instances"], "tiny")
            more["remote"] = {name: self._remote_settings(name) for name in self.remote}
            more["lent"], more["fronts"] = self.lent, {self.front: self.bound}
        if "on_demand" in tiny:
            evict = {"lan": False, "keyed": True, "tls": False}
            files = {"socket": str(self.residency.socket), "states": f"{self.folder}/states"}
            more["wake"] = {**files, "wait": self.wait, "evict": evict}
        text = json.dumps({**SETTINGS, **own, **more, "models": {"tiny": tiny}})
        (self.folder / "conf/settings.json").write_text(text)

    @property
    def front(self) -> str:
        """The name in the certificate of its gateway."""
        return f"{LENDER}.front.rigwright"

    def give_certificate(self, end: str, name: str) -> None:
        """Give one end of its connections to itself a certificate, which nginx has with the next reload."""
        for kind in ("crt", "key"):
            shutil.copy(self.folder / f"run/tls/{name}.{kind}", self.folder / f"run/tls/{end}.{kind}")

    def _remote_settings(self, name: str) -> dict[str, object]:
        box, _, instance = name.partition("/")
        at = {"address": "127.0.0.1", "port": self.port + BOX_PORTS[box]}
        return {"url": f"https://fleet-{box}/{instance}", "certificate": f"{box}.box.rigwright", **at}

    def link(self, name: str) -> None:
        (self.folder / "links" / name).symlink_to(self.folder / f"engines/{name}.sock")

    def unlink(self, name: str) -> None:
        (self.folder / "links" / name).unlink()

    def answers(self) -> bool:
        assert self.nginx and self.nginx.poll() is None, self.stderr()
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    async def reload(self, digest: str, **changed: object) -> None:
        """Give nginx other settings, and wait until it has them."""
        self.settle(digest, **changed)
        self.hang_up()
        for _ in range(1500):
            if (await self.state())["digest"] == digest:
                return
            await asyncio.sleep(0.02)
        raise TimeoutError(self.stderr())

    def hang_up(self) -> None:
        assert self.nginx
        self.nginx.send_signal(signal.SIGHUP)

    async def stop(self) -> None:
        for box in self.boxes.values():
            box.leave()
        for process in (self.nginx, self.router):
            if process:
                process.terminate()
                process.wait(10)

    def workers(self) -> list[int]:
        assert self.nginx
        return [int(pid) for pid in _children(self.nginx.pid)]

    def open_bodies(self) -> int:
        """Files of requests' bodies that nginx has open."""
        number = 0
        for one in [one for pid in self.workers() for one in Path(f"/proc/{pid}/fd").iterdir()]:
            with suppress(FileNotFoundError):
                number += one.readlink().is_relative_to(self.folder / "run/body")
        return number

    def resident(self) -> int:
        """Bytes of memory that all of nginx and the router have, pages that they share counted once."""
        assert self.nginx and self.router
        masters = (self.nginx.pid, self.router.pid)
        pids = [*masters, *(int(one) for pid in masters for one in _children(pid))]
        texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
        return sum(1024 * int(line.split()[1]) for text in texts for line in text.splitlines() if line[:4] == "Pss:")

    def trusted(self, port: int) -> ssl.SSLContext | None:
        """The settings for a port with TLS; empty for one without."""
        tls = port == self.port + 2
        return ssl.create_default_context(cafile=str(self.folder / "run/tls/tls.crt")) if tls else None

    def stderr(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    def lines(self) -> list[dict[str, object]]:
        """The log, a request each."""
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    async def line(self) -> dict[str, object]:
        """The last line of it, once each that has asked has one: clients have their answers a moment before."""
        await until(lambda: len(self.lines()) >= self.asked)
        return self.lines()[-1]

    def is_probed(self) -> bool:
        """Whether the router has asked each instance."""
        own = len(self.engines) if not self.boxes else len(self.engines.keys() & self.instances)
        return self.reached() == own and all(box.answered for box in self.boxes.values())

    def reached(self) -> int:
        """Requests that got as far as an engine."""
        return sum(len(engine.reached) for engine in self.engines.values())

    def reached_bodies(self) -> list[bytes]:
        """Of those requests."""
        return [body for engine in self.engines.values() for *_, body in engine.reached]

    async def state(self) -> dict[str, object]:
        return json.loads((await self.admin("GET /state"))[1])

    async def under_way(self) -> dict[str, int]:
        """Instance -> requests."""
        state = await self.state()
        instances: Mapping[str, Mapping[str, int]] = state["instances"]  # type: ignore[assignment]
        return {name: one["under_way"] for name, one in instances.items()}

    async def counts(self, one: int, two: int) -> None:
        """Wait until that many requests of each instance are under way."""
        for _ in range(500):
            if (found := await self.under_way()) == {"one": one, "two": two}:
                return
            await asyncio.sleep(0.01)
        raise TimeoutError(f"{found}")

    async def admin(self, line: str, body: bytes = b"") -> tuple[int, bytes]:
        head = f"{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        reader, writer = await asyncio.open_unix_connection(f"{self.folder}/run/admin.sock")
        status, _, said = await read_answer(reader, writer, head.encode() + body)
        return status, said

    async def ask(
        self, text: bytes, port: int = 0, seconds: float = 80, host: str = "127.0.0.1", source: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        """Send bytes; status, headers and body of what comes back until the other side closes. 0: it said nothing."""
        self.asked += 1
        own = (source, 0) if source else None
        reader, writer = await asyncio.open_connection(host, port or self.port, local_addr=own, ssl=self.trusted(port))
        status, head, body = await asyncio.wait_for(read_answer(reader, writer, text), seconds)
        return status, head, body

    async def post(
        self, body: Mapping[str, object] | bytes, *headers: str, path: str = "/v1/chat/completions", port: int = 0
    ) -> tuple[int, dict[str, str], bytes]:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.ask(posting(text, *headers, path=path), port)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def with_model_settings(**settings: object) -> Callable[[Case], Case]:
    """Settings of the model that a case needs."""

    def give(case: Case) -> Case:
        case.given = settings  # type: ignore[attr-defined]
        return case

    return give
