"""Takeover: the operator's own unit or container that an instance replaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from rigwright.host import script_output
from rigwright.host.script_output import free_text, matching, number, one_of, optional, tolerant, unit, word, yes_or_no
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.fact_types import HostFacts
from rigwright.model.gateway_schema import DRAIN, Gateway
from rigwright.model.instance import Instance
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.serving.instance_units import OWNED_HEADER

UNIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_:.@-]{0,199}\.service")
# As Docker and podman allow them; the program's name before it tells its owner.
CONTAINER = re.compile(r"(?:(docker|podman):)?([A-Za-z0-9][A-Za-z0-9_.-]{0,127})")
OWN_NAMES = re.compile(r"rigwright|rw-job-")
RULE = "a unit such as vllm.service, or a container's name, docker:NAME or podman:NAME; none of Rigwright's own"


@dataclass(frozen=True)
class ExistingService:
    """The name of an operator's unit, or of a container."""

    name: str
    program: str = ""
    """docker or podman, where the declaration has it."""

    @property
    def is_unit(self) -> bool:
        """Whether systemd runs it by a unit file."""
        return UNIT.fullmatch(self.name) is not None

    def __str__(self) -> str:
        """As `--data` has it."""
        return f"{self.program}:{self.name}" if self.program else self.name


def parse_existing_service(value: object) -> ExistingService | None:
    """A name as it is given; None for an invalid name, or one of Rigwright's."""
    text = value if isinstance(value, str) else ""
    found = CONTAINER.fullmatch(text)
    name = text if UNIT.fullmatch(text) else found[2] if found else ""
    if not name or OWN_NAMES.match(name):
        return None
    return ExistingService(name, (found[1] or "") if found else "")


# systemd's states of a unit file that `disable` keeps from starting at boot, or that nothing starts there.
HELD = ("enabled", "enabled-runtime", "linked", "linked-runtime", "disabled", "static", "indirect", "alias")
START = 1800  # seconds that it may take to be started again; a unit's own limit is in its file
_identity = matching(r"[0-9a-f]{64}", "a container's id")
_name = tolerant(matching(CONTAINER.pattern, "a container's name"), "?")
SCHEMA: script_output.Schema = {
    "named": (word,),
    "recorded": (yes_or_no,),
    # the generation before, where there was one
    "before": (optional(number, None),),
    # its own name, whether systemd has it, its state, that of its unit file
    "unit": (unit, word, word, optional(word)),
    "ours": (yes_or_no,),
    "trigger": (tolerant(unit, "?"),),
    # program, id, name, state, restart policy, whether it goes with its end, the unit that runs it
    "container": (one_of("docker", "podman"), _identity, _name, word, optional(word), yes_or_no, tolerant(unit)),
    "fixed": (yes_or_no,),
    "port": (number,),
    "card": (number,),
    "client": (free_text,),
}
"""The output of templates/theirs/look.sh.j2."""
RECORDS_SCHEMA: script_output.Schema = {"record": (free_text, free_text)}
"""The output of templates/theirs/records.sh.j2: a name, and how it is brought back by hand."""


@dataclass(frozen=True)
class ExistingContainer:
    """One of an operator's, as its program tells of it."""

    program: str
    identity: str
    name: str
    state: str
    restart: str
    """Its restart policy, such as always or on-failure:3."""
    removed: bool
    """Whether it is removed when it ends."""
    unit: str
    """The unit that podman says it is run by; empty for none."""


@dataclass(frozen=True)
class ExistingServiceFacts:
    """A host's report of it."""

    named: ExistingService
    recorded: bool = False
    """Whether it was taken over already: its earlier state is recorded on the host."""
    before: int | None = None
    """The generation that was served beside it then; None where there was none."""
    unit: tuple[str, str, str, str] | None = None
    """Its own name, LoadState, ActiveState and UnitFileState, as systemd has them."""
    ours: bool = False
    triggers: tuple[str, ...] = ()
    """Units that start it."""
    containers: tuple[ExistingContainer, ...] = ()
    fixed: bool = False
    """Whether its program cannot change a restart policy."""
    ports: frozenset[int] = frozenset()
    """Of those that the rig declares, which it listens on."""
    cards: frozenset[int] = frozenset()
    """GPU indexes of those that it computes on."""
    client: str = ""
    """The program for containers that it runs."""

    @property
    def is_running(self) -> bool:
        """Whether it does now."""
        states = [self.unit[2]] if self.unit else [one.state for one in self.containers]
        return any(state in ("active", "activating", "reloading", "deactivating", "running") for state in states)

    @property
    def group(self) -> str:
        """The unit whose processes are its own."""
        if self.unit:
            return self.named.name
        return "".join(f"{_SCOPE[one.program]}-{one.identity}.scope" for one in self.containers)


