"""The services between clients and engines: the gateway, the ports of instances, and weight shares."""

from __future__ import annotations

from dataclasses import dataclass, field

from checks.survey.section import Section, SurveyScope
from rigwright.gateway.gateway_units import (
    FOLDER,
    LOGS,
    ROTATION,
    ROUTER_RUNTIME,
    RUNTIME,
    gateway_services,
    listener_sockets,
)
from rigwright.gateway.rotation import ROTATION_FOLDER
from rigwright.gateway.secrets_distribution import GATEWAY_UNIT, ROUTER_SOCKET
from rigwright.host.service_states import ServiceState
from rigwright.host.systemd import LINKS, STARTED_FROM_FOLDER
from rigwright.monitoring.monitoring_units import PACKAGED_PROGRAMS, monitoring_services, render_targets, unit_name
from rigwright.serving.instance_units import listener_units
from rigwright.weights.weight_server import SHARE_UNIT as SHARE_UNIT
from rigwright.weights.weight_server import config_path


@dataclass(frozen=True)
class GateUnit(ServiceState):
    """A unit, and what only checks ask of it."""

    configured: str = ""
    """SHA-256 of what the process has read beside that, as root wrote it down; empty where it did not."""
    later: int = 0
    """Seconds by which its workers began after that was noted, where its settings were touched since."""
    exposure: str = ""
    pid: int = 0


@dataclass(frozen=True)
class ShareProcess:
    """The process that shares weights."""

    user: int
    able: bool
    """Whether it has any capability."""
    writes: list[str]
    """Mounts by which it may write to what it shares."""


@dataclass(frozen=True)
class Gates:
    """All of it."""

    gates: dict[str, GateUnit]
    files: dict[str, str | None]
    """Texts of files, None where there is none."""
    rotated: int
    """When logrotate says that it has rotated the gateway's log last, in seconds since 1970; 0 for never."""
    offered: dict[str, str]
    """Instance -> where the gateway finds it."""
    out: list[str]
    """Instances that the gateway has left out."""
    loose: list[str]
    """Files with the gateway's secrets, or of its log, that others may read or write."""
    sharing: ShareProcess
    rotation: list[str] = field(default_factory=list)
    """Files of root's reasons to keep instances out of the rotation."""

    def unit_state(self, unit: str) -> GateUnit:
        """A unit; one that is not there where the host tells of none."""
        return self.gates.get(unit, GateUnit("not there", "not there"))


def _questions(scene: SurveyScope) -> object:
    rig = scene.rig
    doors = gateway_services(rig.gateway)
    services = [*doors, *([SHARE_UNIT] if rig.share else [])]
    timers = ["logrotate.timer"] if rig.gateway else []
    sockets = [*([ROUTER_SOCKET] if rig.gateway else []), *(one.unit for one in listener_sockets(rig.gateway))]
    units = [
        *services,
        *timers,
        *sockets,
        *(unit for one in rig.instances for unit in (one.unit, *listener_units(one.port))),
    ]
    if not rig.share:
        units.append(SHARE_UNIT)
    watching = [one.unit_name for one in monitoring_services(rig)]
    units += map(unit_name, PACKAGED_PROGRAMS)
    return {
        "units": units,
        "records": STARTED_FROM_FOLDER,
        "exposed": [*services, *watching],
        "files": [
            *([ROTATION] if rig.gateway else []),
            *([config_path(rig.roots)] if rig.share else []),
            *render_targets(rig.roots, rig.scrape_targets),
        ],
        "links": LINKS,
        "out": f"{ROUTER_RUNTIME}/out",
        "rotation": ROTATION_FOLDER,
        "runtime": RUNTIME,
        "logs": LOGS if rig.gateway else "",
        "models": rig.roots.models,
        "sharing": SHARE_UNIT,
        "settings": {GATEWAY_UNIT: [f"{rig.roots.config}/current/{FOLDER}"], SHARE_UNIT: [config_path(rig.roots)]},
    }


GATES: Section[Gates] = Section(
    "frontend_services", Gates, _questions, blind="requests answered before the check", start_order=6
)
