"""Tables for people, as wide as they need where nothing is there to be wide."""

from __future__ import annotations

import os
import shutil
import sys

import click

NUMBERS = (
    "port",
    "restarts",
    "memory",
    "files",
    "size",
    "fetched",
    "weights",
    "hosts",
    "seconds",
    "operations",
    "processor s",
    "remote commands",
    "ansible takes",
    "streams",
    "tokens/s",
    "TTFT P50 ms",
    "TTFT P99 ms",
    "ITL P50 ms",
    "ITL P99 ms",
    *("req/s", "failed", "running", "waiting", "KV %"),
    *("TTFT", "TPOT", "ITL P99", "latency", "P50", "P90", "P99"),
)
WIDTH = 200  # columns, where the output is no terminal


# what has rich see a terminal where there is none, or none where there is one
FORCED = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def show(columns: tuple[str, ...], rows: list[tuple[str, ...]], width: int = WIDTH) -> None:
    """Print rows under their columns; where they are too wide, words go on in the next line.

    Args:
        columns: Their titles.
        rows: As many cells each, or fewer.
        width: Columns of text where the output is no terminal.
    """
    lines = [columns, *((*row, *[""] * (len(columns) - len(row))) for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else width
    plain = all(text.isascii() and text.isprintable() for row in lines for text in row)
    fits = sum(widths) + 2 * (len(widths) - 1) <= wide
    if not (plain and fits) or (dumb and sys.stdout.isatty()) or any(name in os.environ for name in FORCED):
        _folded(columns, rows, width)
        return
    for number, row in enumerate(lines):
        cells = [
            text.rstrip().rjust(width) if column in NUMBERS else text.ljust(width)
            for column, text, width in zip(columns, row, widths, strict=True)
        ]
        click.echo("  ".join(click.style(cell, bold=True) for cell in cells) if number == 0 else "  ".join(cells))


def _folded(columns: tuple[str, ...], rows: list[tuple[str, ...]], width: int = WIDTH) -> None:
    """What is not simple: folded, in cells of more than one column, or with styles that are forced."""
    # importing it takes as long as judging a rig
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in NUMBERS else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(text) for text in row))
    console = Console()
    Console(width=None if console.is_terminal else width).print(table)


def size(count: int) -> str:
    """Bytes, for people: `19.1 GB`."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"
