"""Ladders of load as they are told: in 80 columns, as JSON, and as rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from bench.ladder_figures import LadderStep, render_csv
from bench.ladder_run import LadderPlan, LadderSubject
from cli.output_file import write_output
from cli.tables import print_paragraph, print_prose, print_table
from rigwright.problems import format_count

SCHEMA = 1
TIMES = (
    ("TTFT", "median_ttft_ms", 0),
    ("P99", "p99_ttft_ms", 0),
    ("TPOT", "median_tpot_ms", 1),
    ("P99", "p99_tpot_ms", 1),
    ("ITL P99", "p99_itl_ms", 1),
    ("latency", "mean_e2el_ms", 0),
    ("P50", "median_e2el_ms", 0),
    ("P90", "p90_e2el_ms", 0),
    ("P99", "p99_e2el_ms", 0),
)
WIDTH = 80  # columns: of a terminal as it opens


@dataclass
class LoadLadder:
    """Instances of a box that were loaded together."""

    host: str
    plan: LadderPlan
    subjects: list[LadderSubject]
    date: str
    ended: str = ""
    """Why it is not whole; empty for one that is."""
    steps: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether every step was made, and nothing failed."""
        return not self.ended and not any(rung.failure_count for one in self.subjects for rung in one.rungs)

    def step_rows(self) -> list[dict[str, object]]:
        """A row for each step of each instance, for programs."""
        return [
            {
                **{"host": self.host, "instance": one.instance.name, "workload": self.plan.workload.name},
                **self.step_figures(rung),
                "contaminated": rung.is_contaminated,
            }
            for one in self.subjects
            for rung in one.rungs
        ]

    def step_figures(self, rung: LadderStep) -> dict[str, float | None]:
        """All of a step, `nominal_request_throughput` after the rate that it is told apart from."""
        found: dict[str, float | None] = {}
        for name, value in rung.figures().items():
            found[name] = value
            if name == "request_throughput":
                found["nominal_request_throughput"] = rung.nominal_throughput(self.plan.seconds)
        return found

    def as_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "host": self.host,
            "date": self.date,
            "workload": self.plan.workload.name,
            "output_tokens": self.plan.workload.max_tokens,
            "seconds": self.plan.seconds,
            "thinking": self.plan.thinking,
            "complete": not self.ended,
            "ended": self.ended,
            "instances": [
                {
                    "instance": one.instance.name,
                    "variant": one.instance.variant_name,
                    "max_num_seqs": one.capacity,
                    "saturation": {"streams": one.saturation.streams, "limit": one.saturation.limit},
                    "said": [one.saturation.said, *one.queues],
                    "steps": [
                        {**self.step_figures(rung), "contaminated": rung.is_contaminated, "errors": dict(rung.errors)}
                        for rung in one.rungs
                    ],
                }
                for one in self.subjects
            ],
        }


def print_ladder(ladder: LoadLadder) -> None:
    """Print tables, a plot, and where more streams bring no more."""
    thinking = "as it is" if ladder.plan.thinking else "off"
    for one in ladder.subjects:
        print_prose(
            f"\n{ladder.host}: {one.instance.name} ({one.instance.variant_name}), {ladder.plan.workload.name}, "
            f"{ladder.plan.seconds:g} s a step, thinking {thinking}"
        )
        if one.rungs:
            columns = ("streams", "req/s", "QPS", "tokens/s", "failed", "running", "waiting", "KV %", "")
            print_table(columns, [_rate_cells(rung, ladder.plan) for rung in one.rungs])
            seconds = f"{ladder.plan.seconds:g} s"
            print_prose(f"req/s: answers by the time until the last one; QPS: by {seconds}, as write-ups count\n")
            print_table(("streams", *(title for title, _, _ in TIMES)), [_time_cells(rung) for rung in one.rungs])
            print_prose("in ms; TTFT and TPOT: P50, latency: mean\n")
            plotted = [
                (str(rung.streams), (rung.request_throughput, rung.figures()["p99_e2el_ms"] or 0.0))
                for rung in one.rungs
            ]
            click.echo("\n".join(render_bars(("streams", "requests/s", "latency P99, ms"), plotted)))
            for said in (one.saturation.said, *one.queues):
                print_paragraph(said, hang=4)
        for rung in one.rungs:
            for said, count in rung.errors.items():
                print_paragraph(f"{format_count(rung.streams, 'stream')}: {count} x {said}", hang=4)
    if ladder.ended:
        print_prose(f"not complete: {ladder.ended}, after {ladder.steps} of {len(ladder.plan.streams)} steps")


def _rate_cells(rung: LadderStep, plan: LadderPlan) -> tuple[str, ...]:
    state = [("" if value is None else f"{value:.0f}") for value in (rung.running, rung.waiting)]
    kv = "" if rung.kv is None else f"{100 * rung.kv:.0f}"
    notes = [f"{rung.refused} refused"] if rung.refused else []
    notes += ["others asked, too"] if rung.is_contaminated else []
    requests = (f"{rung.request_throughput:.1f}", f"{rung.nominal_throughput(plan.seconds):.1f}")
    tokens = f"{rung.figures()['output_throughput']:.0f}"
    return (str(rung.streams), *requests, tokens, str(rung.failure_count), *state, kv, ", ".join(notes))


def _time_cells(rung: LadderStep) -> tuple[str, ...]:
    figures = rung.figures()
    return (str(rung.streams), *(f"{figures[name]:.{digits}f}" for _, name, digits in TIMES))


def write_ladders(made: Sequence[LoadLadder], json_file: str | None, csv_file: str | None) -> None:
    """Write ladders for programs."""
    if json_file:
        told = {"schema": SCHEMA, "ladders": [one.as_json() for one in made]}
        write_output(json_file, json.dumps(told, indent=2) + "\n")
    if csv_file:
        write_output(csv_file, render_csv([row for one in made for row in one.step_rows()]))


def render_bars(titles: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]], width: int = WIDTH) -> list[str]:
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
