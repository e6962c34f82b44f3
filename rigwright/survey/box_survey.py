"""A box before its declaration: the survey's output as a typed value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from rigwright.host import basic_facts, script_output
from rigwright.host.basic_facts import ListeningSocket, unit_of
from rigwright.host.pci_cards import PciCard
from rigwright.host.script_output import (
    HostOutput,
    free_text,
    matching,
    number,
    optional,
    path,
    text,
    tolerant,
    version,
    word,
)
from rigwright.nvidia.cards.smi import bus_address

# Debian's and Ubuntu's services that open every card and compute nothing on it
KEEPERS = frozenset({"nvidia-persistenced", "nvidia-persiste", "nv-fabricmanage", "nv-fabricmanager", "nv-hostengine"})
CONTAINER = re.compile(r"[0-9a-f]{64}")


def _parse_count(text: str) -> int:
    """A count; 0 for what is not known ("", "[N/A]", "Unknown")."""
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text.strip()) else 0


def _parse_record_rig(value: str) -> str:
    """The rig that a record names; empty for one that cannot be read."""
    try:
        read = json.loads(value)
    except (ValueError, RecursionError):
        return ""
    return free_text(str(read.get("rig", ""))) if isinstance(read, dict) else ""


SCHEMA: script_output.Schema = {
    **basic_facts.SCHEMA,
    "hostname": (free_text,),
    "cpus": (number,),
    "numa_nodes": (number,),
    "disk": (free_text, word, word, number, number, tolerant(path)),
    "driver": (optional(version),),
    "gpu": (free_text,),
    "app": (free_text,),
    "nvlink": (word, number),
    "topo": (text,),
    "smi_failed": (free_text,),
    "process": (number, free_text, free_text, text),
    "unit": (script_output.unit, word, path),
    "container": (matching(CONTAINER.pattern, "a container's number"), word, free_text, free_text),
    "record": (_parse_record_rig,),
}
"""The output of templates/probe/survey.sh.j2."""


@dataclass(frozen=True)
class ObservedCard(PciCard):
    """A card, and what nvidia-smi says of it."""

    name: str = ""
    """As nvidia-smi prints it; empty without a driver that works, as the next two are."""
    vram_mib: int = 0
    capability: str = ""
    nvlinks: int = 0
    """NVLink links that are up."""
    nvlink_peers: tuple[int, ...] = ()
    """Numbers, in the order of the bus, of the cards that it reaches over NVLink."""


@dataclass(frozen=True)
class GpuProcess:
    """A process that has a card's device file open, or that nvidia-smi names."""

    pid: int
    user: str
    name: str
    unit: str
    """The systemd unit it runs in; empty where it is not known."""
    container: str
    """Engine, name and image of its container, or the container's id; empty outside of one."""
    memory_mib: tuple[tuple[int, int], ...] = ()
    """(card's number in the order of the bus, MiB) for each card that nvidia-smi sees it compute on."""

    @property
    def is_foreign(self) -> bool:
        """Whether foreign work is done there: neither an instance of Rigwright's nor the driver's own service."""
        return not self.unit.startswith("rigwright-") and self.name not in KEEPERS


@dataclass(frozen=True)
class ObservedDisk:
    """A mounted file system; sizes in KiB."""

    mount: str
    device: str
    type: str
    size_kib: int
    free_kib: int
    writable: bool

    @property
    def is_local(self) -> bool:
        """Whether it is on a disk of the box."""
        return self.type not in ("nfs", "nfs4", "cifs")


@dataclass(frozen=True)
class ObservedModelServer:
    """A unit that no package of the distribution brought and that looks like a model server."""

    name: str
    state: str
    path: str


@dataclass(frozen=True)
class BoxSurvey:
    """One box, as found."""

    os_id: str
    os_version: str
    hostname: str
    kernel: str
    uid: int
    memory_kib: int
    cpus: int
    numa_nodes: int
    cards: tuple[ObservedCard, ...] = ()
    """In the order of the PCI bus."""
    driver: str = ""
    """Version of the NVIDIA driver that is loaded."""
    smi_failure: str = ""
    """The error of nvidia-smi when it would not work; empty where it did, or there is none."""
    processes: tuple[GpuProcess, ...] = ()
    disks: tuple[ObservedDisk, ...] = ()
    listeners: tuple[ListeningSocket, ...] = ()
    units: tuple[ObservedModelServer, ...] = ()
    record: str | None = None
    """The rig that the box's record names; None without a record."""


