"""Standby instances, which start before a switch, and the downtime of a switch.

It is the same in all but its unit's name and its socket, and is gone once the one that stays has answered: of a host
that stops in between nothing of it is left (docs/design/decisions/0038-a-switch-has-a-stand-in.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from rigwright.engines import kind_of
from rigwright.engines.known_issues import place_instance
from rigwright.engines.memory_fit import GIB, MIB
from rigwright.gateway.gateway_units import ADMIN, SILENCE
from rigwright.gateway.secrets_distribution import ROUTER_UNIT
from rigwright.host import script_output
from rigwright.host.script_output import number
from rigwright.model.catalog_schema import Card
from rigwright.model.gateway_schema import Gateway
from rigwright.model.installation import Installation
from rigwright.model.instance import EnvSpec, Instance, patches_by_target
from rigwright.model.nvidia_tables import ToolkitSpec
from rigwright.model.rig import Rig
from rigwright.render import render
from rigwright.serving.activation import Activation
from rigwright.serving.instance_units import build_unit
from rigwright.serving.takeover import drain_seconds

# Where systemd finds unit files that no boot is to have.
RUNTIME_UNITS = "/run/systemd/system"
# Below it each has a folder like a generation's.
FOLDER = "/run/rigwright_beside"
# Bytes that an engine takes beside weights and KV cache, of each card or of RAM: 500 to 1500 MiB (club-3090,
# its page on hardware, of cards).
MORE = 1536 * MIB
# Seconds for clients that it still answers when it is stopped with the job that it is bound to. The next
# job waits for it to go (`roles.operations.jobs.LEAVING`).
MOST = 15

SCHEMA: script_output.Schema = {"memory": (number,), "card": (number, number, number)}
"""The output of templates/look/room.sh.j2: KiB that are available, and of each card its index, MiB that are free, and
MiB that a unit has."""


@dataclass(frozen=True)
class FreeMemory:
    """The free memory of a host, bytes."""

    memory: int
    """Of RAM, with what the kernel would give up."""
    cards: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By index: the free part, and the part of the running instance, which is free once it has ended."""


def render_memory_query(instance: Instance) -> str:
    """The shell script that tells what room there is beside an instance."""
    return render("look/room.sh.j2", unit=instance.unit)


def parse_free_memory(output: Iterable[str]) -> FreeMemory:
    """Read what it has told.

    Raises:
        ValueError: the host told something else.
    """
    told = script_output.parse_output(output, SCHEMA)
    return FreeMemory(
        told.one("memory") * 1024, {index: (free * MIB, held * MIB) for index, free, held in told.many("card")}
    )


def describe_standby_refusal(rig: Rig, instance: Instance, room: FreeMemory, *, renamed: bool) -> str:
    """Why an instance cannot be started beside the one that runs; empty where it can.

    For a moment there are the old one and it, and then it and the one that stays, which is the same again.

    Args:
        rig: The rig as it is to be.
        instance: The instance of it.
        room: The free memory on its host.
        renamed: Whether the gateway gets other settings, and may ask for a model by another name.
    """
    if not rig.gateway:
        return "the rig has no gateway to move clients to the new instance"
    if kind_of(instance).container_engine:
        return "it runs in a container"
    if renamed and kind_of(instance).validates_model_name:
        return "the gateway's settings change, and its engine refuses requests for another model name"
    if crowded := kind_of(instance).contention(instance):
        return crowded
    needed = _memory_needs(rig.cards, rig.instances, rig.envs, rig.toolkit, instance)
    if not needed:
        return "its lock has no memory figures"
    if not instance.cards:
        return _describe_shortage("RAM", 2 * needed[0], room.memory)
    for index, bytes_ in zip(instance.cards, needed, strict=True):
        free, held = room.cards.get(index, (0, 0))
        if short := _describe_shortage(f"card {index}", bytes_, free) or _describe_shortage(
            f"card {index}", 2 * bytes_, free + held
        ):
            return short
    return ""


def is_gateway_changed(way: Activation) -> bool:
    """Whether an activation gives the gateway other settings."""
    return bool(way.reload) or ROUTER_UNIT in way.restart


def _describe_shortage(what: str, needed: int, free: int) -> str:
    if needed <= free:
        return ""
    return f"{needed / GIB:.1f} GiB of {what} are needed, {free / GIB:.1f} are free"


