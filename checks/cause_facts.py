"""Facts of one host that name the causes of its failures: the survey's facts, typed and in one place.

A section without an answer contributes no fact: a cause is named by what was seen, never by what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from checks import Drift
from checks.nvidia_smi import parse_smi_answer
from checks.survey.answers import SurveyAnswers
from checks.survey.base_system import ABOUT, GROUND, required_space
from checks.survey.cards import CARDS
from checks.survey.health import HEALTH
from checks.survey.kernel import KERNEL
from checks.survey.processes import PROCESSES, KernelProcess
from checks.survey.recent_events import EVENTS, PackageChange, RecentEvents
from checks.survey.section import Section
from checks.survey.serving import GENERATIONS, SERVING
from checks.survey.units import UNITS, UnitSurvey
from checks.undeployed_edit import GenerationEdit, find_edit, weight_part
from rigwright.gateway.served_models import offers_of
from rigwright.model.fact_types import HostFacts
from rigwright.model.instance import Instance, loaded_weights
from rigwright.model.rig import Rig
from rigwright.nvidia.cards import smi
from rigwright.nvidia.cards.xids import XID
from rigwright.operate.instance_health import state_facts
from rigwright.operate.instance_state import AssessedState, InstanceState, assess_state, declared_processes
from rigwright.plan.plan_inputs import TargetState
from rigwright.serving.instance_units import listener_units

T = TypeVar("T")
DOWN: tuple[InstanceState, ...] = ("stopped by hand", "stopped", "failed", "starting", "stopping", "not deployed")
STATES: Mapping[str, InstanceState] = {
    "active": "running",
    "activating": "starting",
    "deactivating": "stopping",
    "failed": "failed",
    "inactive": "stopped",
}
"""systemd's ActiveState -> the state where nothing more is known."""
STARTERS = ("/usr/bin/nsenter", "/usr/lib/systemd/systemd", "/usr/lib/systemd/systemd-executor")
"""Programs of a unit's processes before they run the unit's program, and of those that systemd runs beside it."""
FALLEN = 79
"""The Xid of a card that fell off the bus (rigwright/operate/kernel_messages.py)."""


@dataclass(frozen=True)
class InstanceFacts:
    """A declared instance on its host."""

    name: str
    unit: str
    units: tuple[str, ...] = ()
    """Its service, its slice, and the service and socket of its port."""
    state: InstanceState = "running"
    note: str = ""
    """The reason of its state; empty where the state says all."""
    active: str = "active"
    """systemd's ActiveState."""
    result: str = "success"
    """How its last process ended, in systemd's word."""
    since: float | None = None
    """Begin of systemd's state, in seconds since 1970."""
    ran_since_boot: bool = True
    stopped_at: float | None = None
    """When `stop` has stopped it, in seconds since 1970; None where it has not."""
    cards: tuple[str, ...] = ()
    """Addresses of its cards on the PCI bus."""
    paths: tuple[str, ...] = ()
    """Its weights and its installation."""
    models: tuple[str, ...] = ()
    """Names that it answers for at the gateway, alone or with other instances."""
    gate: tuple[int, ...] = ()
    """Processes of its unit that systemd runs until its first answer."""
    paused: bool = False
    """Whether a signal has stopped its main process."""

    @property
    def is_down(self) -> bool:
        """Whether no request can be answered now."""
        return self.active != "active" or self.state in DOWN

    @property
    def is_failed(self) -> bool:
        """Whether its process ended by itself, and systemd has given up or starts it again."""
        ended = self.state == "stopping" and self.result not in ("", "success")
        return self.state == "failed" or ended


@dataclass(frozen=True)
class LostCard:
    """A declared card that does not answer."""

    index: int
    address: str
    """Empty where it is not on the PCI bus."""
    fell_off: bool
    """Whether the kernel's log has an Xid 79 of it."""


@dataclass(frozen=True)
class DriverVersions:
    """The driver's versions on a host with cards; empty for none."""

    module: str
    library: str
    kernel: str
    """The running kernel's release."""
    has_module: bool
    """Whether the running kernel has a module of the driver on disk."""
    lacking: tuple[str, ...] = ()
    """Releases of other kernels that can boot, and have no module of the driver."""


@dataclass(frozen=True)
class FullDisk:
    """A file system without the room that a deploy or a service needs."""

    paths: tuple[str, ...]
    """Paths of ours on it."""
    free_mib: int


