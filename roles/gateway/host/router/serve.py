"""The router's two processes: one for what is small, one for large bodies, whose parsing holds nobody else up."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from .connection import Connection, Room
from .keyring import Keyring
from .probe import Prober
from .routing import Router
from .settings import Broken, Keys, read_keys, read_settings
from .telling import say

KEYS = "/run/rigwright_router/keys.json"
LIGHT, HEAVY = "light", "heavy"
MOST = {LIGHT: 1 << 20, HEAVY: 64 << 20}
"""Bytes of a body; nginx sends those above 256 KiB to the second process."""
IN_MEMORY = {LIGHT: 32 << 20, HEAVY: 96 << 20}
"""Bytes of all bodies that are being read."""
FIRST = 3
"""The first file that systemd passes (sd_listen_fds(3))."""
BACKLOG = 1024


def main(folder: str, arguments: Sequence[str]) -> int:
    """Run until it is ended.

    Args:
        folder: where this program lies; its settings lie beside it.
        arguments: the files with settings and keys, where they are others.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    files = [Path(one) for one in arguments] or [Path(folder).parent / "settings.json", Path(KEYS)]
    try:
        settings_file, keys_file = files
        sockets = passed()
        world = World(settings_file, keys_file)
    except (Broken, ValueError) as error:
        say(f"cannot start: {error}")
        return 1
    mine, theirs = socket.socketpair()
    # systemd may stop both at once, and before the second one ignores that
    stops = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    if os.fork():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)
        theirs.close()
        sockets[HEAVY].close()
        return asyncio.run(_serve(LIGHT, sockets[LIGHT], world, mine))
    # it ends with the first one, which alone is told to
    for number in stops:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)
    mine.close()
    sockets[LIGHT].close()
    return asyncio.run(_serve(HEAVY, sockets[HEAVY], world, theirs))


def passed() -> dict[str, socket.socket]:
    """The sockets that systemd passes, by what they are for.

    Raises:
        ValueError: it passes none, or others.
    """
    if (os.environ.get("LISTEN_PID"), os.environ.get("LISTEN_FDS")) != (str(os.getpid()), "2"):
        raise ValueError("systemd must pass two sockets, for small and for large bodies")
    # those of one unit come as it lists them, and have one name (systemd.socket(5), FileDescriptorName=)
    return {name: socket.socket(fileno=FIRST + number) for number, name in enumerate((LIGHT, HEAVY))}


class World:
    """What the router knows, and where from."""

    def __init__(self, settings: Path, keys: Path) -> None:
        self.settings = settings
        self.keys = keys
        try:
            known = read_keys(keys)
        except Broken as error:
            if keys.exists():
                raise
            say(f"{error}: where a key is needed, there is none")
            known = Keys({}, "")
        self.router = Router(read_settings(settings), Keyring(known))

    def again(self) -> bool:
        """Read both files again; whether both can be used, else all stays as it was."""
        try:
            settings, keys = read_settings(self.settings), read_keys(self.keys)
        except Broken as error:
            say(f"goes on with what it knew: {error}")
            return False
        self.router.settings = settings
        self.router.keyring.change(keys)
        return True


async def _serve(name: str, listening: socket.socket, world: World, other: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: say(f"{name}: {type(context.get('exception')).__name__}"))
    ended: asyncio.Future[int] = loop.create_future()
    room = Room(IN_MEMORY[name])

    def end(status: int, why: str = "") -> None:
        if not ended.done():
            ended.set_result(status)
            if why:
                say(f"{name} ends: {why}")

    def hear_other() -> None:
        """The other process says to read again, or is gone."""
        if other.recv(1):
            world.again()
        else:
            end(1, "the other process has ended")

    def again() -> None:
        if world.again():
            other.send(b"r")
            if prober is not None:
                prober.changed()

    prober = Prober(world.router, lambda: end(1, "the prober has failed")) if name == LIGHT else None
    loop.add_reader(other, hear_other)
    if prober is not None:
        loop.add_signal_handler(signal.SIGTERM, end, 0)
        loop.add_signal_handler(signal.SIGINT, end, 0)
        loop.add_signal_handler(signal.SIGHUP, again)
        prober.changed()
    # not create_unix_server, which would remove systemd's socket in the end
    await loop.create_server(lambda: Connection(world.router.answer, room, MOST[name]), sock=listening, backlog=BACKLOG)
    if prober is not None:
        _ready()
    return await ended


def _ready() -> None:
    """Tell systemd, where it asks to be told (sd_notify(3))."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", "\0" + address[1:] if address.startswith("@") else address)