def _memory_needs(
    declared_cards: tuple[Card, ...],
    instances: tuple[Instance, ...],
    envs: tuple[EnvSpec, ...],
    toolkit_spec: ToolkitSpec,
    instance: Instance,
) -> list[int]:
    """Bytes that one more of it takes, of each of its cards, or of RAM; nothing where that is not known."""
    cards = [declared_cards[index] for index in instance.cards]
    found = kind_of(instance).memory(
        place_instance(
            instance, cards, patches_by_target(instances, envs, toolkit_spec.patches).get(instance.installed_as, ())
        )
    )
    if found is None or found.cache is None:
        return []
    if not cards:
        # memory that may stay off a card is in RAM, too
        kept = found.bytes_for(found.tokens) - found.weights
        return [sum(file.size for file in instance.weights) + kept + MORE]
    each = found.bytes_for(found.tokens) // len(cards) + MORE
    # an engine with a share takes it at once
    shares = [int(card.vram_mib * MIB * found.share) if found.share < 1 else 0 for card in cards]
    return [max(each, share) for share in shares]


@dataclass(frozen=True)
class StandbyInstance:
    """One that is started beside another, as files and a unit."""

    instance: str
    unit: str
    seat: str
    """The name of the gateway's link to it."""
    folder: str
    """Where it finds what it otherwise finds in the current generation."""
    text: str
    """Its unit file."""
    files: Mapping[str, str]
    """Path in its folder -> text, of what is another than the generation's."""
    cards: tuple[int, ...]

    @property
    def unit_file(self) -> str:
        """Where that lies."""
        return f"{RUNTIME_UNITS}/{self.unit}"


def render_standby_drain(twin: Instance, seconds: int) -> str:
    """The shell script by which one that is stopped lets its clients end first.

    Args:
        twin: The instance that runs next to another.
        seconds: The time that requests have in any case when an engine is stopped; here at most `MOST`.
    """
    values = {"name": twin.name, "seat": twin.seat, "drain": min(seconds, MOST)}
    return render("serving/leave.sh.j2", admin=ADMIN, silence=SILENCE, **values)


def plan_standby(
    rig: Rig, instance: Instance, made: Installation, job: str, node: int | None = None
) -> StandbyInstance:
    """The standby instance next to one of a rig.

    Args:
        rig: The rig.
        instance: The instance.
        made: Its installation.
        job: The unit that starts it, with which it ends.
        node: As `rigwright.serving.instance_units.build_unit` has it.
    """
    twin = replace(instance, beside=True)
    own = build_unit(rig, twin, made, node)
    folder = f"{FOLDER}/{instance.name}"
    # of which the current generation may have none, or another
    text = own.text.replace(f"{rig.roots.config}/current/", f"{folder}/")
    bound = f"[Unit]\n# the job that moves clients to it and back must be there\nBindsTo={job}\nAfter={job}\n"
    requests = {f"warm-up/{own.instance}.{at}": one for at, one in enumerate(own.warm_up, start=1)}
    return StandbyInstance(
        instance=instance.name,
        unit=own.name,
        seat=twin.seat,
        folder=folder,
        text=text.replace("[Unit]\n", bound, 1),
        files={f"requests/{own.instance}": own.ready, "leave": render_standby_drain(twin, drain_seconds(rig.gateway))}
        | requests,
        cards=instance.cards,
    )


def describe_downtime(
    gateway: Gateway | None, instance: Instance, start_seconds: float | None, refused: str
) -> Iterator[str]:
    """The effects of a switch on clients, a line each.

    Args:
        gateway: The declared gateway.
        instance: The instance of it that changes.
        start_seconds: The time of the running one from its start to its first answer; None where it is not known, or
            none runs.
        refused: Why the new one cannot be started beside it (`rigwright.serving.standby.describe_standby_refusal`);
        empty where it can.
    """
    drained = f"running requests have {gateway.drain} s to end before that (gateway.drain)" if gateway else ""
    if not refused:
        yield f"{instance.name}: a second process starts and takes over once it answers; no downtime"
        yield f"then the old process stops: {drained}"
        yield f"its own port, {instance.port}, does not answer from then until the new process does"
        return
    last = "unknown, because it has no recorded start time"
    if start_seconds is not None:
        last = f"about {start_seconds:.0f} s, the start time of the present variant"
    yield f"downtime of {instance.name}, from the end of the old process to the new one's first answer: {last}"
    yield f"both cannot run at once: {refused}"
    if gateway:
        yield drained
        yield "clients of the gateway get 503 with `Retry-After` until then"
    else:
        yield f"clients of port {instance.port} wait, and running requests are cut off, because the rig has no gateway"
