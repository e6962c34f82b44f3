"""A box as a picture: its NUMA nodes, cards, links, instances and memory, as SVG inside an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rigwright.problems import format_count, printable

CARD_WIDTH, CARD_HEIGHT, GAP, EDGE = 176, 96, 14, 16  # units of the picture, one of which is a pixel at its own size
BAND = 34  # height of an instance
LINK = 26  # height of a link above the cards


@dataclass(frozen=True)
class PicturedCard:
    """A card. A value that a host does not report is None."""

    index: int
    name: str
    node: int | None = None
    used_mib: int | None = None
    total_mib: int | None = None
    lanes: int | None = None
    lanes_max: int | None = None

    @property
    def memory(self) -> str:
        """Its measured memory, in words."""
        if self.used_mib is None or self.total_mib is None:
            return "memory not measured"
        return f"{self.used_mib / 1024:.1f} of {self.total_mib / 1024:.1f} GiB used"

    @property
    def bus(self) -> str:
        """Its PCI link, in words."""
        if self.lanes is None:
            return "PCIe link not measured"
        most = f" of {self.lanes_max}" if self.lanes_max not in (None, self.lanes) else ""
        return f"PCIe, {self.lanes}{most} lanes"


@dataclass(frozen=True)
class PicturedInstance:
    """An instance and the indexes of its cards; none for one on the CPU."""

    name: str
    variant: str
    cards: tuple[int, ...] = ()


@dataclass(frozen=True)
class PicturedBox:
    """All that a picture shows."""

    name: str
    cards: tuple[PicturedCard, ...] = ()
    links: tuple[tuple[int, int, str], ...] = ()
    """Two cards, the lower index first, and what nvidia-smi says is between them: NV4, PIX, PHB, NODE or SYS."""
    instances: tuple[PicturedInstance, ...] = ()
    memory_gib: float | None = None
    """The host's own."""

    @property
    def direct_links(self) -> tuple[tuple[int, int, str], ...]:
        """Those over NVLink, which have a line."""
        return tuple(one for one in self.links if one[2].startswith("NV"))


def render_box(box: PicturedBox, label: str) -> Markup:
    """The picture.

    Args:
        box: Its facts.
        label: The id of its title in the page, which no other picture has.
    """
    columns = sorted(box.cards, key=lambda card: (card.node is None, card.node or 0, card.index))
    place = {card.index: number for number, card in enumerate(columns)}
    width = 2 * EDGE + max(2, len(columns)) * (CARD_WIDTH + GAP)
    links = _stack_links(box, place)
    top = EDGE + 22 + LINK * (1 + max((level for *_, level in links), default=-1))
    parts = [*_render_links(links, top), *_render_nodes(columns, top)]
    left = EDGE + GAP // 2
    parts += [_render_card(card, left + place[card.index] * (CARD_WIDTH + GAP), top + 24) for card in columns]
    below = top + (CARD_HEIGHT + 44 if columns else 0)
    parts += _render_instances(box.instances, place, below, width)
    height = below + (BAND + 8) * len(box.instances) + EDGE
    memory = f", {box.memory_gib:.0f} GiB of memory" if box.memory_gib is not None else ""
    title = _text(EDGE, EDGE + 6, f"{box.name}{memory}", "strong")
    return Markup(
        '<svg role="img" aria-labelledby="{label}" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        '<title id="{label}">{box}: {count}, {instances}</title>{title}{parts}</svg>'
    ).format(
        **{
            "label": label,
            "width": width,
            "height": height,
            "box": _clean(box.name),
            "count": format_count(len(columns), "card"),
        },
        **{"instances": format_count(len(box.instances), "instance"), "title": title, "parts": Markup("").join(parts)},
    )


def render_series(values: Sequence[float], label: str, name: str) -> Markup:
    """A line of values over time, the oldest first; the page has them as a table, too."""
    width, height, edge = 240, 48, 4
    most, least = max(values), min(values)
    step = (width - 2 * edge) / max(1, len(values) - 1)
    scale = (height - 2 * edge) / ((most - least) or 1)
    points = [
        f"{edge + number * step:.1f},{height - edge - (value - least) * scale:.1f}"
        for number, value in enumerate(values)
    ]
    dots = Markup("").join(Markup('<circle cx="{}" cy="{}" r="2.5"/>').format(*point.split(",")) for point in points)
    return Markup(
        '<svg class="series" role="img" aria-labelledby="{label}" viewBox="0 0 {width} {height}" width="{width}" '
        'height="{height}"><title id="{label}">{name}: {least:.1f} to {most:.1f} tokens/s in {count}</title>'
        '<polyline points="{points}"/>{dots}</svg>'
    ).format(
        **{"label": label, "width": width, "height": height, "name": _clean(name), "least": least, "most": most},
        **{"count": format_count(len(values), "run"), "points": " ".join(points), "dots": dots},
    )


