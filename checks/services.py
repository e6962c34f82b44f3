"""Our services that run for as long as their host does: what each is to be, and its processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checks.settings import settings
from checks.survey.processes import PROCESSES, Process, Unit
from checks.survey.section import Scene
from checks.survey.taken import Survey
from checks.survey.units import UnitFile, declared
from rigwright.engines import kind_of
from rigwright.engines.container import Container
from rigwright.model.rig import Rig
from rigwright.plan.desired import Desired

RESTART = "run `systemctl reset-failed` and `systemctl restart` on that unit"
"""What gives a service the processes that its unit says: a deploy starts none anew that was started from it."""
CONTAINED = "runs in a container, which I01 to I07 check"
Services = Mapping[str, tuple[UnitFile, Unit]]


def running(survey: Survey, rig: Rig, desired: Desired) -> Services:
    """All of them that systemd itself runs, by name: what is in a container is judged by what is declared of that."""
    found, within = survey.read(PROCESSES).units, contained(rig, desired)
    units = declared(Scene(rig, desired)).items()
    return {name: (one, found[name]) for name, one in units if name in found and name not in within}


def contained(rig: Rig, desired: Desired) -> Mapping[str, Container]:
    """The containers that instances run in, by unit."""
    services = {
        one.unit: kind_of(one).service(rig, one, desired.installations[one.installed_as]) for one in rig.instances
    }
    return {unit: service.container for unit, service in services.items() if service.container}


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
