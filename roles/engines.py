"""Role engines: what serves, installed by its kind's script in a folder of its own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from pyinfra.api import deploy

from rigwright.delivery.fetching import spec
from rigwright.delivery.tools import Tools, installers
from rigwright.engines import apart
from rigwright.engines.installer import installer
from rigwright.envs import spent
from rigwright.model import trees
from rigwright.model.installation import MARKER, Installation, Job
from rigwright.model.rig import Rig
from rigwright.plan.desired import Desired
from rigwright.render import render
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import INSTALLERS
from rigwright.weights.records import PACKAGE
from rigwright.weights.records import programs as programs_folder
from roles.fetching import brought, dropped
from roles.operations.jobs import job
from roles.tools import environment

SUPERVISOR = Path(__file__).with_name("operations") / "supervisor.py"
"""The program that ends a step at limits that systemd does not know."""

# What puts environments together on hosts, and judges them: sent there as texts.
PROGRAMS = Path(__file__).with_name("envs") / "host"


@deploy("Engines")
def engines(wanted: Desired) -> None:
    """Install each in a folder named by the digest of all inputs, beside older ones."""
    rig, facts = wanted.rig, wanted.facts
    tools = installers(rig, facts)
    declared = list(wanted.installations.values())
    missing = [made for made in declared if made.folder not in facts.built_engines]
    for made in declared:
        by = tools if installer(rig, made).by_installers else wanted.tools
        if made in missing:
            if by is tools:
                environment(rig, tools, rig.installers, "environment installer", alone=f"{INSTALLERS}-")
            files = [one for one in made.artefacts if not one.is_written]
            title = f"Fetch {installer(rig, made).pieces} of {made.name}"
            brought(rig, files, title, unless=installed_test(rig, made), python=f"{by.folder}/bin/python")
            missing.remove(made)
        _installed(rig, made, by, () if rig.share else spent.only_of(made, missing))
    left = spent.left(rig, declared, facts.built_engines, facts.weight_bytes)
    unlocked = spent.unlocked(rig, declared, facts.weight_bytes)
    if left or unlocked:
        dropped(rig, left, "Remove downloaded packages", unlocked)


def _installed(rig: Rig, made: Installation, tools: Tools, done_with: Sequence[Artefact] = ()) -> None:
    unit = f"rw-job-{made.folder}"
    job(
        name=f"Install {made.name}",
        unit=unit,
        script=script(rig, made, tools, unit, done_with),
        test=installed_test(rig, made),
        folder=rig.jobs,
    )


def installed_test(rig: Rig, made: Installation) -> str:
    """Shell condition that holds where an engine is whole, root's, and everybody's to run."""
    folder = shlex.quote(rig.installed(made.folder))
    unfit = render("engines/unfit.sh.j2", programs=list(filter(None, [installer(rig, made).program])))
    return f"{unfit} [ -s {folder}/{MARKER} ] && ! unfit {folder}"


def script(rig: Rig, made: Installation, tools: Tools, unit: str, done_with: Sequence[Artefact] = ()) -> str:
    """The job's script.

    Args:
        rig: The rig.
        made: What is installed.
        tools: The host's Python tools, or what puts environments together.
        unit: The job's.
        done_with: Packages that are removed once it is whole.
    """
    one = installer(rig, made)
    place = Job(
        target=rig.installed(made.folder),
        work=f"{rig.builds}/{made.folder}",
        log=f"{rig.jobs}/{unit}/log",
        tools=tools.folder,
        programs={path.stem: path.read_text() for path in PROGRAMS.glob("*.py")},
    )
    body = one.script(rig, made, place)
    return render(
        "engines/install.sh.j2",
        job=place,
        record=trees.record(rig, place.target),
        unit=unit,
        work=place.work,
        seen={"work": apart.WORK, "script": apart.SCRIPT},
        offline=apart.options(rig.roots),
        limits=apart.LIMITS,
        supervisor=SUPERVISOR.read_text(),
        marker=MARKER,
        program=one.program,
        body=body,
        spec=spec(rig, done_with) if done_with else "",
        programs=programs_folder(rig),
        package=PACKAGE,
    )
