"""Control groups of our services, and all that they are in, as the kernel has them."""

from __future__ import annotations

from checks import check
from checks.drift_text import expect_none
from checks.remedy import Remedy, host_command, restart_units
from checks.service_processes import describe_process, iterate_processes, running_services
from checks.survey.answers import SurveyAnswers
from checks.survey.processes import PROCESSES
from checks.survey.section import SurveyScope
from checks.survey.units import UNITS, ExpectedUnit, UnitSurvey

# The settings of a group without any declaration (Documentation/admin-guide/cgroup-v2.rst).
USUAL = {
    "memory.max": "max",
    "memory.high": "max",
    "memory.low": "0",
    "memory.min": "0",
    "memory.swap.max": "max",
    "memory.swap.high": "max",
    "memory.oom.group": "0",
    "memory.zswap.max": "max",
    "pids.max": "max",
    "cpu.max": "max 100000",
    "cpu.weight": "100",
    "cpu.idle": "0",
    "cpu.uclamp.max": "max",
    "cpu.max.burst": "0",
    "io.max": "",
    "io.weight": "default 100",
    "io.bfq.weight": "default 100",
    "io.latency": "",
    "io.prio.class": "no-change",
    "cpuset.cpus": "",
    "cpuset.mems": "",
    "cpuset.cpus.partition": "member",
    "cgroup.freeze": "0",
    "cgroup.type": "domain",
    "cgroup.max.descendants": "max",
    "cgroup.max.depth": "max",
}
# A property of a unit -> the knob that it sets.
KNOBS = {
    "MemoryMax": "memory.max",
    "MemoryHigh": "memory.high",
    "MemoryLow": "memory.low",
    "MemoryMin": "memory.min",
    "MemorySwapMax": "memory.swap.max",
    "TasksMax": "pids.max",
}
PAGES = frozenset({"memory.max", "memory.high", "memory.low", "memory.min", "memory.swap.max"})
WEIGHTS = {"CPUWeight": "cpu.weight", "IOWeight": "io.weight"}


@check(
    "S20",
    "processes are in their units' cgroups, without further limits",
    severity="critical",
    why="a frozen or limited cgroup answers late or not at all",
    blind="hosts without cgroup v2 controllers, where only freezing is seen",
)
def test_groups(survey: SurveyAnswers, scope: SurveyScope) -> None:
    services = running_services(survey, scope)
    found, units = survey.read(PROCESSES), survey.read(UNITS)
    faults = [
        (one.name, f"{describe_process(one, unit, process)} is in cgroup {process.group}")
        for one, unit, process in iterate_processes(services)
        if process.group != unit.group and not process.group.startswith(f"{unit.group}/")
    ]
    faults += [
        (name, f"{name} has no cgroup")
        for name, (_, unit) in services.items()
        if unit.main and not unit.group.strip("/")
    ]
    own = {unit.group: one for one, unit in services.values()}
    wrong, cure = [fault for _, fault in faults], Remedy(())
    restarted = [name for name, _ in faults]
    for path, knobs in found.groups.items():
        for knob, value in knobs.items():
            usual = _knob(units, own.get(path), knob)
            if value == usual or (knob in PAGES and _rounded(value, usual)):
                continue
            wrong.append(f"{path} has {knob} {value or 'nothing'}, not {usual or 'nothing'}")
            if path in own:
                restarted.append(own[path].name)
            else:
                # a restart of a slice ends all that is in it
                cure += host_command("echo {} > {}", usual, f"/sys/fs/cgroup{path}/{knob}")
    if restarted:
        cure += restart_units(*dict.fromkeys(restarted))
    # a deploy restarts no service for a limit, which an operator may have set while it serves
    expect_none(wrong, "cgroups with their units' limits", cure, [name for name, _ in faults])


def _knob(units: UnitSurvey, one: ExpectedUnit | None, knob: str) -> str:
    """The target of a group, by systemd's effective properties of its unit."""
    usual = USUAL[knob]
    if one is None:
        return usual
    for prop, name in KNOBS.items():
        if name == knob:
            found = units.property_value(one.name, prop)
            return found if found.isdecimal() else usual
    for prop, name in WEIGHTS.items():
        if name == knob:
            found = units.property_value(one.name, prop)
            return usual.replace("100", found) if found.isdecimal() else usual
    return usual


def _rounded(value: str, usual: str) -> bool:
    """Whether two amounts of memory are the same pages."""
    return value.isdecimal() and usual.isdecimal() and int(value) // 65536 == int(usual) // 65536
