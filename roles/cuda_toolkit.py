"""Role cuda_toolkit: the compilers of engines for cards, from hashed wheels."""

from __future__ import annotations

import json
import shlex

from rigwright.fetch_job_spec import ToolEnvironment
from rigwright.model import installation
from rigwright.model.nvidia_tables import Toolkit
from rigwright.model.rig import Rig
from rigwright.patches.patch import APPLY_PROGRAM_TEXT
from rigwright.render import render
from rigwright.supply.root_programs import CUDA
from roles.artefact_fetch import job_wheels_folder, render_wheel_values
from roles.operations.jobs import ensure_job
from roles.python_tools import load_wheel_validators
from roles.rig_lookup import DeployContext, role


@role("CUDA toolkit")
def cuda_toolkit(context: DeployContext) -> None:
    """Install ours beside older ones. Where the operator has a toolkit, that is used as it is."""
    target = context.target
    if target.toolkit and target.toolkit.folder:
        _install_cuda_toolkit(target.rig, target.toolkit, target.tools)


def _install_cuda_toolkit(rig: Rig, wanted: Toolkit, tools: ToolEnvironment) -> None:
    unit, folder = f"rw-job-{wanted.folder.rpartition('/')[2]}", rig.roots.jobs
    ensure_job(
        name=f"Install CUDA toolkit {wanted.version}",
        unit=unit,
        script=render(
            "cuda_toolkit/install.sh.j2",
            toolkit=wanted,
            patching=APPLY_PROGRAM_TEXT if wanted.patches else "",
            patches=json.dumps({"patches": [one.plan for one in wanted.patches]}),
            tools=tools.folder,
            ledger=rig.roots.ledger,
            record=installation.record_path(rig.roots, wanted.folder),
            judging=load_wheel_validators(),
            requested=rig.requests.get(CUDA, ()),
            **render_wheel_values(rig, rig.toolkit.wheels, unit, tools.folder),
        ),
        test=f"[ -s {shlex.quote(wanted.marker)} ]",
        folder=folder,
        watch=f"files {job_wheels_folder(rig, unit)}/.progress.json",
        files=rig.bundle.files(rig.toolkit.wheels) if rig.bundle else (),
    )
