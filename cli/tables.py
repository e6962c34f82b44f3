"""Tables for people, as wide as they need where nothing is there to be wide."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unicodedata import combining, east_asian_width

import click

from cli.prog_name import with_prog_name
from rigwright.safe_text import printable, wrap_words

NUMBER = re.compile(r"[-+~]?([0-9]+|[0-9]{1,3}(,[0-9]{3})+)(\.[0-9]+)?( (B|kB|MB|GB|GiB|s|ms|W|C)|%)?")
"""A cell of a column that stands to the right."""
MIN_COLUMN_WIDTH = 16  # columns that a cell keeps at least where it is broken
SHORT_DIGEST = 12  # digits
WIDTH = 200  # columns, where the output is no terminal
Rows = Sequence[tuple[str, ...]]


def is_terminal(*, err: bool = False) -> bool:
    """Whether standard output, or standard error, is a terminal."""
    return (sys.stderr if err else sys.stdout).isatty()


def print_table(columns: tuple[str, ...], rows: Rows, width: int = WIDTH, broken: str = "") -> None:
    """Print rows under their columns, without columns that are empty; where they are too wide, a line a cell.

    Args:
        columns: Their titles.
        rows: As many cells each, or fewer.
        width: Columns of text where the output is no terminal.
        broken: The column whose cells may be broken between words, where that is enough.
    """
    whole = [
        tuple(with_prog_name(printable(cell)) for cell in (*row, *[""] * (len(columns) - len(row)))) for row in rows
    ]
    kept = [number for number in range(len(columns)) if not whole or any(row[number].strip() for row in whole)]
    titles = tuple(columns[number] for number in kept)
    cells = [tuple(row[number] for number in kept) for row in whole]
    widths = [max(map(_display_width, texts)) for texts in zip(titles, *cells, strict=True)]
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else width
    over = sum(widths) + 2 * (len(widths) - 1) - wide
    right = [_holds_numbers(texts) for texts in zip(*cells, strict=True)] or [False] * len(titles)
    lines = cells
    if over > 0 and broken in titles and widths[titles.index(broken)] - over >= MIN_COLUMN_WIDTH:
        at = titles.index(broken)
        lines = [part for row in cells for part in _wrap_row(row, at, widths[at] - over)]
        widths = [max(map(_display_width, texts)) for texts in zip(titles, *lines, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > wide:
        _print_cells(titles, cells, wide)
        return
    for number, row in enumerate([titles, *lines]):
        filled = [
            _pad_text(text.rstrip(), width, right=to_right)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ]
        line = "  ".join(filled).rstrip()
        click.echo(style_text(line, bold=True) if number == 0 else line)


def _holds_numbers(texts: Sequence[str]) -> bool:
    cells = [text.strip() for text in texts if text.strip() not in ("", "-")]
    return bool(cells) and all(NUMBER.fullmatch(cell) for cell in cells)


def _wrap_row(row: tuple[str, ...], at: int, room: int) -> Iterator[tuple[str, ...]]:
    """A row as several, of which the further ones have the rest of one cell."""
    first, *more = wrap_words(row[at].strip(), room) or [""]
    yield (*row[:at], first, *row[at + 1 :])
    for text in more:
        yield (*[""] * at, text, *[""] * (len(row) - at - 1))


def print_records(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in one form on every output: the first two cells, and below them a line for each other one.

    Args:
        title: Printed before them.
        columns: Names of all cells but the first two.
        rows: The cells.
    """
    click.echo(style_text(printable(title), bold=True))
    for role, text, *cells in rows:
        print_prose(f"  {printable(role)}: {printable(text)}")
        for name, cell in zip(columns, cells, strict=True):
            if cell:
                print_prose(f"      {name}: {printable(cell)}")


def _print_cells(columns: tuple[str, ...], rows: list[tuple[str, ...]], wide: int) -> None:
    """Each row as its first cell, and below it a line for each other cell that is not empty."""
    named = max(map(_display_width, columns))
    for row in rows:
        click.echo(style_text(row[0] or "-", bold=True))
        for column, text in zip(columns[1:], row[1:], strict=True):
            if text.strip():
                lead = f"  {_pad_text(column, named)}  "
                for number, line in enumerate(wrap_words(text.strip(), max(wide - len(lead), 20))):
                    click.echo(f"{lead if number == 0 else ' ' * len(lead)}{line}")


def print_paragraph(text: str, lead: str = "", hang: int | None = None) -> None:
    """Print a text in lines that the terminal has room for; in one where the output is no terminal.

    Args:
        text: The text.
        lead: The beginning of the first line; styles in it take no room.
        hang: Columns before each further line; as many as the lead has, where it is not said.
    """
    text = with_prog_name(text)
    if not sys.stdout.isatty():
        click.echo(lead + text)
        return
    room = click.unstyle(lead)
    left = " " * (len(room) if hang is None else hang)
    first, *more = wrap_words(text, shutil.get_terminal_size().columns, room, left) or [room]
    click.echo("\n".join((lead + first[len(room) :], *more)))


def print_prose(text: str, *, err: bool = False, fg: str | None = None) -> None:
    """Print prose: each of its lines broken between words where a terminal has no room, and as it is elsewhere.

    Args:
        text: One line or several; further lines of one are indented by two columns more than it is itself.
        err: To standard error.
        fg: Its colour.
    """
    said = with_prog_name(text)
    said = wrap_prose(said) if is_terminal(err=err) else said
    click.echo(style_text(said, fg=fg) if fg else said, err=err)


def wrap_prose(text: str) -> str:
    """A text of one line or several in lines that the terminal has room for."""
    columns, wrapped = shutil.get_terminal_size().columns, list[str]()
    for line in text.split("\n"):
        left = " " * (len(line) - len(line.lstrip()) + 2)
        wrapped += wrap_words(line, columns, others=left) or [line]
    return "\n".join(wrapped)


def _pad_text(text: str, width: int, *, right: bool = False) -> str:
    room = " " * (width - _display_width(text))
    return f"{room}{text}" if right else f"{text}{room}"


def _display_width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def style_text(text: str, **style: Any) -> str:
    """A text in a style, for click.echo, which leaves styles away where there is no terminal; plain under NO_COLOR."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)


def shorten_digest(digest: str) -> str:
    """The first twelve digits of a digest: enough to compare by eye, not to prove anything."""
    return digest[:SHORT_DIGEST]


def format_size(count: int) -> str:
    """Bytes, for people: `19.1 GB`."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def format_duration(seconds: float | None) -> str:
    """A time for people, in two parts: `3d 4h`."""
    if seconds is None:
        return ""
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size or (unit == "s" and not parts):
            parts.append(f"{int(seconds // size)}{unit}")
            seconds %= size
    return " ".join(parts[:2])
