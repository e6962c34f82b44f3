"""Our services that run for as long as their host does: the target of each, and its processes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from checks import DEPLOY, expect
from checks.drift_text import expect_none, shorten_digest
from checks.remedy import restart_units
from checks.survey.answers import SurveyAnswers
from checks.survey.processes import PROCESSES, KernelProcess, ServiceProcesses
from checks.survey.section import SurveyScope
from checks.survey.units import ExpectedUnit, expected_units
from checks.unit_settings import parse_unit_settings
from rigwright.engines import kind_of
from rigwright.engines.container_spec import ContainerSpec
from rigwright.gateway.secrets_distribution import RESIDENCY_UNIT
from rigwright.host.generation_layout import JOB
from rigwright.model.shared_results import share_results

CONTAINED = "runs in a container, which I01 to I07 check"
Services = Mapping[str, tuple[ExpectedUnit, ServiceProcesses]]
INSTANCE = r"rigwright-[a-z0-9][a-z0-9-]*\.service"
# the residency service also asks for the job of an activation
SHOWN = rf"(?:{INSTANCE}|{re.escape(JOB)}\.service)"
HELPERS = {
    RESIDENCY_UNIT: (
        (
            re.compile("/usr/bin/systemctl"),
            re.compile(
                rf"show --property=[A-Za-z,]+(?: {SHOWN})+"
                rf"|(?:(?:start|stop) --no-block|reset-failed) {INSTANCE}"
            ),
        ),
        (
            re.compile("/usr/(?:bin|lib/[a-z0-9/._-]+)/nvidia-smi"),
            re.compile(r"--query-(?:gpu|compute-apps)=[a-z_,.]+ --format=csv,noheader,nounits"),
        ),
    )
}
"""Service -> programs that it starts for a moment, and their arguments; S21 covers their bytes."""


def running_services(survey: SurveyAnswers, scope: SurveyScope) -> Services:
    """All of them that systemd itself runs, by name: a container is judged by its own declaration."""
    found, within = survey.read(PROCESSES).units, containers_by_unit(scope)
    units = expected_units(scope).items()
    return {name: (one, found[name]) for name, one in units if name in found and name not in within}


@share_results
def containers_by_unit(scope: SurveyScope) -> Mapping[str, ContainerSpec]:
    """The containers that instances run in, by unit."""
    rig, installations = scope.rig, scope.desired.installations
    services = {one.unit: kind_of(one).service(rig, one, installations[one.installed_as]) for one in rig.instances}
    return {unit: service.container for unit, service in services.items() if service.container}


def expect_started_from(unit: str, found: str, expected: str) -> None:
    """Compare the start digest of a service with the declared one. The texts name the unit, so that `check` finds the
    author of a change.

    Raises:
        Drift: they differ.
    """
    begin = f"{unit} started from "
    expect(shorten_digest(found or "nothing", begin), shorten_digest(expected, begin), DEPLOY)


def unit_settings_of(one: ExpectedUnit) -> dict[str, str]:
    """A unit's settings, of several the last."""
    return dict(parse_unit_settings(one.text))


def is_helper(one: ExpectedUnit, unit: ServiceProcesses, process: KernelProcess) -> bool:
    """Whether a process is a packaged program that its service starts for a moment."""
    words = " ".join(process.words[1:])
    return process.pid != unit.main and any(
        program.fullmatch(process.exe) and arguments.fullmatch(words)
        for program, arguments in HELPERS.get(one.name, ())
    )


def iterate_processes(services: Services) -> Iterator[tuple[ExpectedUnit, ServiceProcesses, KernelProcess]]:
    """All processes of our services."""
    for one, unit in services.values():
        for process in unit.processes:
            yield one, unit, process


def expect_no_unit_faults(
    faults: Iterable[tuple[str, str]], expected: str, lasting: Collection[tuple[str, str]] = ()
) -> None:
    """Expect no faults of units' processes; a restart puts them right, for a deploy restarts no unit that was started
    from the declared file.

    Args:
        faults: The unit, and the fault, for people.
        expected: The state without faults.
        lasting: Those of them that a deploy's restart would not end.

    Raises:
        Drift: there is one.
    """
    __tracebackhide__ = True
    pairs = list(faults)
    expect_none(
        (fault for _, fault in pairs),
        expected,
        restart_units(*dict.fromkeys(unit for unit, _ in pairs)),
        {pair[0] for pair in pairs if pair not in lasting},
    )


def describe_process(one: ExpectedUnit, unit: ServiceProcesses, process: KernelProcess) -> str:
    """A process, for people."""
    return f"{one.name}'s {'' if process.pid == unit.main else 'worker '}process {process.pid}"
