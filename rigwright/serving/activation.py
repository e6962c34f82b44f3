"""The way of a host from its serving state to a generation, and objects that nothing needs afterwards."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rigwright.host.systemd import UnitState
from rigwright.model.instance import CACHES, WARM, slice_of
from rigwright.model.rig import Rig, account_names
from rigwright.model.roots import Roots
from rigwright.serving.generation import Generation
from rigwright.serving.instance_units import credential_path
from rigwright.serving.serving_state import ObservedGeneration, ObservedServing, ObservedUnit
from rigwright.supply.root_programs import INSTALLERS

# Of the units of instances.
PREFIX = "rigwright-"
GATEWAY_SERVICE = re.compile(r"rigwright_(gateway|router|keepalived|health|residency)\.service")


@dataclass(frozen=True)
class ActivationGoal:
    """The target of an activation."""

    number: int | None
    """Of its generation on the host; None where it is not written yet."""
    mark: str
    unit_files: tuple[str, ...]
    unit_states: tuple[UnitState, ...]


@dataclass(frozen=True)
class Activation:
    """The steps that make a generation serve. Units are named in the order in which they are dealt with."""

    stop: tuple[str, ...] = ()
    """Ours that are not declared, and those that hold what another one is to have."""
    restart: tuple[str, ...] = ()
    await_: tuple[str, ...] = ()
    """On their way already."""
    free: tuple[UnitState, ...] = ()
    """The holdings of those that run and are stopped or started again, which have to give them back first."""
    release: tuple[str, ...] = ()
    """Socket units that listen where they must not."""
    listen: tuple[str, ...] = ()
    """Those that do not, and are to."""
    reload: tuple[str, ...] = ()
    """Units that are to read their settings again."""
    idle: tuple[str, ...] = ()
    """Of instances that are not declared and do not run: systemd's state of each goes with its unit file."""
    carriers: Mapping[str, tuple[str, int]] = field(default_factory=dict, compare=False)
    """Socket unit -> its service, and its TCP port, 0 for none; of all that are to listen."""
    prove: tuple[str, ...] = ()
    """Units on demand that are woken once, one after another, and sleep again."""

    @property
    def awaited_units(self) -> tuple[str, ...]:
        """Units that have to become ready."""
        return (*self.restart, *self.await_)

    @property
    def new_units(self) -> tuple[str, ...]:
        """Units that an earlier generation may not have: they go where they do not become ready."""
        return (*self.listen, *self.awaited_units, *self.prove)

    @property
    def changed_services(self) -> tuple[str, ...]:
        """Services that are not what they were, whatever becomes of the generation."""
        return (*self.stop, *self.awaited_units)

    @property
    def new_listeners(self) -> tuple[tuple[str, str, int], ...]:
        """Socket units that begin to listen, each with its service and its port."""
        return tuple((holder, *self.carriers[holder]) for holder in self.listen)

    @property
    def slices(self) -> tuple[str, ...]:
        """Those of instances that go: systemd keeps an empty one until it is stopped."""
        leaving = (*self.stop, *self.idle)
        gone = [unit for unit in leaving if unit not in (*self.restart, *self.prove) and unit.startswith(PREFIX)]
        return tuple(map(slice_of, gone))

    @property
    def frees_cards(self) -> bool:
        """Whether cards have to be given back."""
        return any(unit_state.cards for unit_state in self.free)

    @property
    def draining_instances(self) -> tuple[str, ...]:
        """Names of the instances among what runs and is stopped: a gateway may have sent them requests."""
        units = (one.unit for one in self.free if one.unit.startswith(PREFIX))
        return tuple(unit.removeprefix(PREFIX).removesuffix(".service") for unit in units)

    @property
    def stopped_units(self) -> tuple[str, ...]:
        """Units that are stopped: those that are not declared, and before they start again those that run."""
        return tuple(dict.fromkeys([*self.stop, *(unit_state.unit for unit_state in self.free)]))

    def replaces(self, action: str, unit: str) -> bool:
        """Whether the activation makes a deploy's own `restart` or `reload` of a unit needless."""
        ended = {*self.restart, *self.prove, *self.stopped_units}
        replaced = {"restart": ended, "reload": ended | {*self.reload}}
        return unit in replaced.get(action, ())

    def service_changes(self, processes: Mapping[str, ObservedUnit]) -> dict[str, str]:
        """Instance, or service of the gateway -> `started`, `restarted`, `reloaded`, `proven` or `stopped`.

        Args:
            processes: Unit -> its state before the activation.
        """
        changes = dict.fromkeys(self.stop, "stopped") | dict.fromkeys(self.reload, "reloaded")
        changes |= dict.fromkeys(self.prove, "proven")
        for unit in self.restart:
            process = processes.get(unit)
            changes[unit] = "restarted" if process and process.running else "started"
        return {
            unit.removeprefix("rigwright").lstrip("-_").removesuffix(".service"): change
            for unit, change in changes.items()
            if unit.startswith(PREFIX) or GATEWAY_SERVICE.fullmatch(unit)
        }


