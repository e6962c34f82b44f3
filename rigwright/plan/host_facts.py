"""What is known of a host: what the probe tells, as a typed value."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from rigwright import nginx
from rigwright.engines import kind_of
from rigwright.engines.installer import ENVIRONMENTS
from rigwright.engines.kind import InstallingKind
from rigwright.gateway import gateway_units
from rigwright.host import basics, channel
from rigwright.host.channel import (
    HostOutput,
    file_name,
    free_text,
    matching,
    number,
    octal,
    optional,
    path,
    tolerant,
    version,
    word,
    yes_or_no,
)
from rigwright.host.systemd_syntax import UNIT_FOLDER
from rigwright.model.facts import NOWHERE, HostAccount, HostFacts
from rigwright.model.instance import loaded_weights
from rigwright.model.rig import Rig, account_names
from rigwright.monitoring import monitoring_facts
from rigwright.monitoring.monitoring_units import PACKAGED_PROGRAMS
from rigwright.nvidia.cards.card_setting_files import POWER, SYSCTL
from rigwright.nvidia.cuda.toolkit_validation import SPECIFIED_SINCE
from rigwright.nvidia.values import numa_node_list, numa_node_number
from rigwright.plan.orphans import list_orphans
from rigwright.serving import weight_inventory
from rigwright.weights import weight_sharing

# What the name of a file ends in that is not whole yet.
PART = ".part"
# Lists of the kernel's (Documentation/ABI/stable/sysfs-devices-node): who is bound to a node without one gets none.
NODES_WITH = ("has_cpu", "has_memory")
# Fetching (curl, CA certificates) and tools in Python (venv).
PACKAGES = ("ca-certificates", "curl", "python3-venv")


def required_packages(rig: Rig, system: str = "") -> tuple[str, ...]:
    """The distribution's packages that a rig's host needs, beside those of a driver.

    Args:
        rig: What it is to be.
        system: Its release, such as debian-12; without one all that one or another would need.
    """
    engines = [package for instance in rig.instances for package in kind_of(instance).needs(system)]
    engines += ENVIRONMENTS.packages if rig.envs else ()
    engines += [nginx.PACKAGE] if rig.share else []
    engines += gateway_units.PACKAGES if rig.gateway else ()
    engines += list(
        filter(
            None,
            (PACKAGED_PROGRAMS[name].package for name in rig.accounts.exporters(rig.monitoring, cards=bool(rig.cards))),
        )
    )
    return tuple(dict.fromkeys([*PACKAGES, *engines]))


def find_missing_host_packages(rig: Rig, facts: HostFacts) -> tuple[str, ...]:
    """The distribution's packages that a host needs for a rig and has not, in their order."""
    needed = required_packages(rig, facts.system)
    return tuple(name for name in facts.missing_packages if name in needed)


def probe_values(rig: Rig) -> dict[str, object]:
    """What the probe is asked about a rig's host: the values of its template."""
    programs = {ENVIRONMENTS.program} if rig.envs else set()
    programs |= {kind.program for one in rig.instances if isinstance(kind := kind_of(one), InstallingKind)}
    return {
        "folders": [rig.roots.state, rig.roots.software, rig.roots.models, rig.roots.config],
        "engines": rig.roots.installations,
        "builds": rig.roots.builds,
        "jobs": rig.roots.jobs,
        "weights": [
            *sorted({f"{rig.roots.models}/{artefact.weight_folder}" for artefact in loaded_weights(rig.instances)}),
            f"{rig.roots.models}/{weight_inventory.PACKAGES}",
        ],
        "cuda_root": rig.toolkit.own_root or NOWHERE,
        "mathematical": sorted(SPECIFIED_SINCE),
        "users": list(account_names(rig)),
        "packages": list(required_packages(rig)),
        "ledger": rig.roots.ledger,
        "inside": [rig.roots.state, rig.roots.software, rig.roots.config],
        "weight_files": sorted({rig.roots.weight_path(artefact) for artefact in loaded_weights(rig.instances)}),
        "config": rig.roots.config,
        "units": UNIT_FOLDER,
        "programs": sorted(filter(None, programs)),
        "settings": [POWER, SYSCTL],
        "containers": f"{rig.roots.state}/containers",
        "undeclared": sorted(path for one in list_orphans(rig) for path in one.paths),
        **weight_sharing.share_state_values(),
        **monitoring_facts.monitoring_state_values(rig.roots),
    }


