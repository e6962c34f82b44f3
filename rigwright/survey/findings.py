"""What a box is before it is declared: the survey's output as a typed value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rigwright.host.facts import Listener
from rigwright.nvidia.cards.smi import bus_address

MARK = "survey"
# Debian's and Ubuntu's services that open every card and compute nothing on it
KEEPERS = frozenset({"nvidia-persistenced", "nvidia-persiste", "nv-fabricmanage", "nv-fabricmanager", "nv-hostengine"})
CONTAINER = re.compile(r"[0-9a-f]{64}")
UNIT = re.compile(r"([^/]+\.(?:service|scope))(?:/|\Z)")


@dataclass(frozen=True)
class SeenCard:
    """A display adapter of NVIDIA's on the PCI bus."""

    address: str
    pci_id: str
    numa_node: int | None = None
    """None where the machine has no NUMA nodes, or does not say."""
    width: int = 0
    """Lanes of its PCI link now; 0 where unknown."""
    width_max: int = 0
    """Lanes that the card has; 0 where unknown."""
    speed: str = ""
    """Of its link now, as sysfs prints it; an idle card's is low."""
    speed_max: str = ""
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
    def foreign(self) -> bool:
        """Whether somebody else's work is done there: not an instance of ours, and not the driver's own service."""
        return not self.unit.startswith("rigwright-") and self.name not in KEEPERS


@dataclass(frozen=True)
class Disk:
    """A mounted file system; sizes in KiB."""

    mount: str
    device: str
    type: str
    size_kib: int
    free_kib: int
    writable: bool

    @property
    def local(self) -> bool:
        """Whether it is on a disk of the box."""
        return self.type not in ("nfs", "nfs4", "cifs")


@dataclass(frozen=True)
class SeenUnit:
    """A unit that no package of the distribution brought and that looks like a model server."""

    name: str
    state: str
    path: str


@dataclass(frozen=True)
class Survey:
    """One box, as found."""

    os_id: str
    os_version: str
    hostname: str
    kernel: str
    uid: int
    memory_kib: int
    cpus: int
    numa_nodes: int
    cards: tuple[SeenCard, ...] = ()
    """In the order of the PCI bus."""
    driver: str = ""
    """Version of the NVIDIA driver that is loaded."""
    smi_failure: str = ""
    """What nvidia-smi said when it would not work; empty where it did, or there is none."""
    processes: tuple[GpuProcess, ...] = ()
    disks: tuple[Disk, ...] = ()
    listeners: tuple[Listener, ...] = ()
    units: tuple[SeenUnit, ...] = ()
    record: str | None = None
    """The rig that the box's record names; None without a record."""


def parse(lines: Iterable[str]) -> Survey:
    """Read the survey's lines (templates/probe/survey.sh.j2); what a login prints before them is left out.

    Raises:
        ValueError: a line or a key is missing or malformed.
    """
    single: dict[str, str] = {}
    many: dict[str, list[list[str]]] = {}
    begun = False
    for line in lines:
        key, *fields = line.rstrip("\n").split("\t")
        fields = [field.strip() for field in fields]
        begun = begun or key == MARK
        if begun:
            single[key] = fields[0] if fields else ""
            many.setdefault(key, []).append(fields)
    try:
        cards = _cards(many)
        return Survey(
            os_id=single["os_id"],
            os_version=single["os_version"],
            hostname=single["hostname"],
            kernel=single["kernel"],
            uid=int(single["uid"]),
            memory_kib=int(single["memory_kib"]),
            cpus=int(single["cpus"]),
            numa_nodes=int(single["numa_nodes"]),
            cards=cards,
            driver=single.get("driver", ""),
            smi_failure=(single["smi_failed"] or "nothing") if "smi_failed" in single else "",
            processes=_processes(many, cards),
            disks=_disks(many.get("disk", [])),
            listeners=_listeners(many),
            units=tuple(sorted((SeenUnit(*row) for row in many.get("unit", [])), key=lambda one: one.name)),
            record=_record(single["record"]) if "record" in single else None,
        )
    except KeyError as error:
        raise ValueError(f"the survey printed no {error.args[0]!r}") from error
    except (TypeError, IndexError) as error:
        raise ValueError(f"the survey printed a line that is cut short: {error}") from error


