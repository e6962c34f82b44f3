"""The facts of a host that its probe reports, as a typed value. Each feature registers its facts in SOURCES."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

from rigwright.containers.container_facts import CONTAINER_FACTS
from rigwright.engines.environment_installer import ENGINE_FACTS
from rigwright.gateway.gateway_units import GATEWAY_FACTS
from rigwright.host import basic_facts, script_output
from rigwright.host.script_output import HostOutput, free_text, matching, number, octal, optional, path, word, yes_or_no
from rigwright.host.service_states import UNIT_SCHEMA
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.fact_types import HostAccount, HostFacts
from rigwright.model.instance import loaded_weights
from rigwright.model.inventory_feature import FactSource
from rigwright.model.rig import Rig, account_names
from rigwright.monitoring.monitoring_facts import MONITORING_FACTS
from rigwright.monitoring.self_check import SELF_CHECK_FACTS
from rigwright.nvidia.cards.numa_nodes import CARD_FACTS
from rigwright.nvidia.cuda_toolkit import TOOLKIT_FACTS
from rigwright.nvidia.driver.driver_facts import DRIVER_FACTS
from rigwright.plan.accepted_serials import SIGNATURE_FACTS
from rigwright.plan.plan_inputs import ORPHAN_FACTS
from rigwright.pull.pull_facts import PULL_FACTS
from rigwright.weights.verification import WEIGHT_FACTS
from rigwright.weights.weight_server import SHARING_FACTS

# in the order in which apt is given their packages
SOURCES: tuple[FactSource, ...] = (
    CARD_FACTS,
    TOOLKIT_FACTS,
    DRIVER_FACTS,
    CONTAINER_FACTS,
    ENGINE_FACTS,
    WEIGHT_FACTS,
    SHARING_FACTS,
    GATEWAY_FACTS,
    MONITORING_FACTS,
    SELF_CHECK_FACTS,
    SIGNATURE_FACTS,
    PULL_FACTS,
    ORPHAN_FACTS,
)
# Fetching (curl, CA certificates) and tools in Python (venv).
PACKAGES = ("ca-certificates", "curl", "python3-venv")


def required_packages(rig: Rig, system: str = "") -> tuple[str, ...]:
    """The distribution's packages that a rig's host needs, beside those of a driver.

    Args:
        rig: Its target.
        system: Its release, such as debian-12; without one all that one or another would need.
    """
    return tuple(dict.fromkeys([*PACKAGES, *(name for one in SOURCES for name in one.packages(rig, system))]))


def find_missing_host_packages(rig: Rig, facts: HostFacts) -> tuple[str, ...]:
    """The distribution's packages that a host needs for a rig and has not, in their order."""
    needed = required_packages(rig, facts.system)
    return tuple(name for name in facts.missing_packages if name in needed)


def probe_values(rig: Rig) -> dict[str, object]:
    """The probe's questions about a rig's host: the values of its template."""
    values: dict[str, object] = {
        "folders": [rig.roots.state, rig.roots.software, rig.roots.models, rig.roots.config],
        "users": list(account_names(rig)),
        "packages": list(required_packages(rig)),
        "ledger": rig.roots.ledger,
        "inside": [rig.roots.state, rig.roots.software, rig.roots.config],
        "weight_files": sorted({rig.roots.weight_path(artefact) for artefact in loaded_weights(rig.instances)}),
        "config": rig.roots.config,
        "units": UNIT_FOLDER,
        "parts": [one.template for one in SOURCES if one.template],
    }
    for one in SOURCES:
        values |= one.values(rig)
    return values


passwd = matching(r"[^:\x00-\x1f\x7f]*(:[^:\x00-\x1f\x7f]*){6}", "a line of passwd")
SCHEMA: script_output.Schema = {
    **basic_facts.SCHEMA,
    **UNIT_SCHEMA,
    **{key: types for one in SOURCES for key, types in one.schema.items()},
    "architecture": (word,),
    "systemd": (optional(number, 0),),
    "disk": (path, number, path),
    "linked": (path,),
    "read_only": (path,),
    "apt_lock": (free_text,),
    "address": (script_output.address,),
    # passwd line, whether it is in our list
    "user": (passwd, yes_or_no),
    "user_process": (word, free_text, number, script_output.tolerant(script_output.unit)),
    "foreign_group": (word,),
    "missing": (word,),
    "foreign": (path, free_text, octal),
    "elsewhere": (free_text,),
    "clock": (number,),
    "ledger_cut": (),
    "covered": (path,),
}
"""The output of the probe."""


def parse(output: Iterable[str]) -> HostFacts:
    """Read what the probe has told (templates/probe/probe.sh.j2).

    Raises:
        ValueError: that is not what it was asked for.
    """
    told = script_output.parse_output(output, SCHEMA)
    found = basic_facts.read_basics(told)
    of_features: dict[str, Any] = {key: value for one in SOURCES for key, value in one.read(told).items()}
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
        apt_lock_holder=told.one("apt_lock"),
        pci_cards=found.cards,
        listeners=found.listeners,
        missing_packages=tuple(told.all("missing")),
        clock=told.one("clock"),
        linked_roots=tuple(told.all("linked")),
        read_only_roots=tuple(told.all("read_only")),
        ledger_whole=not told.many("ledger_cut"),
        covered=tuple(dict.fromkeys(told.all("covered"))),
        foreign_roots=tuple(told.many("foreign")),
        elsewhere=told.one("elsewhere"),
        users=tuple(_parse_account(told, *row) for row in told.many("user")),
        foreign_groups=tuple(told.all("foreign_group")),
        addresses=frozenset(told.all("address")),
        **of_features,
    )


def _parse_account(told: HostOutput, line: str, ours: bool) -> HostAccount:
    name = line.split(":")[0]
    return HostAccount(
        line, ours, tuple(_describe_process(*rest) for user, *rest in told.many("user_process") if user == name)
    )


def _describe_process(name: str, pid: int, unit: str) -> str:
    return f"{name} (pid {', '.join([str(pid), *([unit] if unit else [])])})"
