"""A stand-in of the service that starts instances on demand: it speaks its protocol on its socket."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class WaitingRequest:
    """One connection: a request that waits."""

    line: str
    """Without its last word."""
    age: int
    """Milliseconds for which the request has waited, also on earlier connections."""
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    is_withdrawn: bool = False

    @property
    def instance(self) -> str:
        return self.line.split(" ")[1]

    async def send(self, text: bytes | str) -> None:
        self.writer.write(text if isinstance(text, bytes) else text.encode())
        await self.writer.drain()

    def close(self) -> None:
        self.writer.close()


@dataclass
class ResidencyService:
    """It writes `waiting 1 14` to each that comes, and leaves the rest to the case."""

    socket: Path
    greeting: bytes = b"waiting 1 14\n"
    came: list[WaitingRequest] = field(default_factory=list)
    server: asyncio.Server | None = None

    async def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        self.server = await asyncio.start_unix_server(self._serve, str(self.socket), backlog=1024)
        self.socket.chmod(0o666)

    def kill(self, *, keep_socket: bool = False) -> None:
        """End it as SIGKILL would; with its socket kept, as systemd keeps it, clients connect and hear nothing."""
        assert self.server
        self.server.close()
        for one in self.waiting:
            one.writer.transport.abort()
            one.is_withdrawn = True
        if not keep_socket:
            self.socket.unlink(missing_ok=True)

    @property
    def waiting(self) -> list[WaitingRequest]:
        """Requests that wait now."""
        return [one for one in self.came if not one.is_withdrawn]

    async def settle(self, text: str, instance: str = "") -> None:
        """Give all that wait, or those for one instance, an outcome."""
        for one in self.waiting:
            if one.instance == (instance or one.instance):
                one.is_withdrawn = True
                await one.send(text)
                one.close()

    async def wait_for(self, number: int, met: Callable[[], object] | None = None) -> None:
        """Wait until that many requests wait.

        Raises:
            TimeoutError: they do not, after ten seconds.
        """

        async def look() -> None:
            while len(self.waiting) != number or (met and not met()):
                await asyncio.sleep(0.01)

        await asyncio.wait_for(look(), 10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode("ascii").rstrip("\n")
        if not line:
            # a look whether it listens
            writer.close()
            return
        words, _, age = line.rpartition(" ")
        one = WaitingRequest(words, int(age), reader, writer)
        self.came.append(one)
        try:
            await one.send(self.greeting)
            assert not await reader.read(1), "nginx sends one line"
        except OSError:
            pass
        one.is_withdrawn = True
        writer.close()