def parse_survey(output: Iterable[str]) -> BoxSurvey:
    """Read what the survey has told (templates/probe/survey.sh.j2).

    Raises:
        ValueError: that is not what it was asked for.
    """
    told = script_output.parse_output(output, SCHEMA)
    found = basic_facts.read_basics(told)
    cards = _parse_cards(found.cards, told)
    return BoxSurvey(
        os_id=found.os_id,
        os_version=found.os_version,
        hostname=told.one("hostname"),
        kernel=found.kernel,
        uid=found.uid,
        memory_kib=found.memory_kib,
        cpus=told.one("cpus"),
        numa_nodes=told.one("numa_nodes"),
        cards=cards,
        driver=next(iter(told.all("driver")), ""),
        smi_failure=next((failure or "nothing" for failure in told.all("smi_failed")), ""),
        processes=_parse_processes(told, cards),
        disks=_distinct_disks(told.many("disk")),
        listeners=_distinct_listeners(found.listeners),
        units=tuple(sorted((ObservedModelServer(*row) for row in told.many("unit")), key=lambda one: one.name)),
        record=next(iter(told.all("record")), None),
    )


def _parse_cards(seen: tuple[PciCard, ...], told: HostOutput) -> tuple[ObservedCard, ...]:
    found = [ObservedCard(**vars(card)) for card in seen]
    place = {card.address: number for number, card in enumerate(found)}
    numbers: dict[str, int] = {}  # nvidia-smi's own -> ours
    for row in told.all("gpu"):
        parts = [part.strip() for part in row.split(",")]
        if len(parts) < 4:  # "No devices were found"
            continue
        index, bus, memory, *rest = parts
        number = place.get(bus_address(bus))
        if number is None:
            continue
        numbers[index] = number
        known = len(rest) > 1 and re.fullmatch(r"[0-9]{1,2}\.[0-9]", rest[0])
        name = ", ".join(rest[1:] if len(rest) > 1 else rest)
        capability = rest[0] if known else ""
        found[number] = replace(found[number], name=name, vram_mib=_parse_count(memory), capability=capability)
    for index, up in told.many("nvlink"):
        if index in numbers:
            found[numbers[index]] = replace(found[numbers[index]], nvlinks=up)
    for row in told.all("topo"):
        label, *cells = row.split("\t")
        index = label.strip().removeprefix("GPU")
        peers = (numbers.get(str(column)) for column, cell in enumerate(cells) if re.match(r"NV[0-9]", cell.strip()))
        if index in numbers:
            known_peers = tuple(sorted(peer for peer in peers if peer is not None))
            found[numbers[index]] = replace(found[numbers[index]], nvlink_peers=known_peers)
    return tuple(found)


def _parse_processes(told: HostOutput, cards: tuple[ObservedCard, ...]) -> tuple[GpuProcess, ...]:
    containers = {identifier: words for identifier, *words in told.many("container")}
    place = {card.address: number for number, card in enumerate(cards)}
    memory: dict[int, dict[int, int]] = {}
    for row in told.all("app"):
        bus, pid, mib = [*row.split(","), "", ""][:3]
        number = place.get(bus_address(bus))
        if number is not None:
            memory.setdefault(_parse_count(pid), {})[number] = _parse_count(mib)
    found: dict[int, GpuProcess] = {}
    for pid, user, name, cgroup in told.many("process"):
        within = CONTAINER.search(cgroup)
        container = " ".join(containers.get(within[0], [within[0][:12]])) if within else ""
        held = tuple(sorted(memory.get(pid, {}).items()))
        found[pid] = GpuProcess(pid, user, name, unit_of(cgroup), container, held)
    return tuple(found[pid] for pid in sorted(found))


def _distinct_disks(rows: list[tuple[Any, ...]]) -> tuple[ObservedDisk, ...]:
    """Each file system once, by its shortest mount point: others are bind mounts or subvolumes of the same room."""
    found: dict[str, ObservedDisk] = {}
    for device, kind, mode, size, free, mount in sorted(rows, key=lambda row: (len(row[5]), row[5])):
        # a place that cannot be written in one line is not suggested
        if mount:
            # the last one mounted over a place is the one that is seen there
            key = device if device.startswith("/dev/") or ":" in device else mount
            found.setdefault(key, ObservedDisk(mount, device, kind, size, free, mode == "rw"))
    return tuple(sorted(found.values(), key=lambda disk: disk.mount))


def _distinct_listeners(every: tuple[ListeningSocket, ...]) -> tuple[ListeningSocket, ...]:
    """Each port once, whatever the number of its addresses."""
    return tuple({one.port: one for one in every}.values())