def drain_seconds(gateway: Gateway | None) -> int:
    """Seconds that requests under way have to end before what answers them is stopped."""
    return gateway.drain if gateway else DRAIN


@dataclass(frozen=True)
class Takeover:
    """How an activation deals with it."""

    found: ExistingServiceFacts
    seat: str
    """The unit of the instance that comes in its place; empty where it comes back."""

    @property
    def is_returning(self) -> bool:
        """Whether it comes back."""
        return not self.seat

    def template_values(self, roots: Roots, gateway: Gateway | None) -> dict[str, object]:
        """The values of templates/theirs/take.sh.j2."""
        filters = ["sport = :0", *(f"sport = :{one}" for one in sorted(self.found.ports))]
        return {
            "theirs": self.found,
            "seat": self.seat,
            "back": self.is_returning,
            "record": f"{takeover_folder(roots)}/{self.found.named.name}",
            "ports": f"( {' or '.join(filters)} )",
            "drain": drain_seconds(gateway),
            "start": START,
            "ledger": roots.ledger,
        }


def render_restore_script(roots: Roots, gateway: Gateway | None, found: ExistingServiceFacts) -> str:
    """The script that brings it back where no generation was served before it."""
    return render(
        "theirs/back.sh.j2",
        config=roots.config,
        units=UNIT_FOLDER,
        **Takeover(found, "").template_values(roots, gateway),
    )


_SCOPE = {"docker": "docker", "podman": "libpod"}


def takeover_folder(roots: Roots) -> str:
    """Where a host keeps what those were that were taken over."""
    return f"{roots.state}/theirs"


def declared_ports(instances: tuple[Instance, ...], gateway: Gateway | None) -> list[int]:
    """Those that a rig's instances and its gateway are to have."""
    own = {one.port for one in gateway.listeners.values()} if gateway else set[int]()
    return sorted({one.port for one in instances} | own)


def render_takeover_query(
    roots: Roots, instances: tuple[Instance, ...], gateway: Gateway | None, named: ExistingService
) -> str:
    """The shell script that looks at it."""
    return render(
        "theirs/look.sh.j2",
        named=named,
        programs=[named.program] if named.program else ["docker", "podman"],
        ports=declared_ports(instances, gateway),
        record=f"{takeover_folder(roots)}/{named.name}",
        owned=OWNED_HEADER,
    )


def parse_existing_facts(output: Iterable[str]) -> ExistingServiceFacts:
    """Read what it has told.

    Raises:
        ValueError: it told something else.
    """
    told = script_output.parse_output(output, SCHEMA)
    named = parse_existing_service(told.one("named"))
    if named is None:
        raise ValueError("the host reported an unrequested service")
    return ExistingServiceFacts(
        named=named,
        recorded=told.one("recorded"),
        before=next(iter(told.all("before")), None),
        unit=next(iter(told.many("unit")), None),
        ours=True in told.all("ours"),
        triggers=tuple(told.all("trigger")),
        containers=tuple(ExistingContainer(*row) for row in told.many("container")),
        fixed=True in told.all("fixed"),
        ports=frozenset(told.all("port")),
        cards=frozenset(told.all("card")),
        client=next(iter(told.all("client")), ""),
    )


