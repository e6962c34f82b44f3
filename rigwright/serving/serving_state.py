"""Observed serving state of a host: generations, units, processes and their memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from rigwright.gateway import address_reservations
from rigwright.gateway.secrets_distribution import (
    GATEWAY_UNIT,
    HEALTH_UNIT,
    KEEPALIVED_UNIT,
    RESIDENCY_SOCKET,
    RESIDENCY_UNIT,
    ROUTER_SOCKET,
    ROUTER_UNIT,
)
from rigwright.host import script_output
from rigwright.host.generation_layout import ACTIVATING, JOB, META, PROVEN
from rigwright.host.script_output import (
    HostOutput,
    file_name,
    free_text,
    matching,
    number,
    optional,
    path,
    sha256,
    tolerant,
    unit,
    word,
    yes_or_no,
)
from rigwright.host.systemd import STARTED_FROM_FOLDER, UNIT_FOLDER, UNIX, UnitState
from rigwright.model.installation import MARKER
from rigwright.model.instance import CACHES, WARM
from rigwright.render import render
from rigwright.serving.generation import SETTLE, Generation, ManifestFacts, parse_manifest
from rigwright.serving.instance_units import OWNED_HEADER, PREFIX
from rigwright.supply.root_programs import INSTALLERS

# Names that Rigwright gives; everything else of such a kind belongs to others.
own_unit = matching(r"rigwright[-._][A-Za-z0-9:_.\\@-]{0,240}", "the name of a unit file of ours")
service = matching(
    rf"(rigwright-[a-z0-9][a-z0-9-]{{0,47}}|{PREFIX}[0-9]{{1,5}}|rigwright_(gateway|router|keepalived|health|residency))\.service|{address_reservations.RESERVATION_UNIT.pattern}",
    "a service of ours",
)
# The output of the state script (templates/generation/state.sh.j2).
SCHEMA: script_output.Schema = {
    # number, digest when it was written and now, when it was written, whether it has served; its files may have been
    # edited, which the digests show
    "generation": (number, tolerant(sha256), sha256, tolerant(word), yes_or_no),
    "manifest": (number, str),
    "mark": (number, tolerant(word)),
    "file": (number, tolerant(file_name)),
    "started": (number, tolerant(unit), sha256),
    "reference": (number, tolerant(path)),
    "current": (free_text,),
    "activating": (yes_or_no,),
    "job": (optional(word),),
    "loaded": (free_text,),
    "enabled": (yes_or_no,),
    "elsewhere": (free_text,),
    "reload": (number,),
    "link": (tolerant(own_unit), optional(path)),
    "masked": (tolerant(own_unit),),
    # unit, its states, restarts, whether it has a main process, what that was started from, whether its key and its
    # weights are those that lie on disk
    "process": (tolerant(service), word, word, optional(number, 0), yes_or_no, optional(sha256), yes_or_no, yes_or_no),
    # unit, and what root wrote down of the settings that it has read last
    "configured": (tolerant(service), optional(sha256)),
    # unit, and a line that its engine has said at this start, or at the first one that was as this is
    "said": (tolerant(service), free_text),
    "said_first": (tolerant(service), free_text),
    # an active socket unit, and the addresses where systemd listens on its port
    "holding": (
        matching(r"rigwright_((listener|gateway)-[0-9]{1,5}|router|residency)[.]socket", "a socket of ours"),
        free_text,
    ),
    "folder": (path,),
}
# Units of instances.
INSTANCE = re.compile(r"rigwright-[a-z0-9][a-z0-9-]{0,47}\.service")
NUMBER = re.compile(r"generations/([0-9]{1,9})")


@dataclass(frozen=True)
class ObservedGeneration:
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
    mark: str = ""
    """The end of its target's description."""
    unit_files: tuple[str, ...] = ()
    unit_states: tuple[UnitState, ...] = ()
    """The target states and holdings of its units' processes; none where it has no manifest that can be read."""
    users: frozenset[str] | None = None
    """That its instances run as; None where it does not say so."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """Instance -> the variant that it serves."""
    cards: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Instance -> GPU indexes that it has, in its order."""

    @property
    def is_intact(self) -> bool:
        """Whether it is unchanged."""
        return self.sealed == self.found


