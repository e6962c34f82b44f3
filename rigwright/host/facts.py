"""What is known of a host: the probe's output as a typed value."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from types import MappingProxyType

from rigwright.declaration.rig import Rig
from rigwright.nvidia.cards.files import POWER, SYSCTL
from rigwright.weights import sharing

# What the name of a file ends in that is not whole yet.
PART = ".part"
# Where the probe looks for a toolkit when the operator has named none.
NOWHERE = "/nonexistent"
# Fetching (curl, CA certificates), tools in Python (venv), and what llama.cpp is compiled with.
PACKAGES = ("ca-certificates", "curl", "python3-venv", "cmake", "g++", "ninja-build")


def packages(rig: Rig) -> tuple[str, ...]:
    """The distribution's packages that a rig's host needs."""
    return (*PACKAGES, sharing.PACKAGE) if rig.share else PACKAGES


@dataclass(frozen=True)
class Listener:
    """A TCP port somebody listens on."""

    port: int
    process: str
    unit: str
    """The systemd unit of the process; empty where it is not known."""


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
    listeners: tuple[Listener, ...] = ()
    built_engines: frozenset[str] = field(default_factory=frozenset)
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
    """Of those that the rig needs, in their order."""
    clock: int = 0
    """Seconds since the epoch, as the host has it."""
    foreign_roots: tuple[tuple[str, str, int], ...] = ()
    """(path, owner, mode) of roots that were there before us."""
    elsewhere: str = ""
    """The configuration's folder that the host is served from, where it is not the rig's."""
    nvcc: str = ""
    """The version of that toolkit's compiler, such as "13.0.88"; empty without one."""
    service_user: str = ""
    """Its passwd line; empty when there is no such user."""
    user_ours: bool = False
    """Whether we have made it."""
    driver_ours: bool = False
    """Whether we see to its NVIDIA driver, or did before this run."""
    settings_ours: bool = False
    """Whether its cards or its kernel have settings of ours."""
    addresses: frozenset[str] = field(default_factory=frozenset)
    """Those that it has, of both families."""
    sharing: sharing.Found = sharing.NOTHING
    """The unit that shares its weights with other boxes."""

    def has(self, address: str) -> bool:
        """Whether it has this address, however that is written."""
        return str(ip_address(address)) in {str(ip_address(one.partition("%")[0])) for one in self.addresses}

    @property
    def system(self) -> str:
        """Distribution and release, such as debian-12."""
        return f"{self.os_id}-{self.os_version}"


def questions(rig: Rig) -> dict[str, object]:
    """What the probe is asked about a rig's host: the values of its template."""
    return {
        "folders": [rig.roots.state, rig.roots.software, rig.roots.models, rig.roots.config],
        "engines": f"{rig.roots.software}/engines",
        "builds": f"{rig.roots.state}/build",
        "jobs": f"{rig.roots.state}/jobs",
        "weights": sorted({f"{rig.roots.models}/{artefact.weight_folder}" for artefact in rig.weights}),
        "cuda_root": rig.cuda_root or NOWHERE,
        "service_user": rig.service_user,
        "packages": list(packages(rig)),
        "ledger": rig.ledger,
        "config": rig.roots.config,
        "settings": [POWER, SYSCTL],
        **sharing.questions(),
    }


def keyed(lines: list[str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """A probe's `key value...` lines: those of one value, and those whose key ends in a plus, without it."""
    single: dict[str, str] = {}
    many: dict[str, list[str]] = {}
    for line in lines:
        key, _, value = line.partition(" ")
        if key.endswith("+"):
            many.setdefault(key[:-1], []).append(value)
        else:
            single[key] = value
    return single, many


def parse(lines: list[str]) -> HostFacts:
    """Read the probe's `key value...` lines (templates/probe/probe.sh.j2).

    Raises:
        ValueError: a line or a key is missing or malformed.
    """
    single, values = keyed(lines)
    many = {key: [value.split() for value in found] for key, found in values.items()}
    try:
        return HostFacts(
            os_id=single["os_id"],
            os_version=single["os_version"],
            architecture=single["architecture"],
            kernel=single["kernel"],
            systemd=int(single["systemd"]),
            uid=int(single["uid"]),
            memory_kib=int(single["memory_kib"]),
            disk_free_kib=MappingProxyType({path: int(free) for path, free, _ in many.get("disk", [])}),
            file_systems=MappingProxyType({path: mounted for path, _, mounted in many.get("disk", [])}),
            sent_kib=int(single["sent_kib"]),
            cuda_version=single["cuda_version"],
            nvcc=single["nvcc"],
            apt_lock_holder=single["apt_lock"],
            pci_cards=tuple(sorted((address, pci_id) for address, pci_id in many.get("pci", []))),
            listeners=tuple(sorted((_listener(row) for row in many.get("listener", [])), key=lambda one: one.port)),
            built_engines=frozenset(name for (name,) in many.get("engine", [])),
            weight_bytes=MappingProxyType(_weights(many.get("weight", []))),
            started_builds=frozenset(name for (name,) in many.get("building", [])),
            missing_packages=tuple(name for (name,) in many.get("missing", [])),
            clock=int(single["clock"]),
            linked_roots=tuple(path for (path,) in many.get("linked", [])),
            foreign_roots=tuple((path, owner, int(mode, 8)) for path, owner, mode in many.get("foreign", [])),
            elsewhere=single["elsewhere"],
            service_user=_passwd(single["service_user"]),
            user_ours=single["user_ours"] == "yes",
            driver_ours=single["driver_ours"] == "yes",
            settings_ours=single["settings_ours"] == "yes",
            addresses=frozenset(address for (address,) in many.get("address", [])),
            sharing=sharing.found(single),
        )
    except KeyError as error:
        raise ValueError(f"the probe printed no {error.args[0]!r}") from error


def _weights(rows: list[list[str]]) -> dict[str, int]:
    """Bytes and path of whole files and of parts: a part counts where there is no whole one."""
    found = {path: int(size) for size, path in rows}
    parts = {path.removesuffix(PART): size for path, size in found.items() if path.endswith(PART)}
    return parts | {path: size for path, size in found.items() if not path.endswith(PART)}


def _passwd(line: str) -> str:
    if line and line.count(":") != 6:
        raise ValueError(f"no passwd line: {line!r}")
    return line


def _listener(row: list[str]) -> Listener:
    port, process, *unit = row
    return Listener(int(port), process, unit[0] if unit else "")
