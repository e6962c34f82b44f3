"""Facts of a host as a survey or a deploy reads them, for all features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from types import MappingProxyType

from rigwright.host.basic_facts import ListeningSocket
from rigwright.host.pci_cards import PciCard
from rigwright.host.service_states import ServiceState
from rigwright.supply.supply_signatures import AcceptedSerial


@dataclass(frozen=True)
class MonitoringFacts:
    """The state of monitoring on a host."""

    units: Mapping[str, ServiceState]
    """Service -> its unit, of those that are there."""
    secrets: frozenset[str] = frozenset()
    """Paths of tokens and addresses of receivers."""

    @property
    def is_present(self) -> bool:
        """Whether there is anything of it."""
        return bool(self.secrets or self.units)


NO_MONITORING = MonitoringFacts({})


# Where the probe looks for a toolkit when the operator has named none.
NOWHERE = "/nonexistent"


@dataclass(frozen=True)
class HostAccount:
    """A user of the host's."""

    passwd: str
    """Its line of passwd."""
    ours: bool
    """Whether we have made it."""
    processes: tuple[str, ...] = ()
    """Its processes: name, pid and, where that is known, the systemd unit of each."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.passwd.split(":")[0]

    @property
    def home(self) -> str:
        """Its home."""
        return self.passwd.split(":")[5]


@dataclass(frozen=True)
class PullFacts:
    """The identity of a box that pulls, and the record of its pulls."""

    machine: str
    """SHA-256 of its machine id."""
    run: int = 0
    """When it pulled last, in seconds since 1970; 0 for never."""
    verified: int = 0
    """When it verified a timestamp last, likewise."""
    serial: int = 0
    """The serial of the generation that it has pulled and serves; 0 for none."""
    busy: int = 0
    """Since when each of its runs is busy, in seconds since 1970; 0 where the last one was not."""
    outcome: str = ""
    reason: str = ""
    text: str = ""


@dataclass(frozen=True)
class HostFacts:
    """One host, as found. Sizes in KiB."""

    os_id: str
    os_version: str
    architecture: str
    kernel: str
    systemd: int
    uid: int
    memory_kib: int
    disk_free_kib: MappingProxyType[str, int]
    """Folder -> space left on the file system that holds it, or will."""
    cuda_version: str
    """Of the operator's own toolkit at the rig's cuda_root, such as "13.0"; empty without one."""
    apt_lock_holder: str
    """Name of the process that holds dpkg's lock, or of the job of ours that started it; empty when it is free."""
    pci_cards: tuple[PciCard, ...] = ()
    """In the order of the bus."""
    numa_nodes: frozenset[int] = frozenset()
    """NUMA nodes that have both processors and memory."""
    listeners: tuple[ListeningSocket, ...] = ()
    built_engines: frozenset[str] = field(default_factory=frozenset)
    unfit_engines: frozenset[str] = field(default_factory=frozenset)
    """Of these, the ones that others than root can change, or that not everybody can run."""
    weight_bytes: MappingProxyType[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Path of a weight file -> bytes of it that are there, whole or as a part."""
    sent_kib: int = 0
    """Of weights that were sent and not taken to their place yet."""
    file_systems: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Folder -> where the file system is mounted that holds it, or will."""
    cpu_features: frozenset[str] = field(default_factory=frozenset)
    """Features of the first CPU (/proc/cpuinfo, flags), of those that the rig's engines need."""
    started_builds: frozenset[str] = field(default_factory=frozenset)
    """Folders of engines whose build has begun: their space is already taken."""
    linked_roots: tuple[str, ...] = ()
    """Roots that are symbolic links."""
    read_only_roots: tuple[str, ...] = ()
    """Roots that the user of the deploy cannot write to: for root, those on a read-only file system."""
    missing_packages: tuple[str, ...] = ()
    """Of those that it was asked for, in their order."""
    clock: int = 0
    """Seconds since the epoch, as the host has it."""
    foreign_roots: tuple[tuple[str, str, int], ...] = ()
    """(path, owner, mode) of roots that were there before us."""
    elsewhere: str = ""
    """The configuration's folder that the host is served from, where it is not the rig's."""
    nvcc: str = ""
    """The version of that toolkit's compiler, such as "13.0.88"; empty without one."""
    bare_functions: frozenset[str] = field(default_factory=frozenset)
    """Mathematical functions that its header declares without an exception specification, of those that glibc declares
    with one."""
    glibc: str = ""
    """The version of the C library, such as "2.41"; empty of another library."""
    users: tuple[HostAccount, ...] = ()
    """Those of its instances that are there, and all others that we have made."""
    foreign_groups: tuple[str, ...] = ()
    """Groups with the name of a user that is to be made."""
    driver_ours: bool = False
    """Whether we see to its NVIDIA driver, or did before this run."""
    containers_ours: bool = False
    """Whether a deploy has brought what runs containers."""
    settings_ours: bool = False
    """Whether its cards or its kernel have settings of ours."""
    undeclared: frozenset[str] = field(default_factory=frozenset)
    """Files that are there of what the rig does not declare any more."""
    ledger_whole: bool = True
    """Whether the last line of the list of what is ours has its end: the next one would be joined to it."""
    covered: tuple[str, ...] = ()
    """Where something is mounted within our folders, or over a weight file, in the order in which it was."""
    addresses: frozenset[str] = field(default_factory=frozenset)
    """Those that it has, of both families, as Python writes them."""
    sharing: ServiceState | None = None
    """The unit that shares its weights with other boxes; None without its file."""
    monitoring: MonitoringFacts = NO_MONITORING
    """The exporters on it, and the services that ask other boxes."""
    accepted_serials: Mapping[str, AcceptedSerial] = field(default_factory=lambda: MappingProxyType({}))
    """Kind -> the signed lock or bundle that it has accepted last."""
    pull: PullFacts | None = None
    """None for a box that does not pull."""
    self_check: str | None = None
    """SHA-256 of the files of its own check; empty where no unit starts that, None where that is not known."""

    def has(self, address: str) -> bool:
        """Whether it has this address, however that is written."""
        return str(ip_address(address)) in self.addresses

    @property
    def system(self) -> str:
        """Distribution and release, such as debian-12."""
        return f"{self.os_id}-{self.os_version}"
