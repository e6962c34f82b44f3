"""How an environment comes to a host: put together as user `nobody` without the network, and judged file by file as
root."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import cast

from rigwright.engines import kind_of, kinds
from rigwright.engines.engine_interface import InstallingKind
from rigwright.envs import environment
from rigwright.envs.environment import Environment, prefix_folder
from rigwright.host.script_output import HostOutput, file_name, tolerant, word
from rigwright.model import installation
from rigwright.model.installation import FILES, MARKER, Installation, Installer, InstallJob
from rigwright.model.instance import Instance, standalone_engines
from rigwright.model.inventory_feature import FactSource
from rigwright.model.rig import Rig
from rigwright.patches.patch import APPLY_PROGRAM_TEXT, collect_digests
from rigwright.render import render

# In the order in which it is put together: nothing of conda packages is run before they are judged.
PARTS = ("conda", "wheels")
LONGEST = 3600  # seconds for each; measured with 189 wheels on two busy cores: 150


class EnvironmentInstaller(Installer):
    """Conda and wheels."""

    # a package that compiles while it runs needs a compiler of C++ in addition to the toolkit's own
    packages = ("g++",)
    program = "python"
    by_installers = True

    def script(self, rig: Rig, made: Installation, job: InstallJob) -> str:
        """templates/envs/install.sh.j2."""
        made = cast("Environment", made)
        inside = prefix_folder(job.target)
        return render(
            "envs/install.sh.j2",
            job=job,
            ledger=rig.roots.ledger,
            plan=environment.render_install_plan(rig.roots, rig.requests, made, job.target),
            make=job.programs["make"],
            judging={name: text for name, text in job.programs.items() if name != "make"},
            steps={part: render_step(made, part, job) for part in PARTS},
            patching=APPLY_PROGRAM_TEXT if made.patches else "",
            largest=made.installed_kib * 1024,
            longest=LONGEST,
            trial=render("envs/trial.sh.j2", uv=f"{job.tools}/bin/uv", prefix=inside, imports=made.imports),
            activate=render("envs/activate.j2", folder=job.target, prefix=inside),
            folder=job.target,
            hidden=rig.roots.state,
            inputs=json.dumps(made.record),
            marker=MARKER,
            files=FILES,
            seen=installation.scan_path(rig.roots, job.target),
        )

    def version(self, rig: Rig, made: Installation) -> tuple[tuple[str, ...], str]:
        """Its Python says its own version and that of the distribution that it is named after."""
        made = cast("Environment", made)
        python = f"{prefix_folder(rig.roots.installation_path(made.folder))}/bin/python"
        return (python, "-I", "-B", "-c", "import sys; print(sys.version)"), f"{made.interpreter.version} "


def render_step(made: Environment, part: str, job: InstallJob) -> str:
    """The script of one part of putting it together; with the wheels comes what changes them."""
    inside = prefix_folder(job.target)
    changed = sorted(collect_digests(made.patches)) if part == PARTS[-1] else []
    folder = f"{inside}/{environment.site_packages(made)}"
    library = folder.rpartition("/")[0]
    return render(
        "envs/make.sh.j2",
        python=f"{job.tools}/bin/python",
        part=part,
        site=folder if changed else "",
        own=f"{inside}/bin/python",
        library=library,
        modules=[f"{folder}/{path}" for path in changed if path.endswith(".py")],
    )


ENVIRONMENTS = EnvironmentInstaller()


def find_installer(instances: tuple[Instance, ...], made: Installation) -> Installer:
    """The installer of an engine or an environment of a rig."""
    engine = standalone_engines(instances).get(made.name)
    return cast("InstallingKind", kinds()[engine.kind]) if engine else ENVIRONMENTS


def _engine_values(rig: Rig) -> Mapping[str, object]:
    programs = {ENVIRONMENTS.program} if rig.envs else set()
    programs |= {kind.program for one in rig.instances if isinstance(kind := kind_of(one), InstallingKind)}
    return {
        "engines": rig.roots.installations,
        "builds": rig.roots.builds,
        "programs": sorted(filter(None, programs)),
        "cpu_features": sorted({one for instance in rig.instances for one in kind_of(instance).cpu_features}),
    }


def _read_engine_facts(output: HostOutput) -> Mapping[str, object]:
    # other names are read as nothing
    return {
        "built_engines": frozenset(filter(None, output.all("engine"))),
        "unfit_engines": frozenset(filter(None, output.all("unfit"))),
        "started_builds": frozenset(filter(None, output.all("building"))),
        "cpu_features": frozenset(output.all("cpu_feature")),
    }


def _list_packages(rig: Rig, system: str) -> Iterator[str]:
    for instance in rig.instances:
        yield from kind_of(instance).needs(system)
    if rig.envs:
        yield from ENVIRONMENTS.packages


ENGINE_FACTS = FactSource(
    "engines",
    "engines/probe.sh.j2",
    _engine_values,
    {
        **{"engine": (tolerant(file_name),), "unfit": (tolerant(file_name),), "building": (tolerant(file_name),)},
        "cpu_feature": (word,),
    },
    _read_engine_facts,
    _list_packages,
)
