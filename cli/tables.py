"""Tables for people, as wide as they need where nothing is there to be wide."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

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
)
WIDTH = 200  # columns, where the output is no terminal


def show(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print rows under their columns."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in NUMBERS else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(text) for text in row))
    console = Console()
    Console(width=None if console.is_terminal else WIDTH).print(table)


def size(count: int) -> str:
    """Bytes, for people: `19.1 GB`."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"