def _number(text: str) -> int:
    """A count; 0 for what is not known ("", "[N/A]", "Unknown")."""
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text.strip()) else 0


def _cards(many: dict[str, list[list[str]]]) -> tuple[SeenCard, ...]:
    found = []
    for address, pci_id, node, width, width_max, speed, speed_max in many.get("pci", []):
        # the kernel's -1 is "none"
        numa = int(node) if node.isdecimal() else None
        # and 63 or 255 lanes are a link that is down
        lanes = [count if count <= 32 else 0 for count in (_number(width), _number(width_max))]
        found.append(SeenCard(address, pci_id, numa, lanes[0], lanes[1], speed, speed_max))
    found.sort(key=lambda card: card.address)
    place = {card.address: number for number, card in enumerate(found)}
    numbers: dict[str, int] = {}  # nvidia-smi's own -> ours
    for (row,) in many.get("gpu", []):
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
        found[number] = replace(found[number], name=name, vram_mib=_number(memory), capability=capability)
    for index, up in many.get("nvlink", []):
        if index in numbers:
            found[numbers[index]] = replace(found[numbers[index]], nvlinks=_number(up))
    for label, *cells in many.get("topo", []):
        index = label.strip().removeprefix("GPU")
        peers = (numbers.get(str(column)) for column, cell in enumerate(cells) if re.match(r"NV[0-9]", cell.strip()))
        if index in numbers:
            known_peers = tuple(sorted(peer for peer in peers if peer is not None))
            found[numbers[index]] = replace(found[numbers[index]], nvlink_peers=known_peers)
    return tuple(found)


def _unit(cgroup: str) -> str:
    found = UNIT.findall(cgroup)
    return str(found[-1]) if found else ""


def _processes(many: dict[str, list[list[str]]], cards: tuple[SeenCard, ...]) -> tuple[GpuProcess, ...]:
    containers = {identifier: words for identifier, *words in many.get("container", [])}
    place = {card.address: number for number, card in enumerate(cards)}
    memory: dict[int, dict[int, int]] = {}
    for (row,) in many.get("app", []):
        bus, pid, mib = [*row.split(","), "", ""][:3]
        number = place.get(bus_address(bus))
        if number is not None:
            memory.setdefault(_number(pid), {})[number] = _number(mib)
    found: dict[int, GpuProcess] = {}
    for pid, user, name, cgroup in many.get("process", []):
        within = CONTAINER.search(cgroup)
        container = " ".join(containers.get(within[0], [within[0][:12]])) if within else ""
        held = tuple(sorted(memory.get(int(pid), {}).items()))
        found[int(pid)] = GpuProcess(int(pid), user, name, _unit(cgroup), container, held)
    return tuple(found[pid] for pid in sorted(found))


def _disks(rows: list[list[str]]) -> tuple[Disk, ...]:
    """Each file system once, by its shortest mount point: others are bind mounts or subvolumes of the same room."""
    found: dict[str, Disk] = {}
    for device, kind, mode, size, free, mount in sorted(rows, key=lambda row: (len(row[5]), row[5])):
        # the last one mounted over a place is the one that is seen there
        key = device if device.startswith("/dev/") or ":" in device else mount
        found.setdefault(key, Disk(mount, device, kind, int(size), int(free), mode == "rw"))
    return tuple(sorted(found.values(), key=lambda disk: disk.mount))


def _listeners(many: dict[str, list[list[str]]]) -> tuple[Listener, ...]:
    found = {int(row[0], 16): Listener(int(row[0], 16), "", "") for row in many.get("listener_hex", [])}
    for port, process, cgroup in many.get("listener", []):
        found[int(port)] = Listener(int(port), process, _unit(cgroup))
    return tuple(found[port] for port in sorted(found))


def _record(text: str) -> str:
    try:
        read = json.loads(text)
    except ValueError:
        return ""
    return str(read.get("rig", "")) if isinstance(read, dict) else ""