def goal_for(found: ObservedServing, wanted: Generation) -> ActivationGoal:
    """A rig's generation as a goal on a host."""
    return ActivationGoal(found.number_of(wanted), wanted.mark, wanted.unit_files, wanted.unit_states)


def goal_of(kept: ObservedGeneration) -> ActivationGoal:
    """A generation that lies on a host as a goal."""
    return ActivationGoal(kept.number, kept.mark, kept.unit_files, kept.unit_states)


def plan_activation(found: ObservedServing, config: str, goal: ActivationGoal) -> Activation | None:
    """The way from what a host serves to a generation; None where it is there.

    Args:
        found: The host.
        config: The configuration's folder.
        goal: The generation.
    """
    unit_states = {unit_state.unit: unit_state for unit_state in goal.unit_states}
    strays = sorted(name for name, one in found.processes.items() if name not in unit_states and _is_up(one))
    # a service of a port that its socket does not listen on has that to itself, and none can begin to next to it
    carriers = {one.unit: (unit_state.unit, one.port) for unit_state in goal.unit_states for one in unit_state.holders}
    right = {
        one.unit
        for unit_state in goal.unit_states
        for one in unit_state.holders
        if one.is_listening(found.sockets.get(one.unit, frozenset()))
    }
    deaf = {
        name for name, unit_state in unit_states.items() if any(one.unit not in right for one in unit_state.holders)
    }
    on_demand = _find_proven_on_demand(found)
    stale = [
        name
        for name, unit_state in unit_states.items()
        if name in deaf or not (_is_right(found.processes.get(name), unit_state) or on_demand.get(name) == unit_state)
    ]
    prove = tuple(name for name in stale if unit_states[name].on_demand)
    kept_up = [name for name in unit_states if name not in stale and not unit_states[name].on_demand]
    loading = [name for name in kept_up if found.processes[name].is_loading]
    # a port's service leaves only with its socket: else any client that connects starts it again
    staying = {name for name, unit_state in unit_states.items() if unit_state.holders and name not in deaf}
    in_the_way = sorted(
        name
        for name in stale
        if name not in staying
        and _is_blocking(found, name, [s for n, s in unit_states.items() if n not in (name, *staying)])
    )
    listen = tuple(sorted(carriers.keys() - right))
    release = tuple(sorted(found.sockets.keys() - right))
    fresh = [name for name in kept_up if name not in loading]
    reload = tuple(name for name in fresh if not found.processes[name].is_configured(unit_states[name]))
    links = {name: f"{config}/current/units/{name}" for name in goal.unit_files}
    settled = (
        (found.current, found.links, found.enabled, found.reload_needed, found.activating)
        == (goal.number, links, True, False, False)
    ) and goal.mark in found.loaded
    # where neither the link nor the generation is there, the two are not the same
    settled = settled and any(kept.number == goal.number and kept.proven for kept in found.generations)
    if settled and not strays and not stale and not loading and not listen and not release and not reload:
        return None
    leaving = dict.fromkeys([*strays, *in_the_way, *stale])
    running = [name for name in leaving if name not in staying and found.is_running(name)]
    free = tuple(found.held_state(name) or UnitState(name, "", 0, frozenset()) for name in running)
    # one on demand may have been woken since the host was looked at; a new one has no unit yet
    known = [name for name in prove if name in found.links or name in found.processes]
    stop = tuple(dict.fromkeys([*strays, *in_the_way, *known]))
    restart = tuple(name for name in stale if name not in prove)
    idle = tuple(
        sorted(name for name in found.links if _is_instance_unit(name) and name not in {*unit_states, *strays})
    )
    return Activation(stop, restart, tuple(loading), free, release, listen, reload, idle, carriers, prove)


def find_displaceable(
    found: ObservedServing, way: Activation, unit_states: Collection[UnitState]
) -> tuple[tuple[str, str], ...]:
    """Units on demand that run and stay, each with the unit whose proof may need their memory: the residency service
    may stop them for it.

    Args:
        found: The host.
        way: Its way to a generation.
        unit_states: Those of the generation.
    """
    states = {one.unit: one for one in unit_states if one.on_demand}
    staying = [
        one for name, one in sorted(states.items()) if name not in {*way.prove, *way.stop} and found.is_running(name)
    ]
    # one without cards is in RAM
    pairs = {
        other.unit: name
        for name in way.prove
        for other in staying
        if states[name].cards & other.cards or not (states[name].cards or other.cards)
    }
    return tuple(sorted(pairs.items()))


def is_only_loading(way: Activation | None) -> bool:
    """Whether all that is left is to wait."""
    return (
        way is not None and not (way.stop or way.restart or way.release or way.reload or way.prove) and bool(way.await_)
    )