def find_takeover_refusals(
    instances: tuple[Instance, ...], gateway: Gateway | None, coming: str, found: ExistingServiceFacts
) -> list[str]:
    """Why it cannot be taken over; empty where it can.

    Args:
        instances: The declared instances.
        gateway: The declared gateway.
        coming: The instance of it that is to come in its place.
        found: The host's report of it.
    """
    instance = next(one for one in instances if one.name == coming)
    name = found.named.name
    reasons = list(_find_unit_refusals(found)) if found.named.is_unit else list(_find_container_refusals(found))
    if found.ours:
        reasons.append(f"{name} is Rigwright's own")
    if reasons or found.recorded:
        return reasons
    if not found.is_running:
        return [f"{name} does not run: a deploy without --from is enough"]
    if not (found.ports or found.cards & {*instance.cards} or found.client):
        have = f"any of the ports {', '.join(map(str, declared_ports(instances, gateway)))}"
        cards = f", nor computes on a card of {instance.name}" if instance.cards else ""
        return [f"{name} does not listen on {have}{cards}: it blocks no deploy and does not stop"]
    return []


def _find_unit_refusals(found: ExistingServiceFacts) -> Iterator[str]:
    name = found.named.name
    own, loaded, _, state = found.unit or (name, "not-found", "", "")
    if loaded == "not-found":
        yield f"there is no unit {name}"
    elif own != name:
        yield f"{name} is an alias of {own}: use that name"
    elif loaded != "loaded" or state not in HELD:
        yield (
            f"the unit file of {name} is {state or loaded}: Rigwright cannot disable and restore it; stop "
            "it yourself, then deploy"
        )
    for one in found.triggers:
        yield f"{one} starts {name}: stop and disable it first"


def _find_container_refusals(found: ExistingServiceFacts) -> Iterator[str]:
    name = found.named.name
    if not found.containers:
        yield f"neither Docker nor podman has a container {name}; name a unit with its suffix, {name}.service"
    elif len(found.containers) > 1:
        yield f"Docker and podman have a container {name} each: name docker:{name} or podman:{name}"
    for one in found.containers[:1]:
        if one.removed:
            yield f"{name} disappears when it stops (--rm), so it cannot be restored: stop it yourself, then deploy"
        if one.unit:
            yield f"{one.unit} runs {name} and would start it again: name that unit"
        if found.fixed and one.restart not in ("", "no"):
            yield f"this {one.program} cannot change the restart policy of {name} ({one.restart}): stop it yourself"


def without_ports_of(facts: HostFacts, found: ExistingServiceFacts) -> HostFacts:
    """A host as it will be without what listens on its ports."""
    return replace(facts, listeners=tuple(one for one in facts.listeners if one.port not in found.ports))


def describe_takeover(
    gateway: Gateway | None, instance: Instance, found: ExistingServiceFacts, start_seconds: float | None
) -> Iterator[str]:
    """The steps of a takeover, and their effects on its clients, a line each.

    Args:
        gateway: The declared gateway.
        instance: The instance that replaces it.
        found: The host's report of it.
        start_seconds: The instance's time from its start to its first answer; None where that is not known.
    """
    name = found.named.name
    if found.recorded and not found.is_running:
        yield f"an earlier takeover has already stopped {name}: this run continues it"
        return
    holds = [f"port {one}" for one in sorted(found.ports)]
    holds += [f"card {one}" for one in sorted(found.cards & {*instance.cards})]
    what = " and ".join(holds) or f"the processes of its {found.client}"
    yield f"{name} uses {what}: it stops, and {instance.name} replaces it; both cannot use that at once"
    yield (f"before that its connections have {drain_seconds(gateway)} s to end; it accepts new ones until it stops")
    how = "disabled" if found.named.is_unit else "kept from starting again (restart policy no)"
    yield f"it is {how}, and restored if {instance.name} does not serve"
    last = "unknown, because it has no recorded start time" if start_seconds is None else f"about {start_seconds:.0f} s"
    yield f"downtime, from its stop to the first answer of {instance.name}: {last}"


def render_records_query(roots: Roots) -> str:
    """The shell script that tells which were taken over."""
    return render("theirs/records.sh.j2", folder=takeover_folder(roots))


def parse_takeover_records(output: Iterable[str]) -> list[str]:
    """Parse its output, a line each.

    Raises:
        ValueError: it told something else.
    """
    return [
        f"{name} was taken over: `{how}` restores it"
        for name, how in script_output.parse_output(output, RECORDS_SCHEMA).many("record")
    ]
