"""What `rigwright remove` will take off each host, said before it asks."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from checks.looking import Box, boxes, each
from checks.results import STATUS
from cli.ending import lacking
from cli.tables import say, size
from rigwright.host import ledger
from rigwright.render import render
from rigwright.serving import theirs
from rigwright.serving.stored import models

SHORT = 12  # digits of a commit


def preview(inventory: str, limit: str | None, keep_weights: bool) -> list[str]:
    """Print units, models and packages of every host that can be reached, and of the others why not.

    Returns the hosts that are reached; ends with exit status 3 where none is.
    """
    found, gone = boxes(inventory, limit)
    lacking(gone)
    if not found:
        sys.exit(STATUS["not reached"])
    for box, lines in zip(found, each(found, lambda box: list(listed(box, keep_weights))), strict=True):
        for line in lines or ["nothing of Rigwright's is there"]:
            say(f"{box.name}: {line}")
    return [box.name for box in found]


def listed(box: Box, keep_weights: bool) -> Iterator[str]:
    """What is there of ours, a line a kind."""
    script = render("look/ledger.sh.j2", ledger=box.rig.ledger)
    looked = box.ahead("served", "stored")
    served = looked.served()
    if units := sorted({*served.links, *served.processes}):
        yield f"units: {', '.join(units)}"
    stored = models(looked.stored(), served, box.rig)
    rows = [f"{one.name}@{one.version[:SHORT]} {size(one.size + one.left_over)}" for one in stored]
    if rows:
        total = size(sum(one.size + one.left_over for one in stored))
        yield f"models{', which stay' if keep_weights else ''}: {', '.join(rows)} ({total} in all)"
    yield from box.read(theirs.records, theirs.records_script(box.rig))
    if packages := box.read(ledger.packages, script):
        yield f"packages, where nothing else needs them: {', '.join(packages)}"
