"""Instances, as systemd and the kernel have them."""

from __future__ import annotations

import re
from itertools import zip_longest

import pytest

from checks import DEPLOY, Drift, ItemText, check, expect, report_drift
from checks.drift_text import describe_stray_process, expect_none, shorten_digest
from checks.nvidia_smi import parse_smi_answer
from checks.remedy import host_command, instruction, kill_processes, restart_units, show_log
from checks.service_processes import CONTAINED
from checks.survey.answers import SurveyAnswers
from checks.survey.health import HEALTH, observe_state
from checks.survey.processes import PROCESSES, ServiceProcesses
from checks.survey.section import SurveyScope
from checks.survey.serving import SERVING, StartRecord
from checks.survey.units import UNITS, expected_units, is_managed_unit
from rigwright.engines import kind_of
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.gateway.secrets_distribution import RESIDENCY_UNIT
from rigwright.host.systemd import ExpandedWord
from rigwright.model.fact_types import HostFacts
from rigwright.model.instance import Instance
from rigwright.model.roots import Roots
from rigwright.nvidia.cards import smi
from rigwright.plan.plan_inputs import TargetState
from rigwright.serving.generation import Generation
from rigwright.serving.instance_units import find_foreign_variables, instance_variables, listener_units
from rigwright.validated_types import memory_bytes

# Services and sockets that a rig may have had before.
NAMED = re.compile(
    r"rigwright-[a-z0-9][a-z0-9-]*\.service|rigwright_((listener|gateway)-[0-9]+|router|gateway|keepalived|health|residency)\.(service|socket)"
    r"|rigwright_reserved-[0-9a-f]+\.service"
)
TARGET = "rigwright.target"
PHASES = ("asleep", "starting", "awake", "leaving", "stopping")
LEDGER_STATES = {"asleep": ("inactive", "failed"), "awake": ("active",)}
"""Lasting phase of the ledger -> states of the unit that fit."""
LEDGER_LAG_S = 30.0


@pytest.fixture(scope="session")
def running(survey: SurveyAnswers, instance: Instance) -> ServiceProcesses:
    """An instance's processes."""
    return survey.read(PROCESSES).units[instance.unit]


@check("S01", "the instance is running, and starts at boot", severity="critical", why="clients get no answer")
def test_active_and_wanted(survey: SurveyAnswers, target_generation: Generation, instance: Instance) -> None:
    state = observe_state(survey, instance, target_generation)
    # requests start an instance on demand, and others have it stopped, also while a deploy checks it
    is_passing = instance.is_on_demand and state.state in ("starting", "stopping")
    if state.is_down and not is_passing:
        cure = "`rigwright start` it, or deploy again" if state.state == "stopped by hand" else DEPLOY
        report_drift(Drift(f"{instance.name} is ready", state.describe(), cure))
    units = survey.read(UNITS)
    active = units.property_value(instance.unit, "ActiveState") or "not there"
    if instance.is_on_demand:
        # of another generation, too: other checks name that
        is_asleep = state.state == "asleep" or (state.state == "other generation" and active == "inactive")
        expect(active, "active or asleep", DEPLOY, holds=is_asleep or is_passing or active == "active")
        return
    expect(active, "active", DEPLOY)
    expect(units.property_value(TARGET, "UnitFileState") or "not there", "enabled", DEPLOY)
    wanted = instance.unit in units.property_names(TARGET, "Wants")
    expect("wanted" if wanted else "not wanted", f"wanted by {TARGET}", DEPLOY, holds=wanted)


@check(
    "S26",
    "the ledger of instances on demand agrees with systemd",
    severity="high",
    why="an instance that the ledger does not know has memory that the ledger gives to another one",
)
def test_ledger_agrees(survey: SurveyAnswers, instance: Instance) -> None:
    if not instance.is_on_demand:
        pytest.skip("it is loaded at boot")
    look = survey.read(HEALTH)
    entry, unit = look.residency.get(instance.name), look.units.get(instance.unit)
    phase = entry.phase if entry else "not in the ledger"
    active = unit.active if unit else "not there"
    # both follow each other within seconds
    changing = phase not in LEDGER_STATES or (unit is not None and (unit.since_s or 0.0) < LEDGER_LAG_S)
    holds = phase in PHASES and (changing or active in LEDGER_STATES[phase])
    expect(f"{phase}, and its unit is {active}", "one state", restart_units(RESIDENCY_UNIT), holds=holds)


