"""Pictures of the documentation: `python -m tests.doc_pictures` writes an SVG next to each source in docs/pictures.

A `NAME.diagram` has one item a line, with coordinates in pixels:

    size WIDTH HEIGHT
    title TEXT                              for screen readers
    group X Y WIDTH HEIGHT TITLE            a frame around boxes
    box ID X Y WIDTH HEIGHT TITLE | LINE    ID is how arrows name it; `box!` is emphasised
    note X Y TEXT
    arrow ID.SIDE ID.SIDE [TEXT]            SIDE: left, right, top or bottom; `arrow-` is dashed

A `NAME.session` is the text of a terminal: lines after `$ ` are commands, `#title TEXT` is for screen readers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from rigwright.project_root import ROOT

FOLDER = ROOT / "docs" / "pictures"
PALETTES = {
    "light": ("#fff", "#1f2328", "#59636e", "#8c959f", "#f6f8fa", "#ddf4ff"),
    "dark": ("#0d1117", "#e6edf3", "#9198a1", "#6e7681", "#161b22", "#12304d"),
}
"""Paper, text, soft text, lines, boxes and emphasised boxes."""


def _render_colours(palette: str) -> str:
    # without variables of CSS, which converters such as librsvg ignore
    paper, ink, soft, line, fill, mark = PALETTES[palette]
    return (
        f".paper{{fill:{paper}}}.box{{fill:{fill};stroke:{line}}}.mark{{fill:{mark};stroke:{line}}}"
        f".group{{fill:none;stroke:{line}}}.arrow{{fill:none;stroke:{soft}}}.head,text.soft{{fill:{soft}}}text{{fill:{ink}}}"
    )


STYLE = f"""<style>
{_render_colours("light")}
@media(prefers-color-scheme:dark){{{_render_colours("dark")}}}
text{{font:13px system-ui,sans-serif}}text.title{{font-weight:600}}.group{{stroke-dasharray:4 3}}
.arrow{{stroke-width:1.5}}.dashed{{stroke-dasharray:5 4}}text.mono{{font:13px ui-monospace,monospace;white-space:pre}}
</style>"""
HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>'
)
LINE, LETTER, MARGIN = 18, 7.85, 16  # height of a line, width of a letter, and the margin of a terminal, in pixels


class PictureSyntaxError(Exception):
    """A line of a picture's source is invalid."""


