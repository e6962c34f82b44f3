"""nginx's own socket: what it knows of instances and keys, and what it is told of them."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path

MOST = 4 << 20
"""Bytes of an answer."""
PATIENCE = 5.0
"""Seconds for an answer of nginx's own."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r\n]")
_KEY = re.compile(r"[0-9a-f]{16}")


class Unanswered(Exception):
    """nginx gave no answer that can be used."""


@dataclass(frozen=True)
class State:
    """What nginx knows."""

    progress: dict[str, float]
    """By instance: when a part of a reply came last, by the host's monotonic clock, in seconds; 0: never."""
    keys: frozenset[str]
    """Ids of the keys with streams."""


async def ask(socket: Path, method: str, target: str, body: bytes = b"", *, most: int = MOST) -> tuple[int, bytes]:
    """One request; its answer's status, and its first bytes, body included.

    HTTP/1.0, so that the answer is over when the connection is, and never comes in chunks.

    Raises:
        Unanswered: no answer came.
    """
    writer = None
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket))
        lines = f"{method} {target} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{lines}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body)
        said = bytearray()
        while len(said) < most and (part := await reader.read(1 << 16)):
            said += part
    except OSError as error:
        raise Unanswered(error.strerror or type(error).__name__) from None
    finally:
        if writer is not None:
            writer.close()
    found = _STATUS.match(said)
    if found is None:
        raise Unanswered("it is not HTTP")
    return int(found[1]), bytes(said)


async def state(socket: Path) -> State:
    """What nginx knows now.

    Raises:
        Unanswered: it does not say.
    """
    try:
        status, said = await asyncio.wait_for(ask(socket, "GET", "/state"), PATIENCE)
    except asyncio.TimeoutError:
        raise Unanswered(f"nothing within {PATIENCE:.0f} s") from None
    try:
        value = json.loads(said.partition(b"\r\n\r\n")[2])
        progress = {str(name): float(one["progress"]) for name, one in dict(value["instances"]).items()}
        keys = frozenset(one for one in dict(value["keys"]) if _KEY.fullmatch(one))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise Unanswered(f"answer {status}, which is not a valid state") from None
    return State(progress, keys)


async def tell(socket: Path, target: str) -> None:
    """Have nginx take note of something.

    Raises:
        Unanswered: it does not.
    """
    try:
        status, _ = await asyncio.wait_for(ask(socket, "POST", target), PATIENCE)
    except asyncio.TimeoutError:
        raise Unanswered(f"nothing within {PATIENCE:.0f} s") from None
    if not 200 <= status < 300:
        raise Unanswered(f"answer {status}")
