"""Programs of installations: versions, and kernels that they compiled."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.processes import TRIES
from checks.survey.section import Section, SurveyScope
from rigwright.engines import kind_of, unprivileged_steps
from rigwright.engines.environment_installer import find_installer
from rigwright.model.instance import CACHES, WARM


@dataclass(frozen=True)
class ProgramOutput:
    """The output of one of them."""

    status: int
    """Its exit status; -1 where it was ended."""
    text: str
    """The end of both its outputs."""


def version_question(name: str) -> str:
    """The command that asks an engine or environment for its version."""
    return f"version of {name}"


def machine_code_question(name: str) -> str:
    """The command that lists the machine code in an engine."""
    return f"machine code of {name}"


COMPILER = "compiler"


def _program_questions(scene: SurveyScope) -> dict[str, list[str]] | None:
    rig, desired = scene.rig, scene.desired
    commands: dict[str, tuple[str, ...]] = {}
    for name, made in desired.installations.items():
        one = find_installer(rig.instances, made)
        commands[version_question(name)] = one.version(rig, made)[0]
        commands[machine_code_question(name)] = one.machine_code(rig, made)[0]
    if desired.toolkit:
        commands[COMPILER] = (f"{desired.toolkit.root}/bin/nvcc", "--version")
    asked = {}
    for number, (name, words) in enumerate(commands.items()):
        if words:
            run, *rest = unprivileged_steps.unprivileged_command(rig.roots, words)
            # else it would be a foreign process that runs an engine's program
            asked[name] = [run, f"--unit={TRIES}program-{number}", *rest]
    return asked or None


PROGRAMS: Section[dict[str, ProgramOutput]] = Section(
    "programs",
    dict[str, ProgramOutput],
    _program_questions,
    limit=30.0,
    blind="reports that differ for users other than `nobody`",
    phase="probed",
    start_order=3,
)


@dataclass(frozen=True)
class CompileCacheFolder:
    """The folder of what an instance has compiled with an installation."""

    owner: str
    """Empty where there is none."""
    mode: int
    others: list[str]
    """The other owners of files in it."""


@dataclass(frozen=True)
class CompileCaches:
    """All of it."""

    own: dict[str, CompileCacheFolder]
    """By its path."""
    loose: list[str]
    """Paths that others than root can change, of the folders above those and of what root keeps for others."""


def _compilation_questions(scene: SurveyScope) -> dict[str, list[str]] | None:
    rig, made = scene.rig, scene.desired.installations
    services = {one.name: kind_of(one).service(rig, one, made[one.installed_as]) for one in rig.instances}
    own = [service.cache for service in services.values() if service.cache]
    above = [one.cache_folder for one in rig.instances if services[one.name].cache]
    return {"own": own, "above": [CACHES, *above], "warm": [WARM]} if own else None


COMPILED: Section[CompileCaches] = Section(
    "compile_caches",
    CompileCaches,
    _compilation_questions,
    blind="code that an engine has compiled in memory only",
    phase="probed",
    start_order=10,
)
