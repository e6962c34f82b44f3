"""Removal: everything that we put on a host is taken off, and nothing else."""

from __future__ import annotations

from pyinfra.api import deploy

from rigwright.generation import JOURNAL
from rigwright.network import authority_path
from rigwright.render import render
from rigwright.rig import Rig
from rigwright.serving import STARTED_FROM, UNITS
from roles.operations.generations import look
from roles.operations.jobs import job


@deploy("Removal")
def removal(rig: Rig, keep_weights: bool) -> None:
    """Stop and remove all that the ledger and our own folders hold."""
    found = look(rig)
    roots = rig.roots
    script = render(
        "removal/remove.sh.j2",
        units=sorted({*found.links, *found.processes}),
        unit_folder=UNITS,
        trees=[
            *(f"{roots.config}/{name}" for name in ("current", "generations", "credentials", JOURNAL)),
            *(authority_path(rig), f"{roots.software}/engines"),
            *(f"{roots.state}/{name}" for name in ("jobs", "build", "weights")),
        ],
        software=roots.software,
        ledger=rig.ledger,
        started_from=STARTED_FROM,
        keep_weights=keep_weights,
    )
    # what it says is kept outside of what it removes
    gone = f"! grep -qv '^\\(file\\|dir\\) ' {rig.ledger}" if keep_weights else f"[ ! -e {rig.ledger} ]"
    job(name="Remove", unit="rw-job-remove", script=script, test=gone, folder="/run")
