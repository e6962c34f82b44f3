"""`rigwright shell`: a command, or a shell, in an environment of a host."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import IO

import click
import gevent
from gevent.os import tp_read
from paramiko import Channel

from checks.looking import Box, Rigs, alone, boxes, leave
from cli.declared import INVENTORY, LIMIT
from rigwright.envs.env import entering
from rigwright.problems import printable, unknown
from roles import root

PART = 1 << 15  # bytes


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@LIMIT
@INVENTORY
@click.argument("environment")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
def shell(inventory: str, environment: str, words: tuple[str, ...], limit: str | None) -> None:
    """Run COMMAND, or a shell, in ENVIRONMENT of the one host of INVENTORY that --limit names.

    It runs as a user who exists for as long as that and owns nothing: it sees cards and network, and has a /tmp and a
    /dev/shm of its own to write to. Ends with the command's exit status; an interrupt ends the command, too.
    Example: rigwright shell --limit box1 ~/boxes/rig.py vllm python -c 'import vllm; print(vllm.__version__)'
    """

    def judge(rigs: Rigs) -> None:
        alone(inventory, rigs)
        for name, rig in rigs.items():
            if environment not in (names := {env.name for env in rig.envs}):
                raise click.UsageError(f"{name}: {unknown('environment', environment, names)}")

    found, gone = boxes(inventory, limit, judge)
    leave(gone)
    (box,) = found
    facts = box.facts()
    made = box.desired().installations[environment]
    if made.folder not in facts.built_engines:
        raise click.ClickException(f"{box.name}: {environment} is not there as it is declared: deploy first")
    sys.exit(_run(box, box.rig.installed(made.folder), words))


def _run(box: Box, folder: str, words: tuple[str, ...]) -> int:
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    unit = f"rigwright_shell-{secrets.token_hex(4)}.service"
    command = shlex.join(entering(box.rig, folder, words, unit, terminal=interactive))
    try:
        channel = root.start(box.target, f"exec {command}", terminal=_terminal() if interactive else None)
        channel.settimeout(None)
        with _raw() if interactive else nullcontext():
            if interactive:
                gevent.get_hub().loop.signal(signal.SIGWINCH).start(lambda: channel.resize_pty(*_size()))
            sending = gevent.spawn(_send, channel)
            errors = gevent.spawn(_copy, channel.recv_stderr, sys.stderr.buffer)
            _copy(channel.recv, sys.stdout.buffer)
            errors.join()
            sending.kill(block=False)
        return channel.recv_exit_status() & 0xFF
    except root.BROKEN as error:
        raise click.ClickException(f"{box.name}: the connection is gone: {printable(str(error))}") from None
    finally:
        # it would go on by itself, with whatever it holds of the cards
        with suppress(root.Gone):
            root.run(box.target, f"systemctl stop {shlex.quote(unit)} 2>/dev/null || true")


def _send(channel: Channel) -> None:
    while part := tp_read(sys.stdin.fileno(), PART):
        channel.sendall(part)
    channel.shutdown_write()


def _copy(read: Callable[[int], bytes], into: IO[bytes]) -> None:
    while part := read(PART):
        into.write(part)
        into.flush()


def _size() -> tuple[int, int]:
    size = shutil.get_terminal_size()
    return size.columns, size.lines


def _terminal() -> root.Terminal:
    return root.Terminal(os.environ.get("TERM", "dumb"), *_size())


@contextmanager
def _raw() -> Iterator[None]:
    """Every key goes to the host, an interrupt too."""
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
