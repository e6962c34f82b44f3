"""`rigwright check --history`: the boxes' own findings, and their times of change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone

import click

from checks.connections import ConnectedHost, map_inventory
from cli.exit_codes import exit_if_unreached, unreached_rows
from cli.tables import print_prose, print_table, style_text
from rigwright.monitoring.self_check import history_paths
from rigwright.monitoring.self_check_history import SelfCheckEvent, parse_history
from rigwright.problems import printable
from rigwright.render import render

WIDTH = 80  # columns


def _read_history(box: ConnectedHost) -> tuple[SelfCheckEvent, ...]:
    script = render("look/self_check.sh.j2", files=history_paths(box.rig.roots))
    return box.run_and_parse(parse_history, script)


def print_history(inventory: str, limit: str | None, *, as_json: bool) -> None:
    """Print the history of every host, the oldest change first; exit with 3 where a host cannot be reached."""
    found, gone = map_inventory(inventory, limit, _read_history)
    histories = {box.name: one for box, one in found}
    if as_json:
        rows = [
            {"host": name, "reached": True, "events": [one.model_dump() for one in events]}
            for name, events in histories.items()
        ]
        click.echo(json.dumps(rows + unreached_rows(gone), indent=2))
    else:
        print_events(histories)
    exit_if_unreached(gone)


def print_events(histories: Mapping[str, Sequence[SelfCheckEvent]]) -> None:
    """Print a table for each host."""
    for name, events in histories.items():
        if not events:
            print_prose(f"{name}: no run yet: `rigwright deploy` starts a timer for it")
            continue
        if len(histories) > 1:
            click.echo(style_text(name, bold=True))
        rows = [row for event in events for row in describe_event(event)]
        print_table(("when (UTC)", "check", "change", "found"), [*rows], broken="found")


def describe_event(event: SelfCheckEvent) -> Iterator[tuple[str, str, str, str]]:
    """The rows of a line: each change, or that the run was skipped or the first one."""
    when = datetime.fromtimestamp(event.time, timezone.utc).strftime("%Y-%m-%d %H:%M")
    changes = [(one, "fails") for one in event.failed] + [(one, "ok again") for one in event.recovered]
    changes += [(one, "waived") for one in event.waived]
    for change, word in changes:
        part = f"{change.part}: " if change.part else ""
        yield when, printable(change.check), word, printable(part + change.text)
    if event.outcome == "skipped":
        yield when, "", "skipped", printable(event.reason)
    elif not changes:
        yield when, "", "ok", "first run"
