"""Facts of a host's cards: settings in force, and processes that use them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rigwright.host import pci_cards
from rigwright.host.script_output import (
    Schema,
    free_text,
    number,
    optional,
    parse_output,
    path,
    sha256,
)
from rigwright.host.service_states import NO_SERVICE, UNIT_SCHEMA, ServiceState, read_service_states
from rigwright.model.catalog_schema import Card
from rigwright.model.instance import POWER_UNIT
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.roots import Roots
from rigwright.nvidia.cards import topology
from rigwright.nvidia.cards.card_setting_files import APPLIED, power_digest, record_path
from rigwright.nvidia.cards.smi import Gpu
from rigwright.nvidia.cards.topology import Topology
from rigwright.nvidia.driver.driver_facts import PERSISTENCE_UNIT, DriverFacts
from rigwright.nvidia.driver.driver_plan import DriverPlan
from rigwright.nvidia.value_parsers import sysctl_name
from rigwright.render import render

CARD_SCHEMA: Schema = {
    **topology.TOPOLOGY_SCHEMA,
    **UNIT_SCHEMA,
    "applied": (optional(sha256),),
    "sysctl": (sysctl_name, free_text),
    "record": (sha256,),
}
POWER_TOLERANCE = 1.0  # W. A card rounds its settings


@dataclass(frozen=True)
class CardFacts:
    """A host with its driver running."""

    units: Mapping[str, ServiceState]
    gpus: dict[str, Gpu]
    """The cards that answer, by address."""
    applied: str
    """Which limits and clocks were set last (`power_digest`); empty where that did not come to its end."""
    sysctl: dict[str, str]
    record: str
    """SHA-256 of what is written down; empty where nothing is."""
    topology: Topology


def required_units(driver_entry: DriverEntry) -> tuple[str, ...]:
    """The units that have to run for a rig's cards; the daemon of an operator's own driver is the operator's."""
    daemon = [PERSISTENCE_UNIT] if driver_entry.managed else []
    return (*daemon, *([POWER_UNIT] if driver_entry.sets_cards else []))


def render_card_query(roots: Roots, driver_entry: DriverEntry) -> str:
    """The script that asks a rig's host; its output is for `parse`."""
    return render(
        "nvidia_driver/live.sh.j2",
        units=required_units(driver_entry),
        sysctl=list(driver_entry.sysctl),
        applied=APPLIED,
        record=record_path(roots),
        **topology.topology_values(),
    )


def parse(output: Iterable[str]) -> CardFacts:
    """Read what the script has printed.

    Raises:
        ValueError: it is not what a host can tell.
    """
    told = parse_output(output, CARD_SCHEMA)
    gpus, _ = topology.parse_answering_cards(told)
    return CardFacts(
        units=read_service_states(told),
        gpus={gpu.address: gpu for gpu in gpus},
        applied=told.one("applied"),
        sysctl=dict(told.many("sysctl")),
        record=next(iter(told.all("record")), ""),
        topology=topology.build_topology(told),
    )


def find_unset(
    roots: Roots, cards: tuple[Card, ...], reserved_gpus: tuple[int, ...], driver_entry: DriverEntry, live: CardFacts
) -> dict[str, list[str]]:
    """The settings that differ from the rig's: the step -> why.

    The keys are `reload`, `enable UNIT`, `restart UNIT` and `sysctl`.
    """
    found: dict[str, list[str]] = {}

    def note(step: str, why: str) -> None:
        found.setdefault(step, []).append(why)

    for name in required_units(driver_entry):
        there = live.units.get(name, NO_SERVICE)
        if there.reload_needed:
            note("reload", f"{name} was changed")
            note(f"restart {name}", f"{name} was changed")
        if there.enabled != "enabled":
            note(f"enable {name}", f"{name} is {there.enabled}")
        if there.active != "active":
            note(f"restart {name}", f"{name} is {there.active}")
    places = [one.address for one in live.topology.cards]
    reserved = {place for gpu_index, place in enumerate(places) if gpu_index in reserved_gpus}
    if driver_entry.managed:
        for address, gpu in live.gpus.items():
            if gpu.persistence != "Enabled" and address not in reserved:
                note(f"restart {PERSISTENCE_UNIT}", f"persistence mode of {address} is {gpu.persistence}")
    if driver_entry.sets_cards:
        if live.applied != power_digest(roots, cards, driver_entry):
            note(f"restart {POWER_UNIT}", "the declared limits and clocks were not set")
        for gpu_index, (address, wanted) in enumerate(zip(places, driver_entry.power_limits(len(cards)), strict=False)):
            card = live.gpus.get(address)
            if wanted is not None and not has_limit(card, wanted):
                has = "no" if card is None or card.limit_w is None else f"{card.limit_w:g}"
                note(f"restart {POWER_UNIT}", f"card {gpu_index} is limited to {has} W, {wanted} W are declared")
    for name, value in driver_entry.sysctl.items():
        if live.sysctl.get(name) != str(value):
            note("sysctl", f"{name} is {live.sysctl.get(name) or 'not there'}, {value} is declared")
    return found


def render_cards_record(live: CardFacts) -> str:
    """The record where the driver is the operator's: the cards, and the state in which each was seen."""
    return json.dumps(live.topology.record(), indent=2, sort_keys=True) + "\n"


