"""Who listens on a host, what of it leads to us, and who may open our sockets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from checks.survey.found_files import FoundFile as FoundFile
from checks.survey.section import Scene, Section
from rigwright.gateway.given import GATEWAY_UNIT, ROUTER_SOCKETS, ROUTER_UNIT
from rigwright.gateway.offers import offers_of
from rigwright.gateway.reservations import unit_names
from rigwright.gateway.service import ADMIN
from rigwright.model.rig import Rig
from rigwright.monitoring.service import services
from rigwright.operate.place import reached
from rigwright.serving.listeners import LOOPBACK
from rigwright.serving.listeners import names as listener_units
from rigwright.weights.sharing import UNIT as SHARE_UNIT
from rigwright.weights.sharing import endpoint


@dataclass(frozen=True)
class Listening:
    """A listener of TCP."""

    at: str
    systemd: bool
    """Whether systemd itself has it."""
    holders: list[str]
    """Who has it beside systemd."""

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.at.rpartition(":")[2])


@dataclass(frozen=True)
class Lead:
    """A listener of others that leads to us."""

    at: str
    program: str
    how: str
    """What shows it."""


@dataclass(frozen=True)
class Tunnel:
    """A program that carries connections, and names us."""

    program: str
    words: str


@dataclass(frozen=True)
class Reach:
    """All of it."""

    listeners: list[Listening]
    leads: list[Lead]
    lying: dict[str, FoundFile]
    listening: dict[str, dict[str, list[str]]]
    """Path of a unix socket -> who listens by that name: `own`, in the networks of the unit's processes; `host`."""
    mounted: dict[str, list[str]]
    """Folder -> where else that which is mounted there is, and what is mounted over it."""
    routed: list[str]
    """Interfaces whose neighbours may speak to the loopback interface."""
    addresses: list[str]
    tunnels: list[Tunnel]


def sockets(rig: Rig) -> dict[str, str]:
    """Paths of our unix sockets, each with the unit that listens there."""
    found = {one.socket: one.unit for one in rig.instances}
    if rig.gateway:
        found |= {ADMIN: GATEWAY_UNIT} | {f"{ROUTER_SOCKETS}/{name}.sock": ROUTER_UNIT for name in ("heavy", "light")}
    return found


def folders(rig: Rig) -> list[str]:
    """Folders that others cannot go through: an instance's own, and the gateway's."""
    return [
        str(PurePosixPath(one).parent)
        for one in [*(i.socket for i in rig.instances), *([ADMIN] if rig.gateway else [])]
    ]


def units(rig: Rig) -> list[str]:
    """Services of ours."""
    found = [name for one in rig.instances for name in (one.unit, listener_units(one.port)[0])]
    found += (GATEWAY_UNIT, ROUTER_UNIT, *unit_names(rig)) if rig.gateway else ()
    found += [SHARE_UNIT] if rig.share else []
    return [*found, *(one.unit_name for one in services(rig))]


def ports(rig: Rig) -> list[int]:
    """Ports of ours."""
    found = {one.port for one in rig.instances} | {
        one.port for one in (rig.gateway.listeners.values() if rig.gateway else ())
    }
    return sorted(found | ({rig.share.port} if rig.share else set()) | {one.at[1] for one in services(rig)})


def places(rig: Rig) -> list[str]:
    """Where instances and gateway are reached on the host, and weights."""
    found = [f"{LOOPBACK}:{one.port}" for one in rig.instances]
    found += [reached(one) for one in (rig.gateway.listeners.values() if rig.gateway else ())]
    found += [endpoint(rig.share)] if rig.share else []
    return [*found, *(one.endpoint for one in services(rig))]


def models(rig: Rig) -> list[str]:
    """Names that models are asked for by."""
    found = {one.model_name for one in rig.instances} | {one.name for one in offers_of(rig)}
    return sorted(found | set(rig.gateway.aliases if rig.gateway else ()))


def _questions(scene: Scene) -> object:
    rig = scene.rig
    return {
        "ports": ports(rig),
        "places": places(rig),
        "sockets": sorted(sockets(rig)),
        "holders": sockets(rig),
        "folders": folders(rig),
        "units": units(rig),
        "models": models(rig),
    }


REACH: Section[Reach] = Section("reach", Reach, _questions)
