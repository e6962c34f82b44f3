"""Role tools: what a host needs in Python, from hashed wheels."""

from __future__ import annotations

from pyinfra.api import deploy

from rigwright.network import network
from rigwright.render import render
from rigwright.rig import Rig
from rigwright.tools import Tools
from roles.operations.jobs import job


@deploy("Tools")
def tools(rig: Rig, wanted: Tools) -> None:
    """Install the environment beside older ones."""
    folder = wanted.folder.rpartition("/")[2]
    job(
        name="Install host tools",
        unit=f"rw-job-{folder}",
        script=render("tools/install.sh.j2", tools=wanted, network=network(rig), ledger=rig.ledger),
        test=f"[ -e {wanted.marker} ]",
        folder=f"{rig.roots.state}/jobs",
    )
