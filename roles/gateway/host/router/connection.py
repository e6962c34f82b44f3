"""One connection of nginx's."""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Callable

from .answers import error
from .http import Answer, Malformed, Reader, Request
from .telling import say

PATIENCE = 120.0
"""Seconds in which a request must be whole that was begun; nginx has all of it before it sends any."""


class Room:
    """Memory for bodies, which connections take in turn."""

    def __init__(self, size: int) -> None:
        self.left = size
        """Bytes."""
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def take(self, size: int, later: Callable[[], None]) -> bool:
        """Take bytes, or be called when they were taken for you."""
        if not size or (not self._waiting and size <= self.left):
            self.left -= size
            return True
        self._waiting.append((size, later))
        return False

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.left += size
        while self._waiting and self._waiting[0][0] <= self.left:
            taken, later = self._waiting.popleft()
            self.left -= taken
            later()

    def forget(self, later: Callable[[], None]) -> None:
        """Wait no more."""
        self._waiting = deque(one for one in self._waiting if one[1] != later)


class Connection(asyncio.Protocol):
    """Reads requests one after the other, and answers each before the next."""

    def __init__(self, answer: Callable[[Request], Answer], room: Room, most: int) -> None:
        self._answer = answer
        self._room = room
        self._reader = Reader(most)
        self._wants = 0
        """Bytes of the room for the request that was begun."""
        self._has: int | None = None
        """Those that it has; None: none was begun, or it waits."""
        self._waits = False
        self._late: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """There it is."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        self._reader.add(data)
        self._go()

    def connection_lost(self, exc: Exception | None) -> None:
        """There it was."""
        self._transport = None
        self._room.forget(self._granted)
        self._release()
        self._watch()

    def _granted(self) -> None:
        self._waits = False
        self._has = self._wants
        # another connection is at work, which has given room back
        asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
            self._go()

    def _release(self) -> None:
        if self._has is not None:
            has, self._has = self._has, None
            self._room.give(has)

    def _go(self) -> None:
        """Answer what is whole."""
        try:
            while self._transport is not None and not self._transport.is_closing() and self._has_body_room():
                request = self._reader.finish()
                if request is None:
                    break
                self._transport.write(self._reply(request))
                if not request.keeps:
                    self._transport.close()
                self._release()
        except Malformed as malformed:
            if self._transport is not None:
                self._transport.write(error(malformed.status, malformed.message).encoded(keeps=False))
                self._transport.close()
        self._watch()

    def _has_body_room(self) -> bool:
        """Whether a request's head is there, and room for its body."""
        if self._has is None and not self._waits:
            size = self._reader.begin()
            if size is None:
                return False
            self._wants = size
            if self._room.take(size, self._granted):
                self._has = size
            else:
                self._waits = True
                if self._transport is not None:
                    self._transport.pause_reading()
        return self._has is not None

    def _reply(self, request: Request) -> bytes:
        bare = request.method == "HEAD"
        try:
            return self._answer(request).encoded(keeps=request.keeps, bare=bare)
        except Exception as failure:
            # neither what it says nor its values: they may be a caller's
            last = traceback.extract_tb(failure.__traceback__)[-1]
            say(f"failed with {type(failure).__name__} in line {last.lineno} of {last.filename}")
            return error(500, "the router failed").encoded(keeps=request.keeps, bare=bare)

    def _watch(self) -> None:
        """Time the request that is not whole, if one is."""
        partly = self._transport is not None and not self._transport.is_closing() and self._reader.within
        if partly and self._late is None and self._transport is not None:
            self._late = asyncio.get_running_loop().call_later(PATIENCE, self._transport.abort)
        elif not partly and self._late is not None:
            self._late.cancel()
            self._late = None
