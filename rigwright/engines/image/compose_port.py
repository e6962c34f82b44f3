"""Carries connections from a TCP port to a unix socket, both ways: `python3 -I compose_port.py PORT SOCKET`.

Python's own library alone: a container runs it by itself, beside an engine that has no network. A connection closes at
once while nothing listens on SOCKET.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

CHUNK = 1 << 16
"""Bytes that are read at a time."""


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy all bytes, then their end; a reader that stalls holds back its writer.

    Raises:
        ConnectionError: one side is gone.
    """
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, socket: str) -> None:
    """Carry one connection until both sides have ended, or one is gone."""
    writers = [writer]
    copies: list[asyncio.Task[None]] = []
    try:
        engine_reader, engine_writer = await asyncio.open_unix_connection(socket)
        writers.append(engine_writer)
        for source, target in ((reader, engine_writer), (engine_reader, writer)):
            copies.append(asyncio.ensure_future(copy(source, target)))
        await asyncio.gather(*copies)
    except OSError:
        pass
    finally:
        for one in copies:
            one.cancel()
        for each in writers:
            each.close()


async def serve(port: int, socket: str) -> None:
    """Listen until SIGTERM, which the first process of a container ignores by default; its connections end with it."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os._exit, 0)
    server = await asyncio.start_server(lambda reader, writer: connect(reader, writer, socket), "0.0.0.0", port)  # noqa: S104
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