def _is_instance_unit(name: str) -> bool:
    return name.startswith(PREFIX) and name.endswith(".service")


def _find_proven_on_demand(found: ObservedServing) -> dict[str, UnitState]:
    """Unit on demand -> its state in the current generation, where that is proven and nothing else runs: asleep, on its
    way to sleep or loading, it is the residency service's.
    """
    current = (kept for kept in found.generations if kept.number == found.current and kept.proven and kept.is_intact)
    states = (one for kept in current for one in kept.unit_states if one.on_demand)
    return {one.unit: one for one in states if not _is_running_otherwise(found.processes.get(one.unit), one)}


def _is_running_otherwise(process: ObservedUnit | None, unit_state: UnitState) -> bool:
    return process is not None and process.running and not process.is_running_from(unit_state)


def _is_up(process: ObservedUnit) -> bool:
    return process.state not in ("inactive", "failed")


def _is_right(process: ObservedUnit | None, unit_state: UnitState) -> bool:
    if (
        process is None
        or not process.is_running_from(unit_state)
        or not (unit_state.rereads or process.is_configured(unit_state))
    ):
        return process is not None and process.is_running_from(unit_state) and process.is_loading
    return process.state == "active" or process.is_loading


def _is_blocking(found: ObservedServing, name: str, others: list[UnitState]) -> bool:
    """Whether a unit's process holds the port or a card that another is to have, or might: unknown counts as yes."""
    process = found.processes.get(name)
    if process is None or not process.running or not others:
        return False
    held = found.held_state(name)
    return held is None or any(held.port == other.port > 0 or held.cards & other.cards for other in others)


@dataclass(frozen=True)
class Surplus:
    """Objects that nothing kept refers to."""

    generations: tuple[int, ...]
    paths: tuple[str, ...]
    users: tuple[str, ...]


def find_surplus(found: ObservedServing, rig: Rig, wanted: Generation, users: Collection[str]) -> Surplus:
    """The objects that can go once a generation is activated: all but the newest generations, damaged ones, those that
    never served, and objects that only those referred to.

    Args:
        found: The host.
        rig: Its target.
        wanted: The generation.
        users: Those on the host that we have made.
    """
    wanted_number = found.number_of(wanted) or found.next_number
    ways_back = [k for k in found.generations if k.is_intact and k.proven and k.number != wanted_number]
    others = sorted(ways_back, key=lambda kept: -kept.number)
    kept = others[: rig.keep_generations - 1]
    keys = {credential_path(rig.roots, instance) for instance in rig.instances}
    needed = keys.union(*(k.references for k in kept), wanted.files["references"].splitlines())
    stay = {wanted_number, *(k.number for k in kept)}
    gone = sorted(k.number for k in found.generations if k.number not in stay)
    # tools of environments are of use as long as there is one to be put together
    used = {path for path in found.folders if rig.envs and path.startswith(f"{rig.roots.software}/{INSTALLERS}-")}
    # unfinished work on a kept object is the next job's, which begins anew
    used |= {path for path in found.folders if _final_folder(path, rig.roots) in needed}
    # which of them a gateway needs, it looks after itself
    used |= {path for path in found.folders if rig.gateway and path.startswith(f"{rig.roots.credentials}/gateway-")}
    loose = sorted(path for path in found.folders - needed - used if _is_own_path(path, rig.roots))
    # a generation from before users were recorded has no known user
    run_as = [users if k.users is None else k.users for k in kept]
    idle = sorted(set(users) - set(account_names(rig)).union(*run_as))
    return Surplus(tuple(gone), tuple(loose), tuple(idle))


def _final_folder(path: str, roots: Roots) -> str:
    """The folder that something is the beginning of."""
    folder, _, name = path.rpartition("/")
    making = folder == roots.builds or (folder == roots.installations and name.startswith(".making-"))
    return roots.installation_path(name.removeprefix(".making-")) if making else ""


def _is_own_path(path: str, roots: Roots) -> bool:
    """Whether a path is where Rigwright puts such things, for every source of the path."""
    software, keys = re.escape(roots.software), re.escape(f"{roots.config}/credentials")
    ours = rf"{software}/(?:engines/(?:\.making-)?[A-Za-z0-9]|tools-|cuda-|{INSTALLERS}-)[A-Za-z0-9._+-]*"
    ours += rf"|{re.escape(roots.builds)}/[A-Za-z0-9][A-Za-z0-9._+-]*"
    ours += rf"|{keys}/(?:[a-z0-9.-]+\.api-key|gateway-keys\.json|gateway-[a-z0-9-]+\.pem)"
    ours += rf"|(?:{CACHES}/[a-z0-9-]+|{WARM})/[A-Za-z0-9][A-Za-z0-9._+-]*"
    return re.fullmatch(ours, path) is not None
