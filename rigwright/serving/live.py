"""What a host serves now: its generations, units and processes as found, and what it takes to get to another one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rigwright.declaration.rig import Rig
from rigwright.render import render
from rigwright.serving.generation import JOURNAL, META, PROVEN, SETTLE, Generation
from rigwright.serving.units import DIGEST_VARIABLE, OWNED, STARTED_FROM, UNITS, Slot, credential_path

# What the state script prints one line of each.
SINGLE = ("current", "activating", "job", "loaded", "enabled", "reload", "elsewhere")
# The unit that an activation runs as.
JOB = "rw-job-activate"


@dataclass(frozen=True)
class Kept:
    """A generation that lies on the host."""

    number: int
    sealed: str
    """Its digest when it was written."""
    found: str
    """Its digest now."""
    created: str
    """UTC, as `date +%Y-%m-%dT%H:%M:%SZ` prints it."""
    proven: bool = True
    """Whether all its instances have answered once."""
    references: frozenset[str] = frozenset()

    @property
    def intact(self) -> bool:
        """Whether nobody has changed it."""
        return self.sealed == self.found


@dataclass(frozen=True)
class Process:
    """A unit of ours as systemd knows it, and its main process."""

    state: str
    sub: str
    restarts: int
    """By systemd itself, since somebody last started it."""
    pid: int
    digest: str
    """Of the unit that the process was started from; empty where there is none."""
    started_from: str
    """SHA-256 of the unit file and environment file that it was started from."""
    key_current: bool
    """Whether the key it was given, and the weights it has mapped, are the ones on disk."""
    port: int
    cards: frozenset[int]

    def blocks(self, slot: Slot) -> bool:
        """Whether it holds the port or a card that another unit is to have."""
        return self.pid != 0 and (self.port == slot.port or bool(self.cards & slot.cards))

    def fits(self, slot: Slot) -> bool:
        """Whether it was started from this unit, with the key and the weights that lie on the host."""
        return (self.digest, self.started_from, self.key_current) == (slot.digest, slot.started_from, True)

    @property
    def loading(self) -> bool:
        """Whether its start is under way, and no earlier one has failed."""
        return self.state == "activating" and self.sub != "auto-restart" and not self.restarts and self.pid != 0


@dataclass(frozen=True)
class Served:
    """A host's serving side, in one look (templates/generation/state.sh.j2)."""

    generations: tuple[Kept, ...] = ()
    current: int | None = None
    elsewhere: str = ""
    """The configuration's folder that the host is served from, where it is another one than was asked for."""
    activating: bool = False
    """An activation was begun and not finished."""
    job: bool = False
    """An activation is under way now."""
    loaded: str = ""
    """Description of the target, as systemd has read it."""
    enabled: bool = False
    reload_needed: bool = False
    links: dict[str, str] = field(default_factory=dict)
    """Unit file of ours -> what it links to; empty for an ordinary file with our first line."""
    processes: dict[str, Process] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    """Absolute paths of complete engines and tools, and of API keys."""

    def number_of(self, wanted: Generation) -> int | None:
        """The newest unchanged generation with this content."""
        return max((k.number for k in self.generations if k.intact and k.sealed == wanted.digest), default=None)

    @property
    def next_number(self) -> int:
        """What the next generation is called."""
        return max((kept.number for kept in self.generations), default=0) + 1


@dataclass(frozen=True)
class Goal:
    """What is to be served, as far as getting there goes."""

    number: int | None
    """Of its generation on the host; None where it is not written yet."""
    mark: str
    unit_files: tuple[str, ...]
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Activation:
    """What it takes to serve a generation. Units are named in the order in which they are dealt with."""

    stop: tuple[str, ...] = ()
    """Ours that are not declared, and those that hold what another one is to have."""
    restart: tuple[str, ...] = ()
    await_: tuple[str, ...] = ()
    """On their way already."""


def goal(found: Served, wanted: Generation) -> Goal:
    """A rig's generation as a goal on a host."""
    slots = tuple(unit.slot for unit in wanted.units)
    return Goal(found.number_of(wanted), wanted.mark, wanted.unit_files, slots)


def activation(found: Served, config: str, goal: Goal) -> Activation | None:
    """The way from what a host serves to a generation; None where it is there.

    Args:
        found: The host.
        config: The configuration's folder.
        goal: The generation.
    """
    slots = {slot.unit: slot for slot in goal.slots}
    strays = [name for name, one in found.processes.items() if name not in slots and _up(one)]
    stale = [name for name, slot in slots.items() if not _right(found.processes.get(name), slot)]
    loading = [name for name in slots if name not in stale and found.processes[name].loading]
    in_the_way = [
        name
        for name in stale
        if (one := found.processes.get(name)) and any(one.blocks(s) for n, s in slots.items() if n != name)
    ]
    links = {name: f"{config}/current/units/{name}" for name in goal.unit_files}
    settled = (
        (found.current, found.links, found.enabled, found.reload_needed, found.activating)
        == (goal.number, links, True, False, False)
    ) and goal.mark in found.loaded
    # where neither the link nor the generation is there, the two are not the same
    settled = settled and any(kept.number == goal.number and kept.proven for kept in found.generations)
    if settled and not strays and not stale and not loading:
        return None
    return Activation((*sorted(strays), *sorted(in_the_way)), tuple(stale), tuple(loading))


