"""Operations on generations: written whole, activated with a way back, and pruned."""

from __future__ import annotations

import base64
import io
import shlex
import tarfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType

import gevent
from pyinfra import host, logger, state
from pyinfra.api import FactBase, FunctionCommand, QuoteString, StringCommand, operation
from pyinfra.api.exceptions import FactProcessError
from pyinfra.facts.files import FileContents

from rigwright.gateway.gateway_units import ROUTER_RUNTIME, RUNTIME
from rigwright.gateway.secrets_distribution import GATEWAY, ROUTER
from rigwright.host.generation_layout import ACTIVATING, JOB, META, file_mode
from rigwright.model.rig import Rig
from rigwright.serving import serving_state
from rigwright.serving.activation import (
    Activation,
    ActivationGoal,
    find_surplus,
    goal_for,
    goal_of,
    is_only_loading,
    plan_activation,
)
from rigwright.serving.activation_script import render_activation
from rigwright.serving.generation import Generation
from rigwright.serving.serving_state import ObservedGeneration, ObservedServing, render_state_query
from rigwright.serving.standby import RUNTIME_UNITS as RUNTIME_UNITS
from rigwright.serving.standby import (
    FreeMemory,
    StandbyInstance,
    describe_standby_refusal,
    is_gateway_changed,
    parse_free_memory,
    render_memory_query,
)
from rigwright.serving.takeover import Takeover
from roles.operations.facts import FactUnavailable, ReadOnlyScript, forget_prefetched
from roles.operations.files import show_diff
from roles.operations.jobs import run_job
from roles.progress import progress

Commands = Generator[FunctionCommand, None, None]
POLL = 0.3  # seconds between looks at instances that are loading
TIMEOUT = 1800  # seconds for instances that are loading already; how long a start may take is in its unit

RUNTIMES = {GATEWAY: RUNTIME, ROUTER: ROUTER_RUNTIME}


class ServingStateFact(FactBase[ObservedServing]):
    """The serving state of the host, in one command."""

    def command(self, config: str, software: str, starts: str, builds: str, ledger: str) -> ReadOnlyScript:
        """templates/generation/state.sh.j2."""
        return ReadOnlyScript(render_state_query(config, software, starts, builds, ledger))

    def process(self, output: list[str]) -> ObservedServing:
        """Read what it tells."""
        try:
            return serving_state.parse(output)
        except ValueError as error:
            raise FactProcessError(f"the state script: {error}") from error


class FreeMemoryFact(FactBase[FreeMemory]):
    """The free memory of the host."""

    def command(self, script: str) -> ReadOnlyScript:
        """templates/look/room.sh.j2."""
        return ReadOnlyScript(script)

    def process(self, output: list[str]) -> FreeMemory:
        """Read what it tells."""
        try:
            return parse_free_memory(output)
        except ValueError as error:
            raise FactProcessError(f"the room script: {error}") from error


def read_serving_state(rig: Rig) -> ObservedServing:
    """The serving state of the host of the running deploy.

    Raises:
        FactUnavailable: that is not known.
    """
    found: ObservedServing | None = host.get_fact(
        ServingStateFact,
        config=rig.roots.config,
        software=rig.roots.software,
        starts=rig.roots.startup_records,
        builds=rig.roots.builds,
        ledger=rig.roots.ledger,
    )
    if found is None:
        raise FactUnavailable(f"{host.name}: its serving state is unknown")
    return found


@operation()
def write_generation(rig: Rig, wanted: Generation) -> Generator[StringCommand, None, None]:
    """Write a generation in a folder of the next number, unless an unchanged one with its content is there.

    + rig: the rig
    + wanted: the generation
    """
    found = read_serving_state(rig)
    number = found.number_of(wanted)
    if number is not None:
        host.noop(f"generation {number} is up to date")
        return
    if state.config.DIFF:
        current = f"{rig.roots.config}/current"
        for path, text in sorted(wanted.files.items()):
            show_diff(f"{current}/{path}", host.get_fact(FileContents, path=f"{current}/{path}") or [], text)
    folder = QuoteString(rig.roots.generations)
    yield StringCommand(
        *("cd", folder, "&& rm -rf .new && mkdir .new && base64 -d | tar -x --no-same-owner -C .new"),
        *("&& echo", QuoteString(wanted.digest), "$(date -u +%Y-%m-%dT%H:%M:%SZ) >", QuoteString(f".new/{META}")),
        *("&& sync -f . && mv -T .new", QuoteString(str(found.next_number))),
        _stdin=[f"{line}\n" for line in pack_generation(wanted)],
    )


