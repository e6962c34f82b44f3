"""Pictures of the dashboards for docs, drawn here and not by Grafana.

`python -m tests.dashboard_pictures URL [--minutes N]` draws them.

Each panel's own query is asked of a real Prometheus at URL, over the last minutes, and drawn as lines. A panel to which
it has nothing to say is left empty, and says so.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen
from xml.sax.saxutils import escape

from tests.dashboards import PAGES, DashboardPanel

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
POINTS = 120  # of a line
WIDE, HIGH, GAP = 470, 170, 14  # of a panel, in pixels
TOP, LEFT, BOTTOM = 30, 86, 40  # of it, round the lines
LETTER = 6.2  # of a name, on average
COLOURS = ("#3274d9", "#e0752d", "#299c46", "#a352cc", "#c4162a", "#0a8a9a", "#8f3bb8", "#b8860b")
# Grafana's suffixes of numbers of a unit, and their divisors.
UNITS = {"percentunit": ("%", 0.01), "percent": ("%", 1.0), "s": ("s", 1.0), "watt": ("W", 1.0), "celsius": ("°C", 1.0)}
UNITS |= {"reqps": ("req/s", 1.0), "short": ("", 1.0), "decmbytes": ("MB", 1.0)}
SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


@dataclass(frozen=True)
class PlotLine:
    """A series: its name, and when it was how much."""

    name: str
    points: Sequence[tuple[float, float]]


def query_prometheus(url: str, path: str, **given: object) -> list[dict[str, Any]]:
    """The series in Prometheus' answer."""
    with urlopen(f"{url}/api/v1/{path}?{urlencode(given)}", timeout=30) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def variable_patterns(url: str) -> dict[str, str]:
    """Variable of the pages -> what Grafana puts in its place where all is chosen: names that there are."""
    boxes = {row["metric"].get("box", "") for row in query_prometheus(url, "query", query="up")}
    instances = {row["metric"]["instance"] for row in query_prometheus(url, "query", query='up{job="engine"}')}
    return {f"${name}": f"({'|'.join(sorted(some))})" for name, some in (("box", boxes), ("instance", instances))}


def query_panel(
    url: str, graph: DashboardPanel, names: Mapping[str, str], began: float, ended: float
) -> list[PlotLine]:
    """Prometheus' answer to a panel's query."""
    expr = graph.expr
    for variable, some in names.items():
        expr = expr.replace(variable, some)
    step = max(1.0, (ended - began) / POINTS)
    rows = query_prometheus(url, "query_range", query=expr, start=began, end=ended, step=step)
    return sorted((make_line(graph, row["metric"], row["values"]) for row in rows), key=lambda one: one.name)


def make_line(graph: DashboardPanel, labels: Mapping[str, str], values: Sequence[tuple[float, str]]) -> PlotLine:
    """A series with the name that the panel's legend gives it, without what is no number."""
    name = re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), graph.legend)
    points = [(at, float(value)) for at, value in values]
    return PlotLine(name, [(at, value) for at, value in points if math.isfinite(value)])


def format_value(value: float, unit: str) -> str:
    """A value beside the lines."""
    if unit in ("bytes", "Bps"):
        scale, letter = next(one for one in SCALES if abs(value) >= one[0] or one[0] == 1.0)
        return f"{value / scale:.3g} {letter}B{'/s' if unit == 'Bps' else ''}"
    word, part = UNITS[unit]
    return f"{value / part:.3g} {word}".rstrip()


def render_panel(
    graph: DashboardPanel, lines: Sequence[PlotLine], began: float, ended: float, at: tuple[int, int]
) -> list[str]:
    """A panel's part of the picture, at a place in it."""
    made = [
        f'<g transform="translate({at[0]},{at[1]})"><rect width="{WIDE}" height="{HIGH}" fill="#fff" stroke="#ccc"/>',
        render_text(10, 19, graph.title, weight="bold"),
    ]
    drawn = [one for one in lines if one.points]
    if not drawn:
        return [*made, render_text(WIDE // 2, HIGH // 2 + 8, "no data there", anchor="middle", fill="#777"), "</g>"]
    most = max(value for one in drawn for _, value in one.points) or 1.0
    wide, high = WIDE - LEFT - 12, HIGH - TOP - BOTTOM
    for share in (0.0, 0.5, 1.0):
        level = TOP + high * (1 - share)
        made.append(f'<path d="M{LEFT} {level:.0f}h{wide}" stroke="#e5e5e5"/>')
        made.append(render_text(LEFT - 6, level + 4, format_value(most * share, graph.unit), anchor="end"))
    left, hidden = float(LEFT), 0
    for number, one in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        step, last, path = 1.5 * (ended - began) / POINTS, 0.0, ""
        for when, value in one.points:
            x, y = LEFT + wide * (when - began) / (ended - began), TOP + high * (1 - max(value, 0.0) / most)
            path += f"{'M' if when - last > step else 'L'}{x:.1f} {y:.1f}"  # a missing value is a gap
            last = when
        made.append(f'<path d="{path}" fill="none" stroke="{colour}"/>')
        if hidden or left + LETTER * len(one.name) > WIDE - 60:
            hidden += 1
            continue
        made.append(f'<rect x="{left:.0f}" y="{HIGH - 17}" width="9" height="9" fill="{colour}"/>')
        made.append(render_text(left + 13, HIGH - 9, one.name))
        left += 26 + LETTER * len(one.name)
    if hidden:
        made.append(render_text(left, HIGH - 9, f"+ {hidden}", fill="#777"))
    made.append(render_text(LEFT, HIGH - 26, f"{(ended - began) / 60:.0f} min before", fill="#777"))
    return [*made, render_text(WIDE - 12, HIGH - 26, "then", anchor="end", fill="#777"), "</g>"]


def render_text(
    x: float, y: float, text: str, weight: str = "", anchor: str = "", fill: str = "", size: str = ""
) -> str:
    """A text at a place."""
    given = {"font-weight": weight, "text-anchor": anchor, "fill": fill, "font-size": size}
    more = "".join(f' {name}="{value}"' for name, value in given.items() if value)
    return f'<text x="{x:.0f}" y="{y:.0f}"{more}>{escape(text)}</text>'


def render_picture(name: str, lines: Sequence[Sequence[PlotLine]], began: float, ended: float) -> str:
    """A dashboard as SVG.

    Args:
        name: Of PAGES.
        lines: Of each of its panels.
        began: Unix time at their left.
        ended: And at their right.
    """
    title, _, graphs = PAGES[name]
    rows = (len(graphs) + 1) // 2
    wide, high = 2 * WIDE + 3 * GAP, rows * (HIGH + GAP) + 64
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="11">',
        f'<rect width="{wide}" height="{high}" fill="#f4f5f5"/>',
        render_text(GAP, 28, title, weight="bold", size="17"),
        render_text(
            GAP, 46, "Drawn by tests/dashboard_pictures.py from a real Prometheus, and not by Grafana.", fill="#555"
        ),
    ]
    for number, (graph, found) in enumerate(zip(graphs, lines, strict=True)):
        at = GAP + number % 2 * (WIDE + GAP), 58 + number // 2 * (HIGH + GAP)
        made += render_panel(graph, found, began, ended, at)
    return "\n".join([*made, "</svg>", ""])


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    ended = time.time()
    began = ended - 60 * given.minutes
    names = variable_patterns(given.url)
    for name, (_, _, graphs) in PAGES.items():
        lines = [query_panel(given.url, graph, names, began, ended) for graph in graphs]
        (FOLDER / f"{name}.svg").write_text(render_picture(name, lines, began, ended))


if __name__ == "__main__":
    main()
