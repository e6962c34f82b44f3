"""Our services that run for as long as their host does: what each is to be, and its processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checks.settings import settings
from checks.survey.processes import PROCESSES, Process, Unit
from checks.survey.section import Scene
from checks.survey.taken import Survey
from checks.survey.units import UnitFile, declared
from rigwright.declaration.rig import Rig
from rigwright.host.plan import Desired

RESTART = "`systemctl reset-failed` and `systemctl restart` that unit"
"""What gives a service the processes that its unit says: a deploy starts none anew that was started from it."""
Services = Mapping[str, tuple[UnitFile, Unit]]


def running(survey: Survey, rig: Rig, desired: Desired) -> Services:
    """All of them, by name."""
    found = survey.read(PROCESSES).units
    return {name: (one, found[name]) for name, one in declared(Scene(rig, desired)).items() if name in found}


def text(one: UnitFile) -> dict[str, str]:
    """A unit's settings, of several the last."""
    return dict(settings(one.text))


def each(services: Services) -> Iterator[tuple[UnitFile, Unit, Process]]:
    """All processes of our services."""
    for one, unit in services.values():
        for process in unit.processes:
            yield one, unit, process


def named(one: UnitFile, unit: Unit, process: Process) -> str:
    """A process, for people."""
    return f"{one.name}'s {'' if process.pid == unit.main else 'worker '}process {process.pid}"
