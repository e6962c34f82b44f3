"""A verb's output again and again: in place on a terminal, one after the other elsewhere."""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import NoReturn

import click

from roles.progress import is_live_terminal


class _CapturedTerminal(io.StringIO):
    """Output for a terminal, kept: it is wrapped and coloured as if it was printed there."""

    def isatty(self) -> bool:
        return True


def watch_output(print_output: Callable[[], object], interval: float) -> NoReturn:
    """Print an output every so many seconds until an interrupt.

    Args:
        print_output: Collects and prints it once.
        interval: Seconds from one beginning to the next.
    """
    if not is_live_terminal(sys.stdout):
        while True:
            began = time.monotonic()
            click.echo(time.strftime("%H:%M:%S"))
            print_output()
            sys.stdout.flush()
            time.sleep(max(0.0, interval - (time.monotonic() - began)))
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=getattr(sys.stdout, "ungated", sys.stdout), highlight=False, markup=False)
    console.show_cursor = lambda show=True: False  # type: ignore[method-assign]
    with Live(console=console, auto_refresh=False) as live:
        while True:
            began = time.monotonic()
            with redirect_stdout(_CapturedTerminal()) as captured:
                print_output()
            live.update(Text.from_ansi(fit_screen(captured.getvalue(), time.strftime("%H:%M:%S"))), refresh=True)
            time.sleep(max(0.0, interval - (time.monotonic() - began)))


def fit_screen(text: str, clock: str) -> str:
    """As many lines as the terminal has room for below the time, and a line that counts the others."""
    lines, room = text.splitlines(), shutil.get_terminal_size().lines - 2
    if len(lines) > room:
        lines = [*lines[: room - 1], f"and {len(lines) - room + 1} lines more"]
    return "\n".join([clock, *lines])
