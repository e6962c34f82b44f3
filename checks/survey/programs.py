"""What programs of installations say of themselves, run as nobody without the network."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.processes import TRIES
from checks.survey.section import Section, SurveyScope
from rigwright.engines import unprivileged
from rigwright.engines.installer import find_installer


@dataclass(frozen=True)
class ProgramOutput:
    """What one of them has said."""

    status: int
    """Its exit status; -1 where it was ended."""
    text: str
    """The end of both its outputs."""


def version_question(name: str) -> str:
    """What asks an engine or environment for its version."""
    return f"version of {name}"


def machine_code_question(name: str) -> str:
    """What lists the machine code in an engine."""
    return f"machine code of {name}"


COMPILER = "compiler"


def _asks(scene: SurveyScope) -> dict[str, list[str]] | None:
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
            run, *rest = unprivileged.unprivileged_command(rig.roots, words)
            # else it would be somebody who runs what is an engine's
            asked[name] = [run, f"--unit={TRIES}program-{number}", *rest]
    return asked or None


PROGRAMS: Section[dict[str, ProgramOutput]] = Section(
    "programs",
    dict[str, ProgramOutput],
    _asks,
    limit=30.0,
    blind="what a program would report to another user than nobody",
    phase="probed",
    start_order=3,
)
