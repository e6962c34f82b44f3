"""What is known of a host: what the probe tells, as a typed value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from types import MappingProxyType

from rigwright import nginx
from rigwright.engines.installer import ENVIRONMENTS
from rigwright.engines.kind import InstallingKind
from rigwright.gateway import service as gateway
from rigwright.host import basics, channel
from rigwright.host.basics import Listener
from rigwright.host.channel import (
    Told,
    file_name,
    matching,
    number,
    octal,
    optional,
    path,
    said,
    tolerant,
    truth,
    version,
    word,
)
from rigwright.model.rig import Rig
from rigwright.monitoring import found as monitoring
from rigwright.monitoring.service import KINDS
from rigwright.nvidia.cards.files import POWER, SYSCTL
from rigwright.nvidia.cuda.compilers import SPECIFIED_SINCE
from rigwright.nvidia.values import node, nodes
from rigwright.plan.undeclared import undeclared
from rigwright.serving import stored
from rigwright.serving.units import UNITS
from rigwright.weights import sharing

# What the name of a file ends in that is not whole yet.
PART = ".part"
# Where the probe looks for a toolkit when the operator has named none.
NOWHERE = "/nonexistent"
# Lists of the kernel's (Documentation/ABI/stable/sysfs-devices-node): who is bound to a node without one gets none.
NODES_WITH = ("has_cpu", "has_memory")
# Fetching (curl, CA certificates) and tools in Python (venv).
PACKAGES = ("ca-certificates", "curl", "python3-venv")


def packages(rig: Rig, system: str = "") -> tuple[str, ...]:
    """The distribution's packages that a rig's host needs, beside those of a driver.

    Args:
        rig: What it is to be.
        system: Its release, such as debian-12; without one all that one or another would need.
    """
    engines = [package for instance in rig.instances for package in instance.kind.needs(system)]
    engines += ENVIRONMENTS.packages if rig.envs else ()
    engines += [nginx.PACKAGE] if rig.share else []
    engines += gateway.PACKAGES if rig.gateway else ()
    engines += list(filter(None, (KINDS[name].package for name in rig.watching)))
    return tuple(dict.fromkeys([*PACKAGES, *engines]))


@dataclass(frozen=True)
class Account:
    """A user of the host's."""

    passwd: str
    """Its line of passwd."""
    ours: bool
    """Whether we have made it."""
    processes: tuple[str, ...] = ()
    """What runs as it: name, pid and, where that is known, the systemd unit of each."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.passwd.split(":")[0]

    @property
    def home(self) -> str:
        """Its home."""
        return self.passwd.split(":")[5]


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
    """Name of the process that holds dpkg's lock; empty when it is free."""
    pci_cards: tuple[tuple[str, str], ...] = ()
    """(address, vendor:device) of each NVIDIA display adapter, by address."""
    card_nodes: MappingProxyType[str, int | None] = field(default_factory=lambda: MappingProxyType({}))
    """Address -> NUMA node of each of them, as far as the kernel says it; None where it knows of none."""
    numa_nodes: frozenset[int] = frozenset()
    """NUMA nodes that have both processors and memory."""
    listeners: tuple[Listener, ...] = ()
    built_engines: frozenset[str] = field(default_factory=frozenset)
    unfit_engines: frozenset[str] = field(default_factory=frozenset)
    """Of these, the ones that others than root can change, or that not everybody can run."""
    weight_bytes: MappingProxyType[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Path of a weight file -> bytes of it that are there, whole or as a part."""
    sent_kib: int = 0
    """Of weights that were sent and not taken to their place yet."""
    file_systems: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Folder -> where the file system is mounted that holds it, or will."""
    started_builds: frozenset[str] = field(default_factory=frozenset)
    """Folders of engines whose build has begun: their space is already taken."""
    linked_roots: tuple[str, ...] = ()
    """Roots that are symbolic links."""
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
    users: tuple[Account, ...] = ()
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
    sharing: sharing.Found = sharing.NOTHING
    """The unit that shares its weights with other boxes."""
    monitoring: monitoring.State = monitoring.NOWHERE
    """What tells of it, and what asks other boxes."""

    def has(self, address: str) -> bool:
        """Whether it has this address, however that is written."""
        return str(ip_address(address)) in self.addresses

    @property
    def system(self) -> str:
        """Distribution and release, such as debian-12."""
        return f"{self.os_id}-{self.os_version}"


def lacking(rig: Rig, facts: HostFacts) -> tuple[str, ...]:
    """The distribution's packages that a host needs for a rig and has not, in their order."""
    needed = packages(rig, facts.system)
    return tuple(name for name in facts.missing_packages if name in needed)


def questions(rig: Rig) -> dict[str, object]:
    """What the probe is asked about a rig's host: the values of its template."""
    programs = {ENVIRONMENTS.program} if rig.envs else set()
    programs |= {one.kind.program for one in rig.instances if isinstance(one.kind, InstallingKind)}
    return {
        "folders": [rig.roots.state, rig.roots.software, rig.roots.models, rig.roots.config],
        "engines": rig.installations,
        "builds": rig.builds,
        "jobs": rig.jobs,
        "weights": [
            *sorted({f"{rig.roots.models}/{artefact.weight_folder}" for artefact in rig.weights}),
            f"{rig.roots.models}/{stored.PACKAGES}",
        ],
        "cuda_root": rig.cuda_root or NOWHERE,
        "mathematical": sorted(SPECIFIED_SINCE),
        "users": list(rig.users),
        "packages": list(packages(rig)),
        "ledger": rig.ledger,
        "inside": [rig.roots.state, rig.roots.software, rig.roots.config],
        "weight_files": sorted({rig.weight_path(artefact) for artefact in rig.weights}),
        "config": rig.roots.config,
        "units": UNITS,
        "programs": sorted(filter(None, programs)),
        "settings": [POWER, SYSCTL],
        "containers": f"{rig.roots.state}/containers",
        "undeclared": sorted(path for one in undeclared(rig) for path in one.paths),
        **sharing.questions(),
        **monitoring.questions(rig),
    }


passwd = matching(r"[^:\x00-\x1f\x7f]*(:[^:\x00-\x1f\x7f]*){6}", "a line of passwd")
SCHEMA: channel.Schema = {
    **basics.SCHEMA,
    **sharing.SCHEMA,
    **monitoring.SCHEMA,
    "architecture": (word,),
    "systemd": (optional(number, 0),),
    "disk": (path, number, path),
    "linked": (path,),
    "cuda_version": (optional(version),),
    "nvcc": (optional(version),),
    "bare_function": (channel.one_of(*SPECIFIED_SINCE),),
    "glibc": (optional(version),),
    "apt_lock": (said,),
    "card_node": (channel.pci_address, node),
    "nodes_with": (channel.one_of(*NODES_WITH), nodes),
    "address": (channel.address,),
    "engine": (tolerant(file_name),),
    "unfit": (tolerant(file_name),),
    # passwd line, whether it is in our list
    "user": (passwd, truth),
    "user_process": (word, said, number, tolerant(channel.unit)),
    "foreign_group": (word,),
    "building": (tolerant(file_name),),
    "sent_kib": (optional(number, 0),),
    "weight": (number, tolerant(path)),
    "missing": (word,),
    "foreign": (path, said, octal),
    "elsewhere": (said,),
    "driver_ours": (truth,),
    "containers_ours": (truth,),
    "settings_ours": (truth,),
    "undeclared": (path,),
    "clock": (number,),
    "ledger_cut": (),
    "covered": (path,),
}
"""What the probe tells."""


def parse(output: Iterable[str]) -> HostFacts:
    """Read what the probe has told (templates/probe/probe.sh.j2).

    Raises:
        ValueError: that is not what it was asked for.
    """
    told = channel.read(output, SCHEMA)
    found = basics.basics(told)
    return HostFacts(
        os_id=found.os_id,
        os_version=found.os_version,
        architecture=told.one("architecture"),
        kernel=found.kernel,
        systemd=told.one("systemd"),
        uid=found.uid,
        memory_kib=found.memory_kib,
        disk_free_kib=MappingProxyType({folder: free for folder, free, _ in told.many("disk")}),
        file_systems=MappingProxyType({folder: mounted for folder, _, mounted in told.many("disk")}),
        sent_kib=told.one("sent_kib"),
        cuda_version=told.one("cuda_version"),
        nvcc=told.one("nvcc"),
        bare_functions=frozenset(told.all("bare_function")),
        glibc=told.one("glibc"),
        apt_lock_holder=told.one("apt_lock"),
        pci_cards=found.cards,
        card_nodes=MappingProxyType(dict(told.many("card_node"))),
        numa_nodes=_numa_nodes(told),
        listeners=found.listeners,
        # names that are none of ours are read as nothing
        built_engines=frozenset(filter(None, told.all("engine"))),
        unfit_engines=frozenset(filter(None, told.all("unfit"))),
        weight_bytes=MappingProxyType(_weights([(size, path) for size, path in told.many("weight") if path])),
        started_builds=frozenset(filter(None, told.all("building"))),
        missing_packages=tuple(told.all("missing")),
        clock=told.one("clock"),
        linked_roots=tuple(told.all("linked")),
        ledger_whole=not told.many("ledger_cut"),
        covered=tuple(dict.fromkeys(told.all("covered"))),
        foreign_roots=tuple(told.many("foreign")),
        elsewhere=told.one("elsewhere"),
        users=tuple(_account(told, *row) for row in told.many("user")),
        foreign_groups=tuple(told.all("foreign_group")),
        settings_ours=told.one("settings_ours"),
        undeclared=frozenset(told.all("undeclared")),
        driver_ours=told.one("driver_ours"),
        containers_ours=told.one("containers_ours"),
        addresses=frozenset(told.all("address")),
        sharing=sharing.found(told),
        monitoring=monitoring.found(told),
    )


def _numa_nodes(told: Told) -> frozenset[int]:
    """Those that have all of NODES_WITH."""
    having: dict[str, frozenset[int]] = dict(told.many("nodes_with"))
    return frozenset.intersection(*(having.get(what, frozenset()) for what in NODES_WITH))


def _weights(rows: list[tuple[int, str]]) -> dict[str, int]:
    """Bytes and path of whole files and of parts: a part counts where there is no whole one."""
    found = {path: size for size, path in rows}
    parts = {path.removesuffix(PART): size for path, size in found.items() if path.endswith(PART)}
    return parts | {path: size for path, size in found.items() if not path.endswith(PART)}


def _account(told: Told, line: str, ours: bool) -> Account:
    name = line.split(":")[0]
    return Account(line, ours, tuple(_process(*rest) for user, *rest in told.many("user_process") if user == name))


def _process(name: str, pid: int, unit: str) -> str:
    return f"{name} (pid {', '.join([str(pid), *([unit] if unit else [])])})"
