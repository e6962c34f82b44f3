"""Role tools: what a host needs in Python, from hashed wheels."""

from __future__ import annotations

from pyinfra.api import deploy

from rigwright.network import network
from rigwright.render import render
from rigwright.rig import Rig
from rigwright.tools import Tools
from roles.operations.jobs import job, sent


@deploy("Tools")
def tools(rig: Rig, wanted: Tools) -> None:
    """Install the environment beside older ones."""
    unit, folder = f"rw-job-{wanted.folder.rpartition('/')[2]}", f"{rig.roots.state}/jobs"
    job(
        name="Install host tools",
        unit=unit,
        script=render(
            "tools/install.sh.j2",
            tools=wanted,
            network=network(rig),
            ledger=rig.ledger,
            sent=sent(folder, unit) if rig.bundle else "",
        ),
        test=f"[ -e {wanted.marker} ]",
        folder=folder,
        files=rig.bundle.files(rig.tools) if rig.bundle else (),
    )
