"""Stand-ins of engines on unix sockets, which keep what reached them, and of other boxes."""

import asyncio
import json
import select
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Engine:
    """One of them. The request tells it its behaviour: `stand_in` of its body."""

    name: str
    socket: Path
    reached: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    """Path, headers and body of each request."""
    open: int = 0
    """Connections that are open now."""
    sent: int = 0
    server: asyncio.Server | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    reads_after: float = 0
    """Seconds after which it reads a request's body."""
    reads_each: float = 0
    """Seconds between two reads of a part of it."""
    refuses: bytes = b""
    """An answer that it gives before it has read a body."""

    async def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        self.server = await asyncio.start_unix_server(self._serve, str(self.socket), limit=1 << 27, backlog=4096)
        self.socket.chmod(0o666)

    async def kill(self) -> None:
        """End it as SIGKILL would: its connections break, and its socket stays."""
        assert self.server
        self.server.close()
        for writer in list(self.writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.writers.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
            headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in rest}
            body = await self._read_body(int(headers.get("content-length", "0")), reader, writer)
            self.reached.append((first, headers, body))
            if first.startswith("GET /metrics "):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nup{} 1\n\n")
                await writer.drain()
                return
            await self._answer(json.loads(body), reader, writer)
        except (OSError, EOFError, ConnectionError):
            pass
        finally:
            self.open -= 1
            self.writers.discard(writer)
            writer.close()

    async def _read_body(self, length: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        if not (self.reads_after or self.reads_each):
            return await reader.readexactly(length)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(self.refuses)
        await self._wait(writer, self.reads_after)
        while self.reads_each and len(reader._buffer) < length:  # type: ignore[attr-defined]
            await self._wait(writer, self.reads_each)
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            # one turn of the loop reads what the kernel keeps
            await asyncio.sleep(0.001)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        return await reader.readexactly(length)

    async def _wait(self, writer: asyncio.StreamWriter, seconds: float) -> None:
        """Wait so long, or until the other end has closed the connection."""
        hung_up, until = select.poll(), time.monotonic() + seconds
        hung_up.register(writer.transport.get_extra_info("socket").fileno(), 0)
        while time.monotonic() < until and not hung_up.poll(0):
            await asyncio.sleep(0.05)

    async def _answer(
        self, asked: dict[str, object], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        how = asked.get("stand_in") or {}
        assert isinstance(how, dict)
        if how.get("closes") in (True, self.name):
            return
        if how.get("raw"):
            writer.write(how["raw"].encode("latin-1"))
            await writer.drain()
            for one in how.get("trickles", ""):
                await asyncio.sleep(0.3)
                writer.write(one.encode())
                await writer.drain()
            return
        gone = asyncio.ensure_future(reader.read(1))
        gone.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([gone], timeout=how.get("waits", 0))
        if gone.done():
            return
        model = str(asked.get("model"))
        usage = {"prompt_tokens": 7, "completion_tokens": int(how.get("chunks", 3))}
        if not asked.get("stream"):
            said = {"role": "assistant", "content": "from " + self.name}
            text = json.dumps({"model": model, "choices": [{"message": said}], "usage": usage}).encode()
            head = f"HTTP/1.1 {how.get('status', 200)} Whatever\r\nContent-Type: application/json\r\n"
            head += "Server: engine\r\nAccess-Control-Allow-Origin: *\r\nX-Rw-Key: 00\r\nSet-Cookie: a=b\r\n"
            head += "X-Accel-Redirect: /_error\r\nX-Request-Id: 1\r\n"
            writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
            await writer.drain()
            return
        bare = bool(how.get("bare"))
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
        writer.write((head + ("\r\n" if bare else "Transfer-Encoding: chunked\r\n\r\n")).encode())
        pieces = int(how.get("pieces", 1 << 20))
        events: list[dict[str, object]] = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
        number = int(how.get("chunks", 3))
        for at in range(number + 2):
            if gone.done():
                return
            event = events[0] if not at else {"choices": [{"delta": {"content": f"{self.name} {at} "}}]}
            if at == number + 1:
                event = {"choices": [], "usage": usage}
            text = b"data: " + json.dumps(event).encode() + b"\n\n"
            for start in range(0, len(text), pieces):
                piece = text[start : start + pieces]
                writer.write(piece if bare else b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
                if pieces < len(text):
                    await asyncio.sleep(0.002)
            self.sent += 1
            await asyncio.sleep(how.get("every", 0.01))
        writer.write(b"data: [DONE]\n\n" if bare else b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()


@dataclass
class Box:
    """A stand-in of another box's port for gateways: HTTP by TLS."""

    name: str
    pair: Path
    """Its certificate and key, without `.crt` and `.key`."""
    port: int
    does: str = "answers"
    """With a request: `answers`, `closes` the connection, or `waits`."""
    reached: int = 0
    """Requests that it has not answered."""
    answered: int = 0
    server: asyncio.Server | None = None

    async def start(self) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(f"{self.pair}.crt", f"{self.pair}.key")
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=context)

    def leave(self) -> None:
        """Take no new connections."""
        assert self.server
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            if self.does == "answers":
                said = {"role": "assistant", "content": f"from {self.name}"}
                text = json.dumps({"choices": [{"message": said}]}).encode()
                kinds = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                writer.write(f"{kinds}Content-Length: {len(text)}\r\n\r\n".encode() + text)
                await writer.drain()
                self.answered += 1
                return
            self.reached += 1
            if self.does == "waits":
                await reader.read(1)
        except (OSError, EOFError):
            pass
        finally:
            writer.transport.abort() if self.does == "closes" else writer.close()