def only_loading(way: Activation | None) -> bool:
    """Whether all that is left is to wait."""
    return way is not None and not way.stop and not way.restart and bool(way.await_)


def _up(process: Process) -> bool:
    return process.state not in ("inactive", "failed")


def _right(process: Process | None, slot: Slot) -> bool:
    return process is not None and process.fits(slot) and (process.state == "active" or process.loading)


@dataclass(frozen=True)
class Surplus:
    """What nothing that is kept refers to."""

    generations: tuple[int, ...]
    paths: tuple[str, ...]


def surplus(found: Served, rig: Rig, wanted: Generation) -> Surplus:
    """What can go once a generation is activated: all but the newest generations, what is damaged or never
    served, and what only those referred to.
    """
    wanted_number = found.number_of(wanted) or found.next_number
    ways_back = [k for k in found.generations if k.intact and k.proven and k.number != wanted_number]
    others = sorted(ways_back, key=lambda kept: -kept.number)
    kept = others[: rig.keep_generations - 1]
    keys = {credential_path(rig, instance) for instance in rig.instances}
    needed = keys.union(*(k.references for k in kept), wanted.files["references"].splitlines())
    stay = {wanted_number, *(k.number for k in kept)}
    gone = sorted(k.number for k in found.generations if k.number not in stay)
    return Surplus(tuple(gone), tuple(sorted(found.folders - needed)))


def parse_goal(number: int, lines: list[str]) -> Goal:
    """Read the lines of templates/generation/goal.sh.j2 about a generation that lies on the host.

    Raises:
        ValueError: a line is malformed.
    """
    mark = ""
    files, slots = [], []
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "mark":
            mark = value
        elif key == "file":
            files.append(value)
        elif key == "slot":
            unit, digest, started_from, port, cards = value.split(" ")
            slots.append(Slot(unit, digest, started_from, int(port), _cards(cards)))
    return Goal(number, mark, tuple(files), tuple(slots))


def _cards(text: str) -> frozenset[int]:
    """The cards in `cards=0,1`; what is no number (a UUID, on a unit that somebody else wrote) is none of the rig's."""
    return frozenset(int(index) for index in text.removeprefix("cards=").split(",") if index.isdecimal())


def state_script(config: str, software: str) -> str:
    """The shell script that prints what a host serves."""
    return render(
        "generation/state.sh.j2",
        config=config,
        software=software,
        meta=META,
        proven=PROVEN,
        journal=JOURNAL,
        job=JOB,
        settle=SETTLE,
        units=UNITS,
        owned=OWNED,
        digest=DIGEST_VARIABLE,
        started_from=STARTED_FROM,
    )


def parse(lines: list[str]) -> Served:
    """Read the lines of templates/generation/state.sh.j2.

    Raises:
        ValueError: a line is malformed.
    """
    generations: dict[int, Kept] = {}
    references: dict[int, set[str]] = {}
    single: dict[str, str] = {}
    links: dict[str, str] = {}
    processes: dict[str, Process] = {}
    folders: set[str] = set()
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "generation":
            number, sealed, now, created, served = value.split(" ")
            generations[int(number)] = Kept(int(number), sealed, now, created, served == "proven")
        elif key == "reference":
            number, _, path = value.partition(" ")
            references.setdefault(int(number), set()).add(path)
        elif key == "link":
            name, _, target = value.partition(" ")
            links[name] = target
        elif key == "process":
            name, state, sub, restarts, pid, digest, started, has_key, port, cards = value.split(" ")
            processes[name] = Process(
                *(state, sub, int(restarts), int(pid), digest.strip("-"), started.strip("-"), has_key == "current"),
                *(int(port), _cards(cards)),
            )
        elif key == "folder":
            folders.add(value)
        else:
            single[key] = value
    if missing := [key for key in SINGLE if key not in single]:
        raise ValueError(f"the state script printed no {missing[0]!r}")
    # a link to anywhere else is none of ours, and is put right
    current = single["current"].removeprefix("generations/")
    return Served(
        generations=tuple(
            replace(k, references=frozenset(references.get(k.number, ())))
            for k in sorted(generations.values(), key=lambda kept: kept.number)
        ),
        current=int(current) if current.isdigit() else None,
        elsewhere=single["elsewhere"],
        activating=single["activating"] == "yes",
        job=single["job"] in ("active", "activating"),
        loaded=single["loaded"],
        enabled=single["enabled"] == "enabled",
        reload_needed=single["reload"] != "0",
        links=links,
        # a unit that somebody else has given such a name is theirs: neither its file nor its process has our mark
        processes={name: one for name, one in processes.items() if name in links or one.digest},
        folders=frozenset(folders),
    )