@dataclass(frozen=True)
class ObservedUnit:
    """A unit of ours as systemd knows it, and what root wrote down of its main process."""

    state: str
    sub: str
    restarts: int = 0
    """By systemd itself, since the last start by an operator or a role."""
    running: bool = True
    """Whether it has a main process."""
    started_from: str = ""
    """SHA-256 of the unit file and environment file that it was started from; empty if unknown."""
    key_current: bool = True
    """Whether the key it was given is the one on disk."""
    weights_current: bool = True
    """Whether the weights that it opened are the ones on disk."""
    configured_from: str = ""
    """SHA-256 of the settings that it has read last; empty if it has none, or they are unknown."""

    def is_running_from(self, unit_state: UnitState) -> bool:
        """Whether it was started from this unit, with the key and the weights that lie on the host."""
        return self.started_from == unit_state.started_from and self.key_current and self.weights_current

    def is_configured(self, unit_state: UnitState) -> bool:
        """Whether what it has read last is what its unit state has."""
        return self.configured_from == unit_state.configured_from

    @property
    def is_loading(self) -> bool:
        """Whether its start is under way, and no earlier one has failed."""
        return self.state == "activating" and self.sub != "auto-restart" and not self.restarts and self.running


@dataclass(frozen=True)
class ObservedServing:
    """A host's serving side, in one look (templates/generation/state.sh.j2)."""

    generations: tuple[ObservedGeneration, ...] = ()
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
    processes: dict[str, ObservedUnit] = field(default_factory=dict)
    sockets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Socket unit that listens -> the addresses where it does."""
    said: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Unit -> lines that its engine has said of itself at its last start, that its kind reads."""
    said_first: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The same of the first start from what it was started from now; none where that is not known."""
    folders: frozenset[str] = frozenset()
    """Absolute paths of complete engines and tools, of what instances have compiled, and of API keys."""

    def number_of(self, wanted: Generation) -> int | None:
        """The newest unchanged generation with this content."""
        return max((k.number for k in self.generations if k.is_intact and k.sealed == wanted.digest), default=None)

    @property
    def next_number(self) -> int:
        """The number of the next generation."""
        return max((kept.number for kept in self.generations), default=0) + 1

    @property
    def served_variants(self) -> Mapping[str, str]:
        """Instance -> the variant that the current generation serves."""
        return next((kept.variants for kept in self.generations if kept.number == self.current), {})

    @property
    def cards_by_instance(self) -> Mapping[str, tuple[int, ...]]:
        """Instance -> GPU indexes that it has in the current generation, in its order."""
        return next((kept.cards for kept in self.generations if kept.number == self.current), {})

    def is_running(self, name: str) -> bool:
        """Whether a unit has a process."""
        process = self.processes.get(name)
        return process is not None and process.running

    def held_state(self, name: str) -> UnitState | None:
        """The holdings of a unit's process, by the manifest of the generation that it was started from; None where it
        has none, or where no generation that is kept knows.
        """
        process = self.processes.get(name)
        if process is None or not process.running:
            return None
        known = (unit_state for kept in self.generations for unit_state in kept.unit_states if unit_state.unit == name)
        return next((unit_state for unit_state in known if unit_state.started_from == process.started_from), None)


def render_state_query(config: str, software: str, starts: str, builds: str, ledger: str) -> str:
    """The shell script that tells what a host serves, and what lies there of what was installed.

    Args:
        config: The configuration's folder.
        software: That of installations.
        starts: That of what instances have said at their first start.
        builds: That of what is being installed.
        ledger: The file that lists what we put there.
    """
    return render(
        "generation/state.sh.j2",
        config=config,
        software=software,
        starts=starts,
        builds=builds,
        ledger=ledger,
        installers=INSTALLERS,
        meta=META,
        proven=PROVEN,
        activating=ACTIVATING,
        job=JOB,
        settle=SETTLE,
        units=UNIT_FOLDER,
        owned=OWNED_HEADER,
        started_from=STARTED_FROM_FOLDER,
        listeners=PREFIX,
        unix=UNIX,
        marker=MARKER,
        gateway=GATEWAY_UNIT,
        router=ROUTER_UNIT,
        pair=[HEALTH_UNIT, KEEPALIVED_UNIT, RESIDENCY_UNIT],
        unix_sockets=[ROUTER_SOCKET, RESIDENCY_SOCKET],
        reserved=address_reservations.PREFIX,
        caches=CACHES,
        warm=WARM,
    )


def parse(output: Iterable[str]) -> ObservedServing:
    """Read what the state script has told.

    Raises:
        ValueError: it is not what was asked for.
    """
    return script_output.parse_output(output, SCHEMA).derive(_parse_state)


def _parse_state(told: HostOutput) -> ObservedServing:
    links = {name: target for name, target in told.many("link") if name}
    # a link to anywhere else is foreign, and is put right
    current = NUMBER.fullmatch(told.one("current"))
    # a mask lies where our link was: the unit that runs under it, or listens, is the earlier one
    known = {*links, *filter(None, told.all("masked"))}
    configured = dict(told.many("configured"))
    processes = {
        name: replace(ObservedUnit(*rest), configured_from=configured.get(name, ""))
        for name, *rest in told.many("process")
    }
    return ObservedServing(
        generations=tuple(
            sorted((_parse_generation(told, *row) for row in told.many("generation")), key=lambda kept: kept.number)
        ),
        current=int(current[1]) if current else None,
        elsewhere=told.one("elsewhere"),
        activating=told.one("activating"),
        job=told.one("job") in ("active", "activating"),
        loaded=told.one("loaded"),
        enabled=told.one("enabled"),
        reload_needed=told.one("reload") != 0,
        links=links,
        # a unit of such a name from another author is foreign: Rigwright neither wrote its file nor started its process
        processes={name: one for name, one in processes.items() if name and (name in known or one.started_from)},
        sockets={name: frozenset(at.split()) for name, at in told.many("holding") if name in known},
        said=_lines_by_unit(told, "said"),
        said_first=_lines_by_unit(told, "said_first"),
        folders=frozenset(told.all("folder")),
    )


def _lines_by_unit(told: HostOutput, key: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for unit_, line in told.many(key):
        if unit_:
            found.setdefault(unit_, []).append(line)
    return {unit_: tuple(lines) for unit_, lines in found.items()}


def _parse_generation(
    told: HostOutput, number: int, sealed: str, found: str, created: str, proven: bool
) -> ObservedGeneration:
    """One generation; one whose manifest was changed into none has no unit states, and is not intact."""

    def rows(key: str) -> list[list[str]]:
        return [rest for at, *rest in told.many(key) if at == number]

    started = dict(rows("started"))
    made = ManifestFacts()
    for (text,) in rows("manifest"):
        with suppress(ValueError):
            made = parse_manifest(text, started)
    return ObservedGeneration(
        number=number,
        sealed=sealed,
        found=found,
        created=created,
        proven=proven,
        references=frozenset(path for (path,) in rows("reference") if path),
        mark=next((mark for (mark,) in rows("mark")), ""),
        unit_files=tuple(sorted(name for (name,) in rows("file") if name)),
        unit_states=made.unit_states,
        users=made.users,
        variants=made.variants,
        cards=made.cards,
    )


@dataclass(frozen=True)
class UnitUsage:
    """Of one unit."""

    since: str
    """As systemd writes a moment; empty for a unit that was never active."""
    memory: int | None
    """Bytes of the whole service; None where it does not run."""
    start_seconds: float | None = None
    """From the beginning of its last start to its first answer; None where it is not known, or not over."""


MICRO = 1_000_000  # systemd's unit of time in a second
# systemd writes `[not set]` and the like for a unit that does not run
USAGE_SCHEMA: script_output.Schema = {
    "use": (unit, free_text, tolerant(number, None), tolerant(number, 0), tolerant(number, 0))
}
"""The output of templates/look/use.sh.j2."""


def parse_unit_usage(output: Iterable[str]) -> dict[str, UnitUsage]:
    """By unit.

    Raises:
        ValueError: the host told something else.
    """
    return {
        name: UnitUsage(since, memory, (ready - began) / MICRO if 0 < began < ready else None)
        for name, since, memory, began, ready in script_output.parse_output(output, USAGE_SCHEMA).many("use")
    }