@dataclass(frozen=True)
class CauseFacts:
    """All of it."""

    place: str = "INVENTORY"
    """The words of a command that name the inventory, and the host where it has several."""
    generation: int | None = None
    is_deployed: bool = True
    edit: GenerationEdit | None = None
    instances: tuple[InstanceFacts, ...] = ()
    now: float = 0.0
    """The host's clock, in seconds since 1970."""
    ahead_s: float = 0.0
    """Seconds by which the host's clock is ahead of the controller's."""
    booted: float | None = None
    """The host's boot, in seconds since 1970."""
    changes: tuple[PackageChange, ...] = ()
    default_routes: int = 1
    nameservers: int = 1
    unmounted: tuple[str, ...] = ()
    full: tuple[FullDisk, ...] = ()
    lost_cards: tuple[LostCard, ...] = ()
    driver: DriverVersions | None = None
    weights: tuple[tuple[str, str], ...] = ()
    """(name in checks, path) of each weight file."""
    unanswered: str = ""
    """Why the host has answered nothing at all."""
    own_checks: frozenset[str] = field(default_factory=frozenset)
    """Ids of the operator's own checks, of which no cause of ours knows anything."""


def collect_cause_facts(
    survey: SurveyAnswers,
    rig: Rig,
    desired: TargetState | None,
    place: str,
    now: float,
    own_checks: frozenset[str],
) -> CauseFacts:
    """The facts of a survey that name causes.

    Args:
        survey: The host's answers.
        rig: The declared rig.
        desired: Its target state on the host; None where the host did not say what that needs.
        place: The words of a command that name the inventory, and the host where it has several.
        now: The controller's clock when the host was asked, in seconds since 1970.
        own_checks: Ids of the operator's own checks.
    """
    generations, units, events = _read(survey, GENERATIONS), _read(survey, UNITS), _read(survey, EVENTS)
    serving, about = _read(survey, SERVING), _read(survey, ABOUT)
    started = serving.started if serving else {}
    facts = desired.facts if desired else None
    booted = _moment(units.manager.get("UserspaceTimestampMonotonic", ""), events) if units and events else None
    stored = generations and next(
        (one for one in generations.kept if generations.current == f"generations/{one.number}"), None
    )
    return CauseFacts(
        place=place,
        generation=stored.number if stored else None,
        is_deployed=stored is not None if generations else about is None or about.generation is not None,
        edit=find_edit(generations, units, started, rig, desired, _read(survey, PROCESSES))
        if generations and desired
        else None,
        instances=tuple(
            _instance(one, rig, survey, units, events, facts, desired) for one in rig.instances if units is not None
        ),
        now=events.now if events else 0.0,
        ahead_s=float(facts.clock) - now if facts else 0.0,
        booted=booted,
        changes=tuple(events.changes) if events else (),
        default_routes=events.default_routes if events else 1,
        nameservers=events.nameservers if events else 1,
        unmounted=tuple(events.unmounted) if events else (),
        full=_full_disks(survey, rig),
        lost_cards=collect_lost_cards(survey, rig, facts),
        driver=collect_driver_versions(survey, rig),
        weights=tuple((weight_part(one), rig.roots.weight_path(one)) for one in loaded_weights(rig.instances)),
        unanswered=survey.reason,
        own_checks=own_checks,
    )


def _read(survey: SurveyAnswers, section: Section[T]) -> T | None:
    try:
        return survey.read(section)
    except Drift:
        return None


def _moment(text: str, events: RecentEvents) -> float | None:
    """Seconds since 1970 of a timestamp of systemd's, in microseconds; None for never."""
    if not text.isdecimal() or (at := int(text[:18])) == 0:
        return None
    return events.now - (events.monotonic - at / 1e6)


