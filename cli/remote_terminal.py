"""Terminal sessions on a host, with the options that pass through to ssh."""

from __future__ import annotations

import os
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

from roles import root_shell

CHUNK_BYTES = 1 << 15  # bytes


def is_interactive() -> bool:
    """Whether a person types, and reads."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def describe_terminal() -> root_shell.OperatorTerminal:
    """The environment of a command on a host."""
    return root_shell.OperatorTerminal(os.environ.get("TERM", "dumb"), *_terminal_size())


def attach_channel(channel: Channel, typed: bool) -> int:
    """Give a command on a host all that comes in here, and show what it says, until it ends; returns its exit status.

    Args:
        channel: The command's.
        typed: Whether it has the operator's terminal: then every key is its, an interrupt too.

    Raises:
        roles.root_shell.BROKEN: the connection is gone.
    """
    channel.settimeout(None)
    with _raw_mode() if typed else nullcontext():
        if typed:
            gevent.get_hub().loop.signal(signal.SIGWINCH).start(lambda: channel.resize_pty(*_terminal_size()))
        sending = gevent.spawn(_send_input, channel)
        errors = gevent.spawn(_copy_stream, channel.recv_stderr, sys.stderr.buffer)
        _copy_stream(channel.recv, sys.stdout.buffer)
        errors.join()
        sending.kill(block=False)
    return channel.recv_exit_status() & 0xFF


def _send_input(channel: Channel) -> None:
    # a command that has ended reads no more
    with suppress(*root_shell.BROKEN):
        while part := tp_read(sys.stdin.fileno(), CHUNK_BYTES):
            channel.sendall(part)
        channel.shutdown_write()


def _copy_stream(read: Callable[[int], bytes], into: IO[bytes]) -> None:
    pool = gevent.get_hub().threadpool
    while part := read(CHUNK_BYTES):
        # a client that does not read holds this stream up, and nothing else: signs of life go on
        pool.apply(into.write, (part,))
        pool.apply(into.flush)


def _terminal_size() -> tuple[int, int]:
    size = shutil.get_terminal_size()
    return size.columns, size.lines


@contextmanager
def _raw_mode() -> Iterator[None]:
    """Every key goes to the host, an interrupt too."""
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class PassthroughCommand(click.Command):
    """A verb whose last argument is a COMMAND: options are the verb's own up to COMMAND's first word.

    One that stands behind it would be run on hosts that it was to leave out, and is refused unless `--` is before it.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Tell options, arguments and COMMAND's words apart."""
        own, words = self._split_options(ctx, args)
        ctx.allow_interspersed_args = False
        return super().parse_args(ctx, [*own, "--", *words])

    def _split_options(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        values = {name: not one.is_flag for one in options for name in (*one.opts, *one.secondary_opts)}
        helps = set(self.get_help_option_names(ctx))
        first = sum(isinstance(one, click.Argument) and one.nargs == 1 for one in self.params)
        own, words, rest = list[str](), list[str](), list(args)
        while rest:
            word = rest.pop(0)
            name, has_value, _ = word.partition("=")
            if word == "--" and len(words) <= first:
                return own, words + rest
            if len(words) > first:
                if name in values and name not in helps and "--" not in words and not ctx.resilient_parsing:
                    raise click.UsageError(
                        f"{name} is among COMMAND's words: put it before them, or -- if it is one of them"
                    )
                words.append(word)
            elif word.startswith("-") and word != "-":
                own.append(word)
                if values.get(name) and not has_value:
                    if not rest and not ctx.resilient_parsing:
                        raise click.BadOptionUsage(name, f"Option '{name}' requires an argument.", ctx)
                    own += rest[:1]
                    rest = rest[1:]
            else:
                words.append(word)
        return own, words
