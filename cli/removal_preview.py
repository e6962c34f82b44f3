"""The removals of `rigwright remove` on each host, shown before it asks.

The packages in the ledger, the list of Rigwright's own objects on a host.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from checks.connections import ConnectedHost, map_inventory
from checks.results import STATUS
from cli.exit_codes import print_unreached
from cli.tables import format_size, print_prose
from rigwright.host import script_output
from rigwright.host.script_output import matching, tolerant
from rigwright.render import render
from rigwright.serving import takeover
from rigwright.serving.weight_inventory import list_models

SCHEMA: script_output.Schema = {"package": (tolerant(matching(r"[a-z0-9][a-z0-9+.:-]{0,200}", "a package's name")),)}
"""The output of templates/look/ledger.sh.j2."""


def parse_ledger_packages(output: Iterable[str]) -> tuple[str, ...]:
    """Those that a host has because of us, by name.

    Raises:
        ValueError: it told something else.
    """
    return tuple(filter(None, script_output.parse_output(output, SCHEMA).all("package")))


SHORT = 12  # digits of a commit


def print_preview(inventory: str, limit: str | None, keep_weights: bool) -> list[str]:
    """Print units, models and packages of every host that can be reached, and of the others why not.

    Returns the hosts that are reached; ends with exit status 3 where none is.
    """
    found, gone = map_inventory(inventory, limit, lambda box: list(describe_removal(box, keep_weights)))
    print_unreached(gone)
    if not found:
        sys.exit(STATUS["not reached"])
    for box, lines in found:
        for line in lines or ["Rigwright installed nothing there"]:
            print_prose(f"{box.name}: {line}")
    return [box.name for box, _ in found]


def describe_removal(box: ConnectedHost, keep_weights: bool) -> Iterator[str]:
    """Rigwright's own objects there, a line a kind."""
    script = render("look/ledger.sh.j2", ledger=box.rig.roots.ledger)
    looked = box.prefetch("served", "stored")
    served = looked.read_serving_state()
    if units := sorted({*served.links, *served.processes}):
        yield f"units: {', '.join(units)}"
    stored = list_models(looked.read_weight_inventory(), served, box.rig.roots, box.rig.instances)
    rows = [f"{one.name}@{one.version[:SHORT]} {format_size(one.size + one.left_over)}" for one in stored]
    if rows:
        total = format_size(sum(one.size + one.left_over for one in stored))
        yield f"models{', which stay' if keep_weights else ''}: {', '.join(rows)} ({total} in all)"
    yield from box.run_and_parse(takeover.parse_takeover_records, takeover.render_records_query(box.rig.roots))
    if packages := box.run_and_parse(parse_ledger_packages, script):
        yield f"packages, unless something else needs them: {', '.join(packages)}"
