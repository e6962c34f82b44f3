"""Role tools: the Python packages that a host needs, from hashed wheels."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rigwright.fetch_job_spec import ToolEnvironment
from rigwright.local_files import read_program
from rigwright.model import installation
from rigwright.model.rig import Rig
from rigwright.render import render
from rigwright.supply.lock import Artefact
from roles.artefact_fetch import install_fetch_programs, job_wheels_folder, render_wheel_values
from roles.operations.jobs import ensure_job
from roles.rig_lookup import DeployContext, role

# The program that judges wheels on hosts before one is installed.
_PROGRAMS = Path(__file__).with_name("envs") / "host"
_JUDGING = ("lists", "plugins", "tree", "wheels")


def load_wheel_validators() -> Mapping[str, str]:
    """Name -> text of the programs that judge wheels."""
    return {name: read_program(_PROGRAMS / f"{name}.py") for name in _JUDGING}


@role("Tools")
def tools(context: DeployContext) -> None:
    """Install the host's tools beside older ones."""
    install_fetch_programs(context.rig)
    install_environment(context.rig, context.target.tools, context.rig.tools, "host tools")


def install_environment(
    rig: Rig, wanted: ToolEnvironment, wheels: Sequence[Artefact], title: str, alone: str = "", works: str = ""
) -> None:
    """Install an environment.

    Args:
        rig: The rig.
        wanted: The environment.
        wheels: Its wheels.
        title: Its name, in the operator's words.
        alone: The prefix of the names of its folders, where older ones are of no use.
        works: A shell command that succeeds where it works, for one that is named by its packages alone.
    """
    groups = {str(row.group): None for row in wheels}
    unit, folder = f"rw-job-{wanted.folder.rpartition('/')[2]}", rig.roots.jobs
    ensure_job(
        name=f"Install {title}",
        unit=unit,
        script=render(
            "tools/install.sh.j2",
            tools=wanted,
            title=title,
            alone=f"{rig.roots.software}/{alone}" if alone else "",
            ledger=rig.roots.ledger,
            record=installation.record_path(rig.roots, wanted.folder),
            judging=load_wheel_validators(),
            requested=[one for group in groups for one in rig.requests.get(group, ())],
            **render_wheel_values(rig, wheels, unit, wanted.folder),
        ),
        test=f"[ -e {shlex.quote(wanted.marker)} ]" + (f" && {works}" if works else ""),
        folder=folder,
        watch=f"files {job_wheels_folder(rig, unit)}/.progress.json",
        files=rig.bundle.files(wheels) if rig.bundle else (),
    )