@check(
    "S02",
    "the running process was started from the declared unit",
    severity="high",
    why="a unit changed by hand or by an interrupted deploy serves another configuration, now or after a restart",
)
def test_process_is_current(survey: SurveyAnswers, target_generation: Generation, instance: Instance) -> None:
    found = survey.read(SERVING).started
    for unit_state in target_generation.unit_states:
        if unit_state.unit in (instance.unit, listener_units(instance.port)[0]):
            started = found[unit_state.unit].lines[:1]
            found_start = shorten_digest(started[0]) if started else "no record of a start"
            expect(found_start, shorten_digest(unit_state.started_from), DEPLOY)
    started_from = found[instance.unit]
    others = [line.partition(" ")[2] for line in set(started_from.lines[1:]) ^ set(started_from.now)]
    expect_none(sorted(others), "the weights on disk now", DEPLOY)
    given = started_from.key is not None and started_from.key.given
    expect(ItemText.without_value("another key") if not given else "", "the key on disk now", DEPLOY, holds=given)


@check(
    "S03",
    "the instance's exposure level is within budget",
    severity="high",
    why="a flaw in the server exposes the box",
)
def test_exposure(survey: SurveyAnswers, instance: Instance, service: ServiceSpec) -> None:
    if service.container:
        pytest.skip(CONTAINED)
    sandbox = service.sandbox
    budget = sandbox.exposure_with_cards if instance.cards else sandbox.exposure
    found = survey.read(SERVING).exposure.get(instance.unit, "no answer")
    expect(found, f"at most {budget}", DEPLOY, holds=found != "no answer" and float(found) <= budget)


@check(
    "S07",
    "only root can read the instance's key, which is in no argument or environment",
    severity="critical",
    why="others could read the key",
)
def test_key_is_secret(survey: SurveyAnswers, instance: Instance) -> None:
    key = survey.read(SERVING).started[instance.unit].key
    if key is None or not key.mode:
        raise Drift("a file with its key", "none", DEPLOY)
    expect(f"mode {key.mode} of user {key.owner}", "mode 600 of user 0", DEPLOY)
    expect_none(key.leaks, "the key only in its file", instruction("change the key, and find the cause"))


@check(
    "S08",
    "the instance sees its own cards, and no others",
    severity="critical",
    why="it runs on the CPU, or on another instance's card",
)
def test_sees_its_cards(survey: SurveyAnswers, facts: HostFacts, instance: Instance, running: ServiceProcesses) -> None:
    if not instance.cards:
        pytest.skip("serves on the CPU")
    own = {one.pid for one in running.processes}
    apps = parse_smi_answer(survey, "apps", smi.apps)
    found = sorted({app.address for app in apps if app.pid in own})
    wanted = sorted(facts.pci_cards[index].address for index in instance.cards)
    expect(found, wanted, restart_units(instance.unit) + show_log(instance.unit))


@check(
    "S09",
    "stopping the instance leaves no process or shared memory behind",
    severity="high",
    why="a worker that outlives its service keeps its memory, and so do its files in /dev/shm",
)
def test_stop_takes_all(survey: SurveyAnswers, instance: Instance) -> None:
    expect(survey.read(UNITS).property_value(instance.unit, "KillMode"), "control-group", DEPLOY)
    stray = [one for one in survey.read(PROCESSES).others if one.what.startswith("runs from")]
    told = [describe_stray_process(one.pid, one.words, one.what, 80) for one in stray]
    expect_none(told, "only engines run by this rig's units", kill_processes(one.pid for one in stray))
    # no instance of this rig sees the host's /dev/shm
    left = instruction("remove it from /dev/shm")
    expect_none(survey.read(PROCESSES).shared, "no file of a service user in the host's /dev/shm", left)