def _instance(
    one: Instance,
    rig: Rig,
    survey: SurveyAnswers,
    units: UnitSurvey | None,
    events: RecentEvents | None,
    facts: HostFacts | None,
    desired: TargetState | None,
) -> InstanceFacts:
    def value(name: str) -> str:
        return units.property_value(one.unit, name) if units and one.unit in units.shown else ""

    active = value("ActiveState")
    entered = {"active": "ActiveEnter", "inactive": "InactiveEnter"}.get(active, "StateChange")
    processes = _read(survey, PROCESSES)
    service = processes.units.get(one.unit) if processes else None
    inside = service.processes if service else []
    made = next((unit for unit in desired.generation.units if unit.name == one.unit), None) if desired else None
    health = _read(survey, HEALTH)
    observed = (
        state_facts(health, one, declared_processes(desired.generation).get(one.unit)) if health and desired else None
    )
    assessed = assess_state(one.name, observed) if observed else AssessedState(one.name, STATES.get(active, "running"))
    paths = [rig.roots.weight_path(weight) for weight in one.weights]
    if desired:
        paths.append(rig.roots.installation_path(desired.installations[one.installed_as].folder))
    return InstanceFacts(
        name=one.name,
        unit=one.unit,
        units=(one.unit, *([made.slice] if made else []), *listener_units(one.port)),
        state=assessed.state,
        note=assessed.note,
        active=active,
        result=value("Result"),
        since=_moment(value(f"{entered}TimestampMonotonic"), events) if events else None,
        ran_since_boot=value("InactiveExitTimestampMonotonic") not in ("", "0"),
        stopped_at=observed.stopped_at if observed else None,
        cards=tuple(facts.pci_cards[index].address for index in one.cards if facts and index < len(facts.pci_cards)),
        paths=tuple(paths),
        models=_models(one, rig),
        gate=_gate(inside, service.main if service else 0, f"{rig.roots.config}/current/ready"),
        paused=any(process.pid == service.main and process.status.get("State", "")[:1] == "T" for process in inside)
        if service
        else False,
    )


def _gate(processes: Sequence[KernelProcess], main: int, ready: str) -> tuple[int, ...]:
    """Processes that are systemd's own before they run a unit's program, or wait for the unit's first answer."""
    found = {one.pid for one in processes if one.exe in STARTERS or (one.pid != main and ready in one.words)}
    for one in sorted(processes, key=lambda one: one.pid):
        if one.pid != main and one.status.get("PPid", "") in map(str, found):
            found.add(one.pid)
    return tuple(sorted(found))


def _models(one: Instance, rig: Rig) -> tuple[str, ...]:
    """Names that an instance answers for at the gateway, alone or with others."""
    names = [offer.name for offer in offers_of(rig.instances, rig.gateway) if one in offer.instances]
    aliases = rig.gateway.aliases if rig.gateway else {}
    return (*names, *(alias for alias, name in aliases.items() if name in names))


def _full_disks(survey: SurveyAnswers, rig: Rig) -> tuple[FullDisk, ...]:
    ground = _read(survey, GROUND)
    need = required_space(rig.roots)
    full: dict[int, list[str]] = {}
    for one in ground.disks if ground else ():
        if one.free < need.get(one.path, 0):
            # one file system has one number of free bytes
            full.setdefault(one.free, []).append(one.path)
    return tuple(FullDisk(tuple(paths), free >> 20) for free, paths in full.items())


def collect_lost_cards(survey: SurveyAnswers, rig: Rig, facts: HostFacts | None) -> tuple[LostCard, ...]:
    """Declared cards that do not answer, or that the kernel's log calls fallen off the bus."""
    cards = _read(survey, CARDS) if rig.cards else None
    if cards is None or facts is None:
        return ()
    fallen = {
        smi.bus_address(matched[1])
        for line in cards.log.messages
        if (matched := XID.match(line)) and int(matched[2]) == FALLEN
    }
    try:
        answering = {one.address for one in parse_smi_answer(survey, "gpus", smi.gpus)}
    except Drift:
        answering = None
    found = []
    for index in range(len(rig.cards)):
        address = facts.pci_cards[index].address if index < len(facts.pci_cards) else ""
        fell_off = address.rpartition(".")[0] in fallen
        if not address or fell_off or (answering is not None and answering and address not in answering):
            found.append(LostCard(index, address, fell_off))
    return tuple(found)


def collect_driver_versions(survey: SurveyAnswers, rig: Rig) -> DriverVersions | None:
    """Versions of the driver and kernels with its module; None for a rig without cards."""
    kernel = _read(survey, KERNEL) if rig.cards else None
    if kernel is None:
        return None
    libraries = [real for name, _, real, _ in kernel.libraries if name == "libcuda.so.1"]
    library = libraries[0].rpartition("libcuda.so.")[2] if libraries else ""
    own = {one.release: bool(one.modules) for one in kernel.kernels}
    others = tuple(one.release for one in kernel.kernels if one.bootable and one.release != kernel.running)
    return DriverVersions(
        module=kernel.loaded.get("nvidia", [""])[0],
        library=library,
        kernel=kernel.running,
        has_module=own.get(kernel.running, False),
        lacking=tuple(release for release in others if not own[release]),
    )
