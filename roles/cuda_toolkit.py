"""Role cuda_toolkit: what engines for cards are compiled with, from hashed wheels."""

from __future__ import annotations

import json
import shlex

from pyinfra.api import deploy

from rigwright.delivery.tools import Tools
from rigwright.model import trees
from rigwright.model.nvidia.toolkit import Toolkit
from rigwright.model.rig import Rig
from rigwright.patches.patch import PROGRAM
from rigwright.plan.desired import Desired
from rigwright.render import render
from rigwright.supply.root_programs import CUDA
from roles.fetching import wheel_values, wheels_folder
from roles.operations.jobs import job
from roles.tools import load_judges


@deploy("CUDA toolkit")
def cuda_toolkit(wanted: Desired) -> None:
    """Install ours beside older ones. Where the operator has a toolkit, that is used as it is."""
    if wanted.toolkit and wanted.toolkit.folder:
        _installed(wanted.rig, wanted.toolkit, wanted.tools)


def _installed(rig: Rig, wanted: Toolkit, tools: Tools) -> None:
    unit, folder = f"rw-job-{wanted.folder.rpartition('/')[2]}", rig.jobs
    job(
        name=f"Install CUDA toolkit {wanted.version}",
        unit=unit,
        script=render(
            "cuda_toolkit/install.sh.j2",
            toolkit=wanted,
            patching=PROGRAM if wanted.patches else "",
            patches=json.dumps({"patches": [one.plan for one in wanted.patches]}),
            tools=tools.folder,
            ledger=rig.ledger,
            record=trees.record(rig, wanted.folder),
            judging=load_judges(),
            requested=rig.requests.get(CUDA, ()),
            **wheel_values(rig, rig.cuda, unit, tools.folder),
        ),
        test=f"[ -s {shlex.quote(wanted.marker)} ]",
        folder=folder,
        watch=f"files {wheels_folder(rig, unit)}/.progress.json",
        files=rig.bundle.files(rig.cuda) if rig.bundle else (),
    )
