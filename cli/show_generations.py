"""`rigwright show generations`: the generations on hosts."""

from __future__ import annotations

import json

import click

from checks.connections import ConnectedHost, connect_inventory, map_hosts
from cli.exit_codes import exit_if_unreached, unreached_rows
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.option_types import JSON_OPTION
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_prose, print_table
from rigwright.serving.serving_state import ObservedServing


def _read_generations(box: ConnectedHost) -> tuple[ObservedServing, str]:
    box = box.prefetch("served", "facts")
    found = box.read_serving_state()
    return found, box.resolve_desired().generation.digest


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@JSON_OPTION
def generations(inventory: str, limit: str | None, as_json: bool) -> None:
    """List the generations on each host.

    `rigwright rollback` serves one of them again. JSON has a row with `"reached": false` for an unreachable host.
    Example: rigwright show generations rig.py
    """
    found, gone = connect_inventory(inventory, limit)
    seen = map_hosts(found, _read_generations)
    rows = [
        {
            "host": box.name,
            "reached": True,
            "number": kept.number,
            "created": kept.created,
            "digest": kept.sealed,
            "current": kept.number == state.current,
            "declared": kept.sealed == wanted,
            "intact": kept.is_intact,
        }
        for box, (state, wanted) in zip(found, seen, strict=True)
        for kept in state.generations
    ]
    if as_json:
        click.echo(json.dumps(rows + unreached_rows(gone), indent=2))
        exit_if_unreached(gone)
        return
    shown: list[tuple[str, ...]] = []
    for row in rows:
        words = [word for word in ("current", "declared") if row[word]] + ([] if row["intact"] else ["changed by hand"])
        number, digest = str(row["number"]), str(row["digest"])[:12]
        shown.append((str(row["host"]), number, str(row["created"]), digest, ", ".join(words)))
    if shown:
        print_table(("host", "generation", "written (UTC)", "digest", ""), shown)
    for box, (state, _) in zip(found, seen, strict=True):
        if not state.generations:
            print_prose(f"{box.name}: no generation: nothing is deployed")
    exit_if_unreached(gone)