def pack_generation(wanted: Generation) -> list[str]:
    """A generation's folder as a tar archive in base64, by line."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        folders = {"/".join(path.split("/")[:-1]) for path in [*wanted.files, *wanted.links]} - {""}
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path, text in sorted(wanted.files.items()):
            entry = tarfile.TarInfo(path)
            content = text.encode()
            entry.size, entry.mode = len(content), int(file_mode(text), 8)
            entry.mtime = int(time.time())
            tar.addfile(entry, io.BytesIO(content))
        for path, target in sorted(wanted.links.items()):
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return base64.encodebytes(archive.getvalue()).decode().splitlines()


@operation()
def activate_generation(
    rig: Rig, wanted: Generation, timeout: int, beside: Mapping[str, StandbyInstance], taking: Takeover | None
) -> Commands:
    """Serve a generation: move the link, have systemd read it, restart what was not started from it, and wait until
    every instance has answered. When one does not, the earlier generation comes back and the operation fails.

    Runs on the host as a job, so that a lost connection leaves nothing half done. Compares what runs with what is
    wanted, never with what an earlier operation changed.

    + rig: the rig
    + wanted: the generation
    + timeout: seconds to wait for instances that are loading already
    + beside: unit of an instance -> the standby that is started before the running one is stopped, if there is room
    + taking: the earlier service, which is stopped for good before anything of ours starts
    """
    yield from _switch_generation(
        rig, read_serving_state(rig), lambda found: goal_for(found, wanted), timeout, beside, taking
    )


@operation()
def return_to_generation(rig: Rig, kept: ObservedGeneration, timeout: int, taking: Takeover | None = None) -> Commands:
    """Serve a generation that lies on the host; the way there is that of `activate_generation`.

    + rig: the rig, for where things are
    + kept: the generation
    + timeout: seconds to wait for instances that are loading already
    + taking: the earlier service, which comes back after it
    """
    yield from _switch_generation(rig, read_serving_state(rig), lambda found: goal_of(kept), timeout, taking=taking)


_planned: dict[str, Activation] = {}


def planned_activation(name: str) -> Activation:
    """The activation of a host, as the run has planned it before its first step; an empty one where there is none."""
    return _planned.get(name, Activation())


def _switch_generation(
    rig: Rig,
    found: ObservedServing,
    aim: Callable[[ObservedServing], ActivationGoal],
    timeout: int,
    beside: Mapping[str, StandbyInstance] = MappingProxyType({}),
    taking: Takeover | None = None,
) -> Commands:
    config = rig.roots.config
    way = plan_activation(found, config, aim(found))
    _planned[host.name] = way or Activation()
    deadline = time.monotonic() + timeout
    while state.is_executing and (found.job or is_only_loading(way)) and time.monotonic() < deadline:
        gevent.sleep(POLL)
        forget_prefetched()
        found = read_serving_state(rig)
        way = plan_activation(found, config, aim(found))
    if way is None and taking and (taking.is_returning or taking.found.is_running):
        way = Activation()
    if way is None or (is_only_loading(way) and not state.is_executing):
        host.noop("every instance is up to date")
        return
    number = aim(found).number or found.next_number
    seats = [one for unit, one in beside.items() if unit in way.restart and _has_room(rig, found, way, unit)]
    foreign = [name for name, target in sorted(found.links.items()) if not target]
    script = render_activation(rig, number, way, foreign, seats, taking)
    current, marker = shlex.quote(f"{config}/current"), shlex.quote(f"{config}/{ACTIVATING}")
    test = f'[ "$(readlink {current})" = generations/{number} ] && [ ! -e {marker} ]'
    yield FunctionCommand(run_job, (JOB, script, test, rig.roots.jobs), {})
    if state.is_executing:  # the job has succeeded
        progress.note_services(host.name, way.service_changes(found.processes))


def _has_room(rig: Rig, found: ObservedServing, way: Activation, unit: str) -> bool:
    """Whether one more of an instance can run beside the one that answers; says why not."""
    process = found.processes.get(unit)
    if not state.is_executing or process is None or process.state != "active":
        return False
    instance = next(one for one in rig.instances if one.unit == unit)
    room: FreeMemory | None = host.get_fact(FreeMemoryFact, script=render_memory_query(instance))
    why = (
        describe_standby_refusal(rig, instance, room, renamed=is_gateway_changed(way))
        if room
        else "the free memory is unknown"
    )
    if why:
        logger.info(f"{host.print_prefix}{instance.name} stops before the new process starts: {why}")
    return not why


@operation()
def prune_generations(rig: Rig, wanted: Generation, users: Sequence[str]) -> Generator[StringCommand, None, None]:
    """Remove the oldest generations, and engines, tools, keys and users that none of the others refers to.

    + rig: the rig
    + wanted: the generation that is to stay whatever happens
    + users: those on the host that we have made
    """
    gone = find_surplus(read_serving_state(rig), rig, wanted, users)
    if not gone.generations and not gone.paths and not gone.users:
        host.noop("nothing is left over")
        return
    for number in gone.generations:
        does = "removing" if state.is_executing else "would remove"
        logger.info(f"{host.print_prefix}{does} generation {number}")
    # generations first: the remaining ones would refer to missing objects
    for number in gone.generations:
        yield StringCommand("rm -rf", QuoteString(f"{rig.roots.generations}/{number}"))
    for path in gone.paths:
        # half of an engine must not be taken for one, and a key is never left under another name
        doomed = QuoteString(f"{path}.gone")
        yield StringCommand("rm -f", QuoteString(path), "2>/dev/null || mv -fT", QuoteString(path), doomed)
        yield StringCommand("rm -rf", doomed)
    for user in gone.users:
        if user in RUNTIMES:
            # it holds keys of engines, and the user's number may be given out again
            folder = QuoteString(RUNTIMES[user])
            yield StringCommand("umount --lazy", folder, "2>/dev/null; rm -rf --one-file-system", folder)
        # together: once it is gone it is not ours, and another one of that name may come
        forget_it = QuoteString(f"/^user {user}$/d")
        yield StringCommand("userdel", QuoteString(user), "&& sed -i", forget_it, QuoteString(rig.roots.ledger))
