"""nginx in a folder of its own, with the stand-ins beside it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from door.engines import Engine
from door.router import Router

SETTINGS: dict[str, object] = {
    "listeners": {"lan": {"keys": False, "models": None}, "keyed": {"keys": True, "models": None}},
    "models": {
        "tiny": {
            "instances": ["one", "two"],
            "engine_name": {"one": "tiny", "two": "tiny-of-two.gguf"},
            "paths": ["chat/completions"],
            "queue": 400,
            "slots": 50,
            "sticky": "header:x-session-id",
        }
    },
    "aliases": {},
    "origins": ["https://chat.example", "chrome-extension://abcdef"],
    "probe": {"every": 10, "timeout": 60},
}


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
    router: Router = field(init=False)
    nginx: subprocess.Popen[bytes] | None = None
    wrapper: tuple[str, ...] = ()
    """What nginx is started by."""

    def __post_init__(self) -> None:
        self.router = Router(self.folder / "router", {"keyed"})

    async def start(self, **changed: object) -> None:
        for name in ("router", "links", "out", "run", "engines"):
            (self.folder / name).mkdir(exist_ok=True)
        self.settle(**changed)
        (self.folder / "run/engine-keys.json").write_text(json.dumps({"one": "secret-of-one"}))
        await self.router.start()
        for name in ("one", "two"):
            self.engines[name] = Engine(name, self.folder / f"engines/{name}.sock")
            await self.engines[name].start()
            self.link(name)
        self.nginx = subprocess.Popen(
            [*self.wrapper, "nginx", "-p", f"{self.folder}/run/", "-c", f"{self.folder}/conf/nginx.conf"],
            stderr=(self.folder / "stderr").open("wb"),
        )
        await until(self.answers)

    def settle(self, digest: str = "d1", **changed: object) -> None:
        """Write the settings."""
        tiny = {**SETTINGS["models"]["tiny"], **changed}  # type: ignore[index]
        own = {"links": f"{self.folder}/links", "out": f"{self.folder}/out", "digest": digest}
        text = json.dumps({**SETTINGS, **own, "models": {"tiny": tiny}})
        (self.folder / "conf/settings.json").write_text(text)

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
        assert self.nginx
        self.nginx.send_signal(signal.SIGHUP)
        for _ in range(200):
            if (await self.state())["digest"] == digest:
                return
            await asyncio.sleep(0.02)
        raise TimeoutError(self.stderr())

    async def stop(self) -> None:
        if self.nginx:
            self.nginx.terminate()
            await until(lambda: self.nginx and self.nginx.poll() is not None)

    def workers(self) -> list[int]:
        assert self.nginx
        children = Path(f"/proc/{self.nginx.pid}/task/{self.nginx.pid}/children").read_text().split()
        return [int(pid) for pid in children]

    def stderr(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    def lines(self) -> list[dict[str, object]]:
        """The log, a request each."""
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    def reached(self) -> int:
        """Requests that got as far as an engine."""
        return sum(len(engine.reached) for engine in self.engines.values())

    async def state(self) -> dict[str, object]:
        return json.loads((await self.admin("GET /state"))[1])

    async def under_way(self) -> dict[str, int]:
        """Instance -> requests."""
        state = await self.state()
        instances: Mapping[str, Mapping[str, int]] = state["instances"]  # type: ignore[assignment]
        return {name: one["under_way"] for name, one in instances.items()}

    async def admin(self, line: str, body: bytes = b"") -> tuple[int, bytes]:
        head = f"{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        reader, writer = await asyncio.open_unix_connection(f"{self.folder}/run/admin.sock")
        return await exchange(reader, writer, head.encode() + body)

    async def ask(self, text: bytes, port: int = 0, seconds: float = 20) -> tuple[int, dict[str, str], bytes]:
        """Send bytes; status, headers and body of what comes back until the other side closes. 0: it said nothing."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port)
        status, head, body = await asyncio.wait_for(_exchange(reader, writer, text), seconds)
        return status, head, body

    async def post(
        self, body: Mapping[str, object] | bytes, *headers: str, path: str = "/v1/chat/completions", port: int = 0
    ) -> tuple[int, dict[str, str], bytes]:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.ask(posting(text, *headers, path=path), port)


def posting(text: bytes, *headers: str, path: str = "/v1/chat/completions") -> bytes:
    """A request's bytes, after which the connection ends."""
    lines = [f"POST {path} HTTP/1.1", "Host: box", "Connection: close", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(text)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + text


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> tuple[int, bytes]:
    status, _, body = await _exchange(reader, writer, text)
    return status, body


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes
) -> tuple[int, dict[str, str], bytes]:
    came = b""

    async def send() -> None:
        for start in range(0, len(text), 1 << 20):
            writer.write(text[start : start + (1 << 20)])
            await writer.drain()

    sending = asyncio.ensure_future(send())
    try:
        while part := await reader.read(1 << 16):
            came += part
    except ConnectionError:
        pass
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.close()
    head, _, body = came.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in rest}
    if headers.get("transfer-encoding") == "chunked":
        body, whole = _joined(body)
        headers["cut"] = "" if whole else "off"
    return (int(first.split(" ")[1]) if first else 0), headers, body


def _joined(chunks: bytes) -> tuple[bytes, bool]:
    """What chunks hold, and whether the last one came."""
    body = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        if not int(size, 16):
            return body, True
        body += rest[: int(size, 16)]
        chunks = rest[int(size, 16) + 2 :]
    return body, False


def run(main: Callable[[World], Awaitable[None]], world: World, **changed: object) -> None:
    """Start it, do something in it, and end it."""

    async def all_of_it() -> None:
        try:
            await world.start(**changed)
            await main(world)
        finally:
            await world.stop()

    os.umask(0o022)
    asyncio.run(all_of_it())
