"""HTML pages of reports: one file that needs no network, for a screen, a printer and a screen reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from checks.results import LISTED_VERDICTS, HostReport, Report, Result, describe_waivers
from cli.box_picture import PicturedBox, PicturedCard, PicturedInstance, render_box, render_series
from cli.tables import print_prose
from rigwright import speed_baselines
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.smi import Gpu
from rigwright.problems import printable
from rigwright.project_root import ROOT
from rigwright.speed_baselines import BaselineHistory

SEVERITY_ORDER = ("critical", "high", "medium", "low")
WORDS = {"ok": "holds", "fail": "fails", "waived": "fails, waived", "changed": "changed", "skip": "does not apply"}


@dataclass(frozen=True)
class PageSubject:
    """Results about one thing: the host, an instance, an engine or the like."""

    name: str
    open: Sequence[Result]
    """Those that fail or are changed, the most severe first."""
    others: Sequence[Result]


@dataclass(frozen=True)
class PageSpeed:
    """A rate of an instance over time."""

    instance: str
    rate: str
    values: Sequence[tuple[str, float]]
    """Date and mean in tokens a second, the oldest first."""
    accepted: float | None
    picture: Markup


@dataclass(frozen=True)
class PageHost:
    """One host."""

    name: str
    report: HostReport | None
    subjects: Sequence[PageSubject]
    speeds: Sequence[PageSpeed]
    box: PicturedBox | None
    picture: Markup
    causes: Mapping[str, str]
    """Id of a cause -> its sentence."""


def describe_box(
    rig: Rig,
    gpus: Sequence[Gpu] = (),
    nodes: Mapping[str, int | None] | None = None,
    memory_kib: int | None = None,
    links: Mapping[tuple[int, int], str] | None = None,
) -> PicturedBox:
    """The facts of a box: its declaration, and its host's reports.

    Args:
        rig: The declaration.
        gpus: The cards that answer.
        nodes: The NUMA node of each PCI address.
        memory_kib: The host's memory.
        links: The connection of two cards, by nvidia-smi's numbers.
    """
    known = {gpu.index: gpu for gpu in gpus}
    cards = []
    for index in range(max(len(rig.cards), len(gpus))):
        gpu = known.get(index)
        if gpu is None:
            cards.append(PicturedCard(index, rig.cards[index].name if index < len(rig.cards) else ""))
            continue
        node = (nodes or {}).get(gpu.address)
        cards.append(PicturedCard(index, gpu.name, node, gpu.used_mib, gpu.total_mib, gpu.width, gpu.width_max))
    return PicturedBox(
        rig.name,
        tuple(cards),
        tuple((first, second, way) for (first, second), way in sorted((links or {}).items()) if first < second),
        tuple(PicturedInstance(one.name, one.variant_name, tuple(one.cards)) for one in rig.instances),
        memory_kib / (1 << 20) if memory_kib else None,
    )


def describe_host(
    name: str, number: int, report: HostReport | None, box: PicturedBox | None, history: BaselineHistory
) -> PageHost:
    """One host's part of a page.

    Args:
        name: The host.
        number: Its place in the page, for ids.
        report: The results of the checks; None on a page without checks.
        box: Its facts; None where it has not answered.
        history: Its measured speeds.
    """
    results: dict[str, list[Result]] = {}
    for one in report.checks if report else ():
        results.setdefault(one.part, []).append(one)
    subjects = [
        PageSubject(
            part or "the host",
            sorted((one for one in found if one.verdict in LISTED_VERDICTS), key=_severity_rank),
            [one for one in found if one.verdict not in LISTED_VERDICTS],
        )
        for part, found in sorted(results.items())
    ]
    return PageHost(
        name,
        report,
        sorted(subjects, key=lambda one: (not one.open, one.name != "the host", one.name)),
        list_speeds(history, f"speed-{number}"),
        box,
        render_box(box, f"box-{number}") if box else Markup(""),
        {one.id: one.headline for one in report.causes} if report else {},
    )


def load_speeds(inventory: str, host: str) -> BaselineHistory:
    """The measured speeds of a host; none where their file cannot be read, which a line tells."""
    try:
        return speed_baselines.load_history(speed_baselines.history_path(inventory, host))
    except speed_baselines.UnreadableHistory as error:
        print_prose(str(error), err=True)
        return BaselineHistory()


def list_speeds(history: BaselineHistory, prefix: str) -> list[PageSpeed]:
    """Each rate of each instance over its complete runs; `prefix` begins the ids of the pictures."""
    made: list[PageSpeed] = []
    for instance, page in sorted(history.instances.items()):
        runs = [run for run in page.runs if run.is_comparable]
        accepted = page.find_accepted(runs[-1]) if runs else None
        for rate in dict.fromkeys(name for run in runs for name in run.rates):
            values = [(run.date, run.rates[rate].mean) for run in runs if rate in run.rates]
            means = [run.rates[rate].mean for run in accepted.runs if rate in run.rates] if accepted else []
            label = f"{prefix}-{len(made)}"
            picture = render_series([value for _, value in values], label, f"{instance}, {rate}")
            mean = sum(means) / len(means) if means else None
            made.append(PageSpeed(instance, rate, values, mean, picture))
    return made


def render_check_page(report: Report, hosts: Sequence[PageHost]) -> str:
    """The page of `check`."""
    return _render("Checks", hosts, made=report.as_of, version=report.rigwright, verdict=report.verdict)


def render_speed_page(hosts: Sequence[PageHost], made: str, version: str) -> str:
    """The page of `bench speed`."""
    return _render("Speed", hosts, made=made, version=version, verdict="")


def render_public_page(markdown: str, made: str, version: str) -> str:
    """The page of a public report: its text, which is Markdown without HTML."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "link", "autolink"])
    # the page has its own first heading, with the version
    _, mark, rest = markdown.partition("\n## ")
    tokens = parser.parse(_finalize(mark + rest if mark else markdown))
    for token in tokens:
        token.tag = {"h1": "h2"}.get(token.tag, token.tag)
    text = Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704 (it escapes all text)
    return _render("Public report", (), made=made, version=version, verdict="", text=text)


def _render(title: str, hosts: Sequence[PageHost], **values: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(ROOT) / "templates" / "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    made = re.sub(r"T(\d\d:\d\d):\d\d(\.\d+)?(Z|\+00:00)$", r" \1 UTC", str(values["made"]))
    return environment.get_template("page.html.j2").render(
        **{
            "title": title,
            "hosts": hosts,
            "describe_waivers": describe_waivers,
            "words": WORDS,
            "text": Markup(""),
            **values,
            "made": made,
        }
    )


def _finalize(value: Any) -> Any:
    """A value for the page: control and direction characters of a host are shown, not obeyed."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "\n".join(map(printable, value.split("\n")))


def _severity_rank(result: Result) -> int:
    return SEVERITY_ORDER.index(result.severity) if result.severity in SEVERITY_ORDER else len(SEVERITY_ORDER)