@dataclass(frozen=True)
class DiagramBox:
    """A box of a diagram."""

    left: int
    top: int
    width: int
    height: int

    def anchor(self, side: str) -> tuple[int, int]:
        """The middle of a side."""
        middle = (self.left + self.width // 2, self.top + self.height // 2)
        return {
            "left": (self.left, middle[1]),
            "right": (self.left + self.width, middle[1]),
            "top": (middle[0], self.top),
            "bottom": (middle[0], self.top + self.height),
        }[side]


@dataclass
class DiagramDrawing:
    """A diagram while its lines are read."""

    width: int = 0
    height: int = 0
    title: str = ""
    boxes: dict[str, DiagramBox] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)

    def draw(self, line: str) -> None:
        """Draw one line of the source.

        Raises:
            PictureSyntaxError: the line is invalid.
        """
        word, _, rest = line.partition(" ")
        draw: Callable[[str], None] | None = {
            "size": self._set_size,
            "title": self._set_title,
            "group": self._draw_group,
            "box": lambda text: self._draw_box(text, "box"),
            "box!": lambda text: self._draw_box(text, "mark"),
            "note": self._draw_note,
            "arrow": lambda text: self._draw_arrow(text, "arrow"),
            "arrow-": lambda text: self._draw_arrow(text, "arrow dashed"),
        }.get(word)
        try:
            if not draw:
                raise ValueError(word)
            draw(rest)
        except (KeyError, ValueError) as error:
            raise PictureSyntaxError(f"{line}: {error}") from None

    def _set_size(self, text: str) -> None:
        self.width, self.height = map(int, text.split())

    def _set_title(self, text: str) -> None:
        self.title = text

    def _draw_group(self, text: str) -> None:
        *numbers, title = text.split(" ", 4)
        x, y, width, height = map(int, numbers)
        self.parts.append(f'<rect class="group" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>')
        self._write(x + 12, y + 20, title, "soft title", "start")

    def _draw_box(self, text: str, style: str) -> None:
        name, *numbers, words = text.split(" ", 5)
        box = DiagramBox(*map(int, numbers))
        self.boxes[name] = box
        size = f'width="{box.width}" height="{box.height}"'
        self.parts.append(f'<rect class="{style}" x="{box.left}" y="{box.top}" {size} rx="6"/>')
        lines = words.split(" | ")
        top = box.top + box.height // 2 - (len(lines) - 1) * LINE // 2 + 4
        for number, line in enumerate(lines):
            style = "soft" if number else "title"
            self._write(box.left + box.width // 2, top + number * LINE, line, style, "middle")

    def _draw_note(self, text: str) -> None:
        x, y, words = text.split(" ", 2)
        self._write(int(x), int(y), words, "soft", "start")

    def _draw_arrow(self, text: str, style: str) -> None:
        source, target, *words = text.split(" ", 2)
        (first, leaves), (last, enters) = (one.split(".") for one in (source, target))
        (x1, y1), (x2, y2) = self.boxes[first].anchor(leaves), self.boxes[last].anchor(enters)
        across = leaves in ("left", "right")
        if across and enters in ("left", "right"):
            bend = f"H{(x1 + x2) // 2}V{y2}H{x2}"
        elif not across and enters in ("top", "bottom"):
            bend = f"V{(y1 + y2) // 2}H{x2}V{y2}"
        else:
            bend = f"H{x2}V{y2}" if across else f"V{y2}H{x2}"
        self.parts.append(f'<path class="{style}" d="M{x1} {y1}{bend}" marker-end="url(#head)"/>')
        if words:
            self._write((x1 + x2) // 2, (y1 + y2) // 2 - 6, words[0], "soft", "middle")

    def _write(self, x: int, y: int, text: str, style: str, anchor: str) -> None:
        self.parts.append(f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>')


def render_diagram(source: str) -> str:
    """The SVG of a diagram.

    Raises:
        PictureSyntaxError: a line is invalid.
    """
    drawing = DiagramDrawing()
    for line in source.splitlines():
        if line.strip():
            drawing.draw(line)
    return _render_svg(drawing.width, drawing.height, drawing.title, [HEAD, *drawing.parts])


def render_session(source: str) -> str:
    """The SVG of a terminal session."""
    title = " ".join(line.removeprefix("#title ") for line in source.splitlines() if line.startswith("#title "))
    lines = [line for line in source.splitlines() if not line.startswith("#title ")]
    width = round(max(map(len, lines)) * LETTER) + 2 * MARGIN
    height = len(lines) * LINE + 2 * MARGIN
    # converters such as librsvg need the attribute, browsers the style
    kept = 'xml:space="preserve"'
    rows = (
        f'<text {kept} class="mono{" title" if line.startswith("$ ") else ""}" x="{MARGIN}" '
        f'y="{MARGIN + 13 + number * LINE}">{escape(line)}</text>'
        for number, line in enumerate(lines)
        if line
    )
    frame = f'<rect class="box" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="8"/>'
    return _render_svg(width, height, title, [frame, *rows])


def _render_svg(width: int, height: int, title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"'
    paper = f'<rect class="paper" width="{width}" height="{height}"/>'
    return "\n".join((f"{head} aria-label={quoteattr(title)}>", STYLE, paper, *parts, "</svg>\n"))


RENDERERS = {".diagram": render_diagram, ".session": render_session}


def list_pictures() -> list[Path]:
    """Every source text."""
    return sorted(path for path in FOLDER.iterdir() if path.suffix in RENDERERS)


def main() -> None:
    """Write every picture that differs from its source."""
    for path in list_pictures():
        text, target = RENDERERS[path.suffix](path.read_text()), path.with_suffix(".svg")
        if not target.exists() or target.read_text() != text:
            target.write_text(text)
            sys.stdout.write(f"{target.relative_to(ROOT)} written\n")


if __name__ == "__main__":
    main()