def render_driver_record(plan: DriverPlan, facts: DriverFacts, live: CardFacts) -> str:
    """The record of a driver: later roles bind to it, and checks tell by it what has moved since."""
    rows = {
        "version": facts.library.driver if facts.library else "",
        "branch": plan.branch,
        "flavour": plan.flavour,
        "source": plan.source,
        "kernel": facts.kernel,
        "packages": {package.name: package.version for package in facts.driver_packages},
        **live.topology.record(),
    }
    return json.dumps(rows, indent=2, sort_keys=True) + "\n"


def record_digest(text: str) -> str:
    """SHA-256 of a record."""
    return hashlib.sha256(text.encode()).hexdigest()


def has_limit(gpu: Gpu | None, watts: int) -> bool:
    """Whether a card answers and has a power limit, W."""
    return gpu is not None and gpu.limit_w is not None and abs(gpu.limit_w - watts) <= POWER_TOLERANCE


# The driver's own daemon; it ends and starts by itself
PERSISTENCE = "nvidia-persistenced"
# Characters of a process's name that the kernel keeps (proc_pid_comm(5))
COMM_LENGTH = 15
SLICE = "/rigwright.slice/"
ENDS = "; the reboot ends it"
FILE = re.compile(r"/dev/nvidia([0-9]{1,4})")

# MiB of a card that belong to no compute process. Measured with driver 580.159.04 on an H200: 0 while idle, 9 next to
# one process of 1542. An X server without a desktop has some 4 (https://github.com/ollama/ollama/issues/5240), one
# program of a desktop more than 300 (https://github.com/ollama/ollama/issues/15179).
UNEXPLAINED_MIB = 256


HOLDERS_SCHEMA: Schema = {**pci_cards.CARD_SCHEMA, "holder": (number, free_text, free_text, path)}


@dataclass(frozen=True)
class ForeignProcesses:
    """Processes that are not Rigwright's, each with its pid and name."""

    strangers: tuple[str, ...] = ()
    """Processes with a card that is not reserved, and the files of their cards."""
    borrowers: tuple[str, ...] = ()
    """Processes with reserved cards only: CUDA opens no card that it may not see."""


def render_holders_query() -> str:
    """The script for a host; `parse_holders` parses its output."""
    return render("nvidia_driver/holders.sh.j2", devices=pci_cards.DEVICES)


def parse_holders(output: Iterable[str], reserved_gpus: Collection[int]) -> ForeignProcesses:
    """The processes that hold cards, from the output of the script.

    Args:
        output: Lines of the output.
        reserved_gpus: GPU indexes of the cards that are reserved.

    Raises:
        ValueError: the output has another form.
    """
    told = parse_output(output, HOLDERS_SCHEMA)
    # a file has the driver's own number of the card
    gpu_indexes = {
        one.minor: gpu_index for gpu_index, one in enumerate(pci_cards.read_pci_cards(told)) if one.minor is not None
    }
    found: dict[tuple[int, str, str], list[str]] = {}
    for pid, name, cgroup, device in told.many("holder"):
        if name.strip()[:COMM_LENGTH] != PERSISTENCE[:COMM_LENGTH] and not cgroup.startswith(SLICE):
            found.setdefault((pid, name.strip(), cgroup), []).append(device)
    strangers, borrowers = [], []
    for (pid, name, cgroup), devices in sorted(found.items()):
        who = f"pid {pid} ({name}{f', in {cgroup}' if cgroup not in ('', '/') else ''})"
        files = [FILE.fullmatch(device) for device in devices]
        used = {gpu_indexes.get(int(file[1])) if file else None for file in files}
        if (
            known := {gpu_index for gpu_index in used if gpu_index in reserved_gpus}
            if used <= set(reserved_gpus)
            else set()
        ):
            borrowers.append(
                f"{who} uses {format_card_list(known)}, which {'is' if len(known) == 1 else 'are'} reserved"
            )
        else:
            strangers.append(f"{who} holds {', '.join(devices)}")
    return ForeignProcesses(tuple(strangers), tuple(borrowers))


def format_card_list(gpu_indexes: Iterable[int | None]) -> str:
    """`card 4`, or `cards 4, 5 and 6`."""
    *some, last = [
        str(gpu_index) for gpu_index in sorted(gpu_index for gpu_index in gpu_indexes if gpu_index is not None)
    ]
    return f"cards {', '.join(some)} and {last}" if some else f"card {last}"


def describe_borrowers(
    reserved_gpus: tuple[int, ...], driver_entry: DriverEntry, borrowers: Sequence[str], ended: bool = False
) -> list[str]:
    """Lines of a plan about the reserved cards of a rig; empty if the rig reserves none.

    Args:
        reserved_gpus: GPU indexes.
        driver_entry: The declared driver.
        borrowers: Processes on these cards.
        ended: Whether a reboot ends these processes.
    """
    if not reserved_gpus:
        return []
    settings = (("driver.power_w", driver_entry.power_w), ("driver.clocks_mhz", driver_entry.clocks_mhz))
    kept = [name for name, value in settings if value is not None]
    one = len(reserved_gpus) == 1
    said = f"{format_card_list(reserved_gpus)}: no instance gets {'it' if one else 'one'}"
    if kept:
        said += f"; {' and '.join(kept)} {'holds' if len(kept) == 1 else 'hold'} for {'it' if one else 'them'} too"
    return [said, *(f"{one}{ENDS if ended else ''}" for one in borrowers)]