@check(
    "S10",
    "every rigwright unit is declared",
    severity="high",
    why="an undeclared unit occupies memory, a port and a key",
)
def test_nothing_undeclared(survey: SurveyAnswers, scope: SurveyScope) -> None:
    units, wanted = survey.read(UNITS), expected_units(scope)
    marked = {
        one.path.rpartition("/")[2]: one
        for one in units.lying
        # another name for one that is declared is another check's
        if is_managed_unit(one.first) and one.link.rpartition("/")[2] not in wanted
    }
    left = [one.path for name, one in marked.items() if name not in wanted and "." in name]
    # a unit of such a name from another author is foreign: Rigwright neither wrote its file nor noted its start
    noted = {*survey.read(SERVING).records, *marked}
    running = [name for name in units.loaded if name not in wanted and NAMED.fullmatch(name) and name in noted]
    cure = host_command("systemctl stop {}", running) + DEPLOY if running else DEPLOY
    left += running
    expect_none(left, "only this rig's units", cure)


@check(
    "S11",
    "the instance's memory and task limits are in force",
    severity="high",
    why="an instance that grows without bound takes the box down",
)
def test_limits(survey: SurveyAnswers, facts: HostFacts, instance: Instance) -> None:
    units = survey.read(UNITS)
    wanted, found = (
        memory_bytes(instance.memory_max, facts.memory_kib),
        units.property_value(instance.unit, "MemoryMax"),
    )
    said = int(found) if found.isdecimal() else 0
    # systemd counts a part of pages, the kernel's own among them
    expect(f"{found or 'no'} bytes", f"{wanted} bytes", DEPLOY, holds=abs(said - wanted) <= wanted // 50)
    expect(units.property_value(instance.unit, "TasksMax"), str(instance.tasks_max), DEPLOY)


@check(
    "S12",
    "the instance runs its unit's command, as its own user, in its own network",
    severity="critical",
    why="a variable set for all services, or another program of that name, changes the service",
)
def test_process_is_the_declared_one(
    survey: SurveyAnswers,
    roots: Roots,
    desired: TargetState,
    instance: Instance,
    service: ServiceSpec,
    running: ServiceProcesses,
) -> None:
    if service.container:
        pytest.skip(CONTAINED)
    main = next((one for one in running.processes if one.pid == running.main), None)
    if main is None:
        raise Drift("a process", "none", DEPLOY)
    restart = restart_units(instance.unit) + DEPLOY
    folder = roots.installation_path(desired.installations[instance.installed_as].folder)
    # systemd knows the values that it expands
    wanted = ["" if isinstance(word, ExpandedWord) else str(word) for word in service.command]
    # of a script the kernel runs the distribution's interpreter, with what its first line names before the script
    before = main.words.index(wanted[0]) if main.exe.startswith("/usr/bin/") and wanted[0] in main.words[1:3] else 0
    inside = bool(before) or main.exe.startswith(f"{folder}/")
    expect(main.exe, f"a program in {folder}", restart, holds=inside)
    pairs = zip_longest(main.words[before:], wanted, fillvalue="nothing")
    other = [f"{has} for {word}" for has, word in pairs if word and has != word]
    expect_none(other, "the arguments of its unit", restart)
    given = instance_variables(instance, service)
    wrong = [
        f"{name} {main.environment.get(name, 'unset')}" for name in given if main.environment.get(name) != given[name]
    ]
    expect_none(wrong, "the variables of its unit", restart)
    foreign = find_foreign_variables(main.environment, instance, service)
    added = host_command("systemctl unset-environment {}", foreign) + restart
    expect_none(foreign, "no added variables", added)
    first = survey.read(PROCESSES).first.spaces.get("net")
    apart = all(one.spaces.get("net") != first for one in running.processes)
    expect("the host's network", "its own network", restart, holds=apart)


@check(
    "S14",
    "the instance runs as it did at its first start with these settings",
    severity="high",
    why="after a driver upgrade an engine may use another backend, or fit half the tokens; only its log shows it",
)
def test_runs_as_at_first(survey: SurveyAnswers, instance: Instance) -> None:
    started = survey.read(SERVING).started[instance.unit]
    first = _first(started)
    if not first:
        pytest.skip("its log does not report it")
    now, then = kind_of(instance).parse_startup(started.said), kind_of(instance).parse_startup(first)
    expect(now, then, show_log(instance.unit) + instruction("its log names the backends"), holds=now.is_like(then))


def _first(started: StartRecord) -> list[str]:
    """The first startup record of what it was started from now; empty if unknown."""
    return started.first[1:] if started.first[:1] == started.lines[:1] else []
