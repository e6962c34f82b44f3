"""What stands between clients and engines: the gateway, the ports of instances, and what shares weights."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Scene, Section
from rigwright.gateway.given import GATEWAY_UNIT, ROUTER_SOCKET, ROUTER_UNIT
from rigwright.gateway.reservations import unit_names
from rigwright.gateway.service import FOLDER, LOGS, ROTATION, ROUTER_RUNTIME, RUNTIME, holders
from rigwright.host.systemd import LINKS, STARTED_FROM
from rigwright.monitoring.service import KINDS, told_targets, unit_name
from rigwright.monitoring.service import services as watchers
from rigwright.serving.listeners import names
from rigwright.weights.sharing import UNIT as SHARE_UNIT
from rigwright.weights.sharing import config_path


@dataclass(frozen=True)
class Gate:
    """A unit."""

    active: str
    enabled: str
    started: str
    """SHA-256 of what its process was started from; empty where root has noted none."""
    configured: str
    """SHA-256 of what it has read beside that, likewise."""
    replaced: bool
    """Whether its program on disk is another one than the one that runs."""
    later: int
    """Seconds by which its workers began after that was noted, where its settings were touched since."""
    exposure: str
    pid: int


@dataclass(frozen=True)
class Sharing:
    """The process that shares weights."""

    user: int
    able: bool
    """Whether it has any capability."""
    writes: list[str]
    """Mounts by which it may write to what it shares."""


@dataclass(frozen=True)
class Gates:
    """All of it."""

    gates: dict[str, Gate]
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
    sharing: Sharing

    def gate(self, unit: str) -> Gate:
        """A unit; one that is not there where the host tells of none."""
        return self.gates.get(unit, Gate("not there", "not there", "", "", False, 0, "", 0))


def _questions(scene: Scene) -> object:
    rig = scene.rig
    doors = [GATEWAY_UNIT, ROUTER_UNIT, *unit_names(rig)] if rig.gateway else []
    services = [*doors, *([SHARE_UNIT] if rig.share else [])]
    timers = ["logrotate.timer"] if rig.gateway else []
    sockets = [*([ROUTER_SOCKET] if rig.gateway else []), *(one.unit for one in holders(rig))]
    units = [*services, *timers, *sockets, *(unit for one in rig.instances for unit in (one.unit, *names(one.port)))]
    if not rig.share:
        units.append(SHARE_UNIT)
    watching = [one.unit_name for one in watchers(rig)]
    units += map(unit_name, KINDS)
    return {
        "units": units,
        "records": STARTED_FROM,
        "exposed": [*services, *watching],
        "files": [
            *([ROTATION] if rig.gateway else []),
            *([config_path(rig)] if rig.share else []),
            *told_targets(rig),
        ],
        "links": LINKS,
        "out": f"{ROUTER_RUNTIME}/out",
        "runtime": RUNTIME,
        "logs": LOGS if rig.gateway else "",
        "models": rig.roots.models,
        "sharing": SHARE_UNIT,
        "settings": {
            GATEWAY_UNIT: [f"{rig.roots.config}/current/{FOLDER}"],
            SHARE_UNIT: [config_path(rig)],
        },
    }


GATES: Section[Gates] = Section("gates", Gates, _questions)