def _clean(text: str) -> str:
    return printable(text)


def _text(x: float, y: float, text: str, kind: str = "") -> Markup:
    return Markup('<text x="{}" y="{}" class="{}">{}</text>').format(x, y, kind, _clean(text))


def _render_nodes(columns: Sequence[PicturedCard], top: int) -> Iterator[Markup]:
    """A frame around the cards of each NUMA node."""
    for node in dict.fromkeys(card.node for card in columns):
        numbers = [number for number, card in enumerate(columns) if card.node == node]
        x, count = EDGE + numbers[0] * (CARD_WIDTH + GAP), len(numbers)
        name = "NUMA node unknown" if node is None else f"NUMA node {node}"
        yield Markup('<rect class="node" x="{}" y="{}" width="{}" height="{}" rx="8"/>').format(
            x + 2, top, count * (CARD_WIDTH + GAP) - 4, CARD_HEIGHT + 34
        )
        yield _text(x + 10, top + 17, name, "small")


def _render_card(card: PicturedCard, x: int, y: int) -> Markup:
    bar = CARD_WIDTH - 20
    share = min(1.0, card.used_mib / card.total_mib) if card.used_mib is not None and card.total_mib else 0.0
    return Markup('<rect class="card" x="{}" y="{}" width="{}" height="{}" rx="6"/>{}{}{}{}{}{}').format(
        *(x, y, CARD_WIDTH, CARD_HEIGHT),
        _text(x + 10, y + 20, f"GPU {card.index}", "strong"),
        _text(x + 10, y + 37, _shorten(card.name), "small"),
        _render_bar("track", x + 10, y + 46, bar),
        _render_bar("used", x + 10, y + 46, bar * share),
        _text(x + 10, y + 70, card.memory, "small"),
        _text(x + 10, y + 86, card.bus, "small"),
    )


def _render_bar(kind: str, x: int, y: int, width: float) -> Markup:
    return Markup('<rect class="{}" x="{}" y="{}" width="{:.1f}" height="8" rx="4"/>').format(kind, x, y, width)


def _stack_links(box: PicturedBox, place: dict[int, int]) -> list[tuple[int, int, str, int]]:
    """The columns, the name and the level of each pair that shares NVLinks; those of one level do not overlap.

    All other pairs are in the page's table.
    """
    made: list[tuple[int, int, str, int]] = []
    for first, second, way in box.direct_links:
        if first in place and second in place:
            left, right = sorted((place[first], place[second]))
            taken = {level for start, end, _, level in made if start <= right and left <= end}
            made.append((left, right, way, min({*range(len(made) + 1)} - taken)))
    return made


def _render_links(links: Sequence[tuple[int, int, str, int]], top: int) -> Iterator[Markup]:
    for *columns, way, level in links:
        ends = [EDGE + GAP // 2 + column * (CARD_WIDTH + GAP) + CARD_WIDTH / 2 for column in columns]
        y = top - 8 - level * LINK
        yield Markup('<path class="link" d="M{} {}V{}H{}V{}"/>').format(ends[0], top, y, ends[1], top)
        yield _text(sum(ends) / 2 - 14, y - 4, way, "small")


def _render_instances(
    instances: Sequence[PicturedInstance], place: dict[int, int], top: int, width: int
) -> Iterator[Markup]:
    """A band below the cards of each instance; one on the CPU has the full width."""
    for number, one in enumerate(instances):
        at = sorted(place[card] for card in one.cards if card in place)
        first, last = (at[0], at[-1]) if at else (0, max(1, len(place) - 1))
        x = EDGE + 2 + first * (CARD_WIDTH + GAP)
        wide = min((last - first + 1) * (CARD_WIDTH + GAP) - 4, width - x - EDGE)
        y = top + number * (BAND + 8)
        cards = f"GPU {', '.join(map(str, one.cards))}" if one.cards else "CPU"
        room = (wide - 20) // 8
        # the band lies below its cards
        text = f"{one.name}: {one.variant}, {cards}"
        kind = "" if len(text) <= room else "small"
        text = _shorten(f"{one.name}: {one.variant}", round(room * 1.25)) if kind else _clean(text)
        yield Markup('<rect class="instance" x="{}" y="{}" width="{}" height="{}" rx="6"/>{}').format(
            x, y, wide, BAND, _text(x + 10, y + 21, text, kind)
        )


def _shorten(text: str, most: int = 24) -> str:
    text = _clean(text)
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
