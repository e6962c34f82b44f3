"""Role engines: what serves, installed by its kind's script in a folder of its own."""

from __future__ import annotations

import shlex

from pyinfra.api import deploy

from rigwright.declaration.rig import Rig
from rigwright.engines import apart, kinds
from rigwright.engines.kind import MARKER, Installation, Job, Kind
from rigwright.host.plan import Desired
from rigwright.render import render
from rigwright.supply.tools import Tools
from roles.operations.jobs import job, sent


@deploy("Engines")
def engines(wanted: Desired) -> None:
    """Install each in a folder named by the digest of all inputs, beside older ones."""
    for made in wanted.installations.values():
        _installed(wanted.rig, made, wanted.tools)


def _installed(rig: Rig, made: Installation, tools: Tools) -> None:
    unit = f"rw-job-{made.folder}"
    job(
        name=f"Install {made.name}",
        unit=unit,
        script=script(rig, made, tools, unit),
        test=installed_test(rig, made),
        folder=rig.jobs,
        files=rig.bundle.files(list(made.artefacts)) if rig.bundle else (),
        present=f"[ -s {shlex.quote(f'{rig.installed(made.folder)}/{MARKER}')} ]",
    )


def installed_test(rig: Rig, made: Installation) -> str:
    """Shell condition that holds where an engine is whole, root's, and everybody's to run."""
    folder = shlex.quote(rig.installed(made.folder))
    unfit = render("engines/unfit.sh.j2", programs=[kind(rig, made).program])
    return f"{unfit} [ -s {folder}/{MARKER} ] && ! unfit {folder}"


def script(rig: Rig, made: Installation, tools: Tools, unit: str) -> str:
    """The job's script."""
    place = Job(
        target=rig.installed(made.folder),
        work=f"{rig.builds}/{made.folder}",
        log=f"{rig.jobs}/{unit}/log",
        tools=tools.folder,
        sent=sent(rig.jobs, unit) if rig.bundle else "",
    )
    one = kind(rig, made)
    body = one.script(rig, made, place)
    return render(
        "engines/install.sh.j2",
        job=place,
        unit=unit,
        work=place.work,
        seen={"work": apart.WORK, "script": apart.SCRIPT},
        online=apart.options(rig.roots, online=True),
        offline=apart.options(rig.roots),
        marker=MARKER,
        program=one.program,
        body=body,
    )


def kind(rig: Rig, made: Installation) -> Kind:
    """The kind of an installation's engine."""
    return kinds()[rig.engines[made.name].kind]
