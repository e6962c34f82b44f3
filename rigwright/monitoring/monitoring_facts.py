"""The monitoring of a host as it is found, the reasons for its changes, and its removals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rigwright.host import script_output
from rigwright.host.script_output import HostOutput
from rigwright.host.service_states import UNIT_SCHEMA, ServiceState, read_service_states
from rigwright.host.systemd import STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.model.fact_types import MonitoringFacts
from rigwright.model.inventory_feature import FactSource
from rigwright.model.monitoring_schema import Monitoring
from rigwright.model.roots import Roots
from rigwright.monitoring.monitoring_units import (
    PACKAGED_PROGRAMS,
    MonitoringService,
    data_folder,
    monitoring_folder,
    unit_name,
)
from rigwright.monitoring.textfile import textfile_folder

if TYPE_CHECKING:
    from rigwright.model.rig import Rig


def _describe_pending(now: ServiceState | None, wanted: str) -> str:
    if now is None:
        return "it is not there yet"
    if now.is_settled(wanted):
        return ""
    if now.active != "active":
        return f"its unit is {now.active}"
    if now.replaced:
        return "the installed version differs from the running one"
    if now.started_from != wanted:
        return "it was started with other settings"
    return "it would not start at the next boot" if now.enabled != "enabled" else "systemd must reload its unit"


def expected_growth_kib(state: MonitoringFacts, monitoring: Monitoring | None) -> int:
    """KiB that what is kept may come to, where it has not begun to."""
    server = monitoring.server if monitoring else None
    return server.size_gb * 1000**3 // 1024 if server and "prometheus" not in state.units else 0


def find_pending(
    state: MonitoringFacts, services: Iterable[MonitoringService], secrets: Mapping[str, str]
) -> dict[str, str]:
    """Service -> why there is something to do with it.

    Args:
        state: The host's.
        services: The declared ones.
        secrets: Path of a secret on the host -> the operator's file.
    """
    wanted = {one.name: one for one in services}
    found = {}
    for name in PACKAGED_PROGRAMS:
        now = state.units.get(name)
        if name not in wanted:
            if now:
                found[name] = "it is no longer declared; its data are removed, too"
        elif why := _describe_pending(now, wanted[name].digest(secrets)):
            found[name] = why
    if extra := sorted(state.secrets - secrets.keys()):
        found.setdefault("alertmanager", f"{extra[0]} is of no receiver any more")
    return found


def monitoring_state_values(roots: Roots) -> dict[str, object]:
    """The values of templates/monitoring/state.sh.j2."""
    return {
        "watching": {name: unit_name(name) for name in PACKAGED_PROGRAMS},
        "watching_units": UNIT_FOLDER,
        "watching_secrets": roots.credentials,
    }


def monitoring_release_values(roots: Roots, names: Iterable[str] = PACKAGED_PROGRAMS) -> dict[str, object]:
    """The values of templates/monitoring/release.sh.j2, which takes services away.

    Args:
        roots: Directories on the host.
        names: Services that go.
    """
    own = {
        "node": [textfile_folder(roots)],
        "gpu": [f"{monitoring_folder(roots)}/gpu.py"],
        "prometheus": [f"{monitoring_folder(roots)}/{name}" for name in ("prometheus.yml", "rules.yml", "targets")],
        "alertmanager": [f"{monitoring_folder(roots)}/alertmanager.yml"],
        "blackbox": [f"{monitoring_folder(roots)}/blackbox.yml"],
    }
    return {
        "going": {
            unit: [f"{UNIT_FOLDER}/{unit}", f"{STARTED_FROM_FOLDER}/{unit}", data_folder(roots, name), *own[name]]
            for name, unit in ((name, unit_name(name)) for name in names)
        },
        "going_folders": [monitoring_folder(roots), f"{roots.state}/monitoring"],
    }


SCHEMA: script_output.Schema = {"watching_secret": (script_output.path,)}
"""The output of templates/monitoring/state.sh.j2 in addition to units."""


def read_monitoring_facts(told: HostOutput) -> MonitoringFacts:
    """Read it of what a host has told."""
    states = read_service_states(told)
    units = {name: states[unit_name(name)] for name in PACKAGED_PROGRAMS if unit_name(name) in states}
    return MonitoringFacts(units, frozenset(told.all("watching_secret")))


def parse(output: Iterable[str]) -> MonitoringFacts:
    """Read what templates/look/monitoring.sh.j2 has told.

    Raises:
        ValueError: that is not what was asked for.
    """
    return read_monitoring_facts(script_output.parse_output(output, {**UNIT_SCHEMA, **SCHEMA}))


def _list_packages(rig: Rig, system: str) -> Iterable[str]:
    exporters = rig.accounts.exporters(rig.monitoring, cards=bool(rig.cards))
    return filter(None, (PACKAGED_PROGRAMS[name].package for name in exporters))


MONITORING_FACTS = FactSource(
    "monitoring",
    "monitoring/state.sh.j2",
    lambda rig: monitoring_state_values(rig.roots),
    SCHEMA,
    lambda output: {"monitoring": read_monitoring_facts(output)},
    _list_packages,
)
