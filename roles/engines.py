"""Role engines: each engine, installed by its kind's script in a folder of its own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rigwright.engines import unprivileged_steps
from rigwright.engines.environment_installer import find_installer
from rigwright.envs import gc
from rigwright.fetch_job_spec import ToolEnvironment, installer_tools, render_fetch_spec
from rigwright.local_files import read_program
from rigwright.model import installation
from rigwright.model.installation import MARKER, Installation, InstallJob
from rigwright.model.rig import Rig
from rigwright.render import render
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import INSTALLERS
from rigwright.weights.verification import PACKAGE, weights_program_folder
from roles.artefact_fetch import drop_artefacts, ensure_fetched
from roles.operations.jobs import ensure_job
from roles.python_tools import install_environment
from roles.rig_lookup import DeployContext, role

SUPERVISOR = Path(__file__).with_name("operations") / "job_step_limits.py"
"""The program that ends a step at limits that systemd does not know."""

# The programs that put environments together on hosts, and judge them: sent there as texts.
PROGRAMS = Path(__file__).with_name("envs") / "host"


@role("Engines")
def engines(context: DeployContext) -> None:
    """Install each in a folder named by the digest of all inputs, beside older ones."""
    rig, facts, target = context.rig, context.facts, context.target
    tools = installer_tools(rig.roots, rig.installers, facts)
    declared = list(target.installations.values())
    missing = [made for made in declared if made.folder not in facts.built_engines]
    for made in declared:
        by = tools if find_installer(rig.instances, made).by_installers else target.tools
        if made in missing:
            if by is tools:
                install_environment(rig, tools, rig.installers, "environment installer", alone=f"{INSTALLERS}-")
            files = [one for one in made.artefacts if not one.is_written]
            title = f"Fetch {find_installer(rig.instances, made).artefact_noun} of {made.name}"
            ensure_fetched(rig, files, title, unless=render_installed_test(rig, made), python=f"{by.folder}/bin/python")
            missing.remove(made)
        _install_engine(rig, made, by, () if rig.share else gc.find_unshared(made, missing))
    left = gc.find_leftovers(rig.roots, rig.share, declared, facts.built_engines, facts.weight_bytes)
    unlocked = gc.find_undeclared(rig.roots, declared, facts.weight_bytes)
    if left or unlocked:
        drop_artefacts(rig, left, "Remove downloaded packages", unlocked)


def _install_engine(rig: Rig, made: Installation, tools: ToolEnvironment, done_with: Sequence[Artefact] = ()) -> None:
    unit = f"rw-job-{made.folder}"
    ensure_job(
        name=f"Install {made.name}",
        unit=unit,
        script=render_install_script(rig, made, tools, unit, done_with),
        test=render_installed_test(rig, made),
        folder=rig.roots.jobs,
    )


def render_installed_test(rig: Rig, made: Installation) -> str:
    """Shell condition that holds where an engine is whole, root's, and everybody's to run."""
    folder = shlex.quote(rig.roots.installation_path(made.folder))
    unfit = render("engines/unfit.sh.j2", programs=list(filter(None, [find_installer(rig.instances, made).program])))
    return f"{unfit} [ -s {folder}/{MARKER} ] && ! unfit {folder}"


def render_install_script(
    rig: Rig, made: Installation, tools: ToolEnvironment, unit: str, done_with: Sequence[Artefact] = ()
) -> str:
    """The job's script.

    Args:
        rig: The rig.
        made: The installation.
        tools: The host's Python tools, or what puts environments together.
        unit: The job's.
        done_with: Packages that are removed once it is whole.
    """
    one = find_installer(rig.instances, made)
    place = InstallJob(
        target=rig.roots.installation_path(made.folder),
        work=f"{rig.roots.builds}/{made.folder}",
        log=f"{rig.roots.jobs}/{unit}/log",
        tools=tools.folder,
        programs={path.stem: read_program(path) for path in PROGRAMS.glob("*.py")},
    )
    body = one.script(rig, made, place)
    return render(
        "engines/install.sh.j2",
        job=place,
        record=installation.record_path(rig.roots, place.target),
        unit=unit,
        work=place.work,
        seen={"work": unprivileged_steps.WORK, "script": unprivileged_steps.SCRIPT},
        offline=unprivileged_steps.systemd_run_options(rig.roots),
        limits=unprivileged_steps.LIMITS,
        supervisor=read_program(SUPERVISOR),
        marker=MARKER,
        program=one.program,
        body=body,
        spec=render_fetch_spec(rig.roots, rig.accounts, rig.network, rig.fs_verity, done_with) if done_with else "",
        programs=weights_program_folder(rig.roots),
        package=PACKAGE,
    )
