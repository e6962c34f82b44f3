"""A plot for a terminal: bars, a line a row."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 80  # columns: of a terminal as it opens


def bars(titles: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]], width: int = WIDTH) -> list[str]:
    """Lines with a bar and its number for each value; each column has a scale of its own, which begins at 0.

    Args:
        titles: Of the columns, that of the rows' names first.
        rows: Name and as many values as there are further columns.
        width: Columns of text.
    """
    names = max(len(one) for one in (titles[0], *(name for name, _ in rows)))
    columns = list(zip(*(values for _, values in rows), strict=True)) or [()] * (len(titles) - 1)
    share = (width - names) // len(columns)
    drawn = [_column(title, values, share - 2) for title, values in zip(titles[1:], columns, strict=True)]
    every = zip((titles[0], *(name for name, _ in rows)), *drawn, strict=True)
    return ["  ".join((name.rjust(names), *cells)).rstrip() for name, *cells in every]


def _column(title: str, values: Sequence[float], width: int) -> list[str]:
    most = max(values, default=0.0)
    numbers = [f"{value:.{0 if most >= 100 else 1 if most >= 10 else 2}f}" for value in values]
    cell = max((len(one) for one in numbers), default=0)
    room = width - cell - 1
    lengths = [round(room * value / most) if most else 0 for value in values]
    lines = [f"{'#' * length:<{room}} {text:>{cell}}" for length, text in zip(lengths, numbers, strict=True)]
    return [title.ljust(width), *lines]
