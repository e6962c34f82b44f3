"""Role engines: what serves, installed by its kind's script in a folder of its own."""

from __future__ import annotations

import shlex

from pyinfra.api import deploy

from rigwright.declaration.rig import INSTALLERS, Rig
from rigwright.engines import apart
from rigwright.engines.kind import MARKER, Installation, Job
from rigwright.envs.installer import TREE, installer
from rigwright.host.plan import Desired
from rigwright.render import render
from rigwright.supply.lock import Artefact
from rigwright.supply.tools import Tools
from rigwright.supply.tools import installers as installers_of
from roles.fetching import brought, dropped, programs
from roles.operations.jobs import job, sent
from roles.tools import environment


@deploy("Engines")
def engines(wanted: Desired) -> None:
    """Install each in a folder named by the digest of all inputs, beside older ones."""
    rig, facts = wanted.rig, wanted.facts
    installers = installers_of(rig, facts)
    for made in wanted.installations.values():
        if not installer(rig, made).travels:
            _installed(rig, made, wanted.tools)
            continue
        if made.folder not in facts.built_engines:
            environment(rig, installers, rig.installers, "what puts environments together", alone=f"{INSTALLERS}-")
            programs(rig)
            there, python = installed_test(rig, made), f"{installers.folder}/bin/python"
            brought(rig, made.artefacts, f"Fetch packages of {made.name}", unless=there, python=python)
        _installed(rig, made, installers)
    if installed := _done_with(wanted):
        programs(rig)
        dropped(rig, installed, "Remove packages that are installed")


def _done_with(wanted: Desired) -> list[Artefact]:
    """The packages of environments that are on the host now, or will be then, and that nobody fetches from it."""
    if wanted.rig.share:
        return []
    facts, models = wanted.facts, wanted.rig.roots.models
    found: dict[str, Artefact] = {}
    for made in wanted.installations.values():
        if installer(wanted.rig, made).travels:
            found |= {
                one.package_path: one
                for one in made.artefacts
                if made.folder not in facts.built_engines or f"{models}/{one.package_path}" in facts.weight_bytes
            }
    return list(found.values())


def _installed(rig: Rig, made: Installation, tools: Tools) -> None:
    unit = f"rw-job-{made.folder}"
    sent_along = rig.bundle and not installer(rig, made).travels
    job(
        name=f"Install {made.name}",
        unit=unit,
        script=script(rig, made, tools, unit),
        test=installed_test(rig, made),
        folder=rig.jobs,
        files=rig.bundle.files(list(made.artefacts)) if rig.bundle and sent_along else (),
        present=f"[ -s {shlex.quote(f'{rig.installed(made.folder)}/{MARKER}')} ]",
    )


def installed_test(rig: Rig, made: Installation) -> str:
    """Shell condition that holds where an engine is whole, root's, and everybody's to run."""
    folder = shlex.quote(rig.installed(made.folder))
    unfit = render("engines/unfit.sh.j2", programs=[installer(rig, made).program], record=TREE)
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
    one = installer(rig, made)
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
        again=one.again(rig, made, place.target),
        body=body,
    )