passwd = matching(r"[^:\x00-\x1f\x7f]*(:[^:\x00-\x1f\x7f]*){6}", "a line of passwd")
SCHEMA: channel.Schema = {
    **basics.SCHEMA,
    **weight_sharing.SCHEMA,
    **monitoring_facts.SCHEMA,
    "architecture": (word,),
    "systemd": (optional(number, 0),),
    "disk": (path, number, path),
    "linked": (path,),
    "cuda_version": (optional(version),),
    "nvcc": (optional(version),),
    "bare_function": (channel.one_of(*SPECIFIED_SINCE),),
    "glibc": (optional(version),),
    "apt_lock": (free_text,),
    "card_node": (channel.pci_address, numa_node_number),
    "nodes_with": (channel.one_of(*NODES_WITH), numa_node_list),
    "address": (channel.address,),
    "engine": (tolerant(file_name),),
    "unfit": (tolerant(file_name),),
    # passwd line, whether it is in our list
    "user": (passwd, yes_or_no),
    "user_process": (word, free_text, number, tolerant(channel.unit)),
    "foreign_group": (word,),
    "building": (tolerant(file_name),),
    "sent_kib": (optional(number, 0),),
    "weight": (number, tolerant(path)),
    "missing": (word,),
    "foreign": (path, free_text, octal),
    "elsewhere": (free_text,),
    "driver_ours": (yes_or_no,),
    "containers_ours": (yes_or_no,),
    "settings_ours": (yes_or_no,),
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
    told = channel.parse_output(output, SCHEMA)
    found = basics.read_basics(told)
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
        weight_bytes=MappingProxyType(
            _parse_weight_sizes([(size, path) for size, path in told.many("weight") if path])
        ),
        started_builds=frozenset(filter(None, told.all("building"))),
        missing_packages=tuple(told.all("missing")),
        clock=told.one("clock"),
        linked_roots=tuple(told.all("linked")),
        ledger_whole=not told.many("ledger_cut"),
        covered=tuple(dict.fromkeys(told.all("covered"))),
        foreign_roots=tuple(told.many("foreign")),
        elsewhere=told.one("elsewhere"),
        users=tuple(_parse_account(told, *row) for row in told.many("user")),
        foreign_groups=tuple(told.all("foreign_group")),
        settings_ours=told.one("settings_ours"),
        undeclared=frozenset(told.all("undeclared")),
        driver_ours=told.one("driver_ours"),
        containers_ours=told.one("containers_ours"),
        addresses=frozenset(told.all("address")),
        sharing=weight_sharing.read_sharing_facts(told),
        monitoring=monitoring_facts.read_monitoring_facts(told),
    )


def _numa_nodes(told: HostOutput) -> frozenset[int]:
    """Those that have all of NODES_WITH."""
    having: dict[str, frozenset[int]] = dict(told.many("nodes_with"))
    return frozenset.intersection(*(having.get(what, frozenset()) for what in NODES_WITH))


def _parse_weight_sizes(rows: list[tuple[int, str]]) -> dict[str, int]:
    """Bytes and path of whole files and of parts: a part counts where there is no whole one."""
    found = {path: size for size, path in rows}
    parts = {path.removesuffix(PART): size for path, size in found.items() if path.endswith(PART)}
    return parts | {path: size for path, size in found.items() if not path.endswith(PART)}


def _parse_account(told: HostOutput, line: str, ours: bool) -> HostAccount:
    name = line.split(":")[0]
    return HostAccount(
        line, ours, tuple(_describe_process(*rest) for user, *rest in told.many("user_process") if user == name)
    )


def _describe_process(name: str, pid: int, unit: str) -> str:
    return f"{name} (pid {', '.join([str(pid), *([unit] if unit else [])])})"
