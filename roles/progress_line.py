"""The line of one row of the live display."""

from __future__ import annotations

from rigwright.problems import printable

BAR = 8  # columns


def format_clock(seconds: float) -> str:
    """A duration as `m:ss`, or `h:mm:ss`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def render_progress_line(
    name: str, text: str, fraction: float | None, rate: str, left: float | None, took: float, columns: int
) -> str:
    """`h1  Engines: compiling  [####----]  1.2/s  2:10 left  0:42`, as wide as the terminal but for one column."""
    from rich.cells import set_cell_size

    filled = int((fraction or 0.0) * BAR)
    remaining = f"{format_clock(left)} left" if left is not None else ""
    end = f" [{'#' * filled}{'-' * (BAR - filled)}] {rate:>9} {remaining:>10} {format_clock(took):>5}"
    lead = f"{printable(name)}  "
    return f"{lead}{set_cell_size(printable(text), max(columns - len(lead) - len(end) - 1, 8))}{end}"
