"""The listeners of a host, those that lead to Rigwright's, and the users that may open Rigwright's sockets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from checks.survey.section import PathFacts as PathFacts
from checks.survey.section import Section, SurveyScope
from rigwright.gateway.gateway_units import ADMIN, gateway_services
from rigwright.gateway.secrets_distribution import GATEWAY_UNIT, ROUTER_SOCKETS, ROUTER_UNIT
from rigwright.gateway.served_models import offers_of
from rigwright.model.fleet_schema import FleetListener
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.monitoring.monitoring_units import monitoring_services
from rigwright.operate.client_target import listener_endpoint
from rigwright.serving.instance_units import LOOPBACK
from rigwright.serving.instance_units import listener_units as listener_units
from rigwright.weights.weight_server import SHARE_UNIT as SHARE_UNIT
from rigwright.weights.weight_server import share_endpoint


@dataclass(frozen=True)
class TcpListener:
    """A listener of TCP."""

    at: str
    systemd: bool
    """Whether systemd itself has it."""
    holders: list[str]
    """Its owners in addition to systemd."""

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.at.rpartition(":")[2])


@dataclass(frozen=True)
class ForeignLead:
    """A listener of others that leads to us."""

    at: str
    program: str
    how: str
    """The evidence."""


@dataclass(frozen=True)
class Tunnel:
    """A program that carries connections, and names us."""

    program: str
    words: str


@dataclass(frozen=True)
class ReachSurvey:
    """All of it."""

    listeners: list[TcpListener]
    leads: list[ForeignLead]
    lying: dict[str, PathFacts]
    listening: dict[str, dict[str, list[str]]]
    """Path of a unix socket -> the listeners by that name: `own`, in the networks of the unit's processes; `host`."""
    mounted: dict[str, list[str]]
    """Folder -> where else that which is mounted there is, and what is mounted over it."""
    routed: list[str]
    """Interfaces whose neighbours may speak to the loopback interface."""
    addresses: list[str]
    tunnels: list[Tunnel]


def socket_units(instances: tuple[Instance, ...], gateway: Gateway | None) -> dict[str, str]:
    """Paths of our unix sockets, each with the unit that listens there."""
    found = {one.socket: one.unit for one in instances}
    if gateway:
        found |= {ADMIN: GATEWAY_UNIT} | {f"{ROUTER_SOCKETS}/{name}.sock": ROUTER_UNIT for name in ("heavy", "light")}
    return found


def private_folders(instances: tuple[Instance, ...], gateway: Gateway | None) -> list[str]:
    """Folders that others cannot go through: an instance's own, and the gateway's."""
    return [str(PurePosixPath(one).parent) for one in [*(i.socket for i in instances), *([ADMIN] if gateway else [])]]


def service_units(rig: Rig) -> list[str]:
    """Services of ours."""
    found = [name for one in rig.instances for name in (one.unit, listener_units(one.port)[0])]
    found += gateway_services(rig.gateway)
    found += [SHARE_UNIT] if rig.share else []
    return [*found, *(one.unit_name for one in monitoring_services(rig))]


def _fleet_listeners(rig: Rig) -> list[FleetListener]:
    """The port for gateways of other boxes, if the rig has one."""
    listener = rig.gateway.fleet.listener if rig.gateway else None
    return [listener] if listener else []


def service_ports(rig: Rig) -> list[int]:
    """Ports of ours."""
    found = {one.port for one in rig.instances} | {
        one.port for one in (rig.gateway.listeners.values() if rig.gateway else ())
    }
    found |= {one.port for one in _fleet_listeners(rig)}
    return sorted(found | ({rig.share.port} if rig.share else set()) | {one.at[1] for one in monitoring_services(rig)})


def service_addresses(rig: Rig) -> list[str]:
    """Where instances and gateway are reached on the host, and weights."""
    found = [f"{LOOPBACK}:{one.port}" for one in rig.instances]
    found += [listener_endpoint(one) for one in (rig.gateway.listeners.values() if rig.gateway else ())]
    found += [one.endpoint for one in _fleet_listeners(rig)]
    found += [share_endpoint(rig.share)] if rig.share else []
    return [*found, *(one.endpoint for one in monitoring_services(rig))]


def model_names(instances: tuple[Instance, ...], gateway: Gateway | None) -> list[str]:
    """Names that models are asked for by."""
    found = {one.model_name for one in instances} | {one.name for one in offers_of(instances, gateway)}
    return sorted(found | set(gateway.aliases if gateway else ()))


def _questions(scene: SurveyScope) -> object:
    rig = scene.rig
    return {
        "ports": service_ports(rig),
        "places": service_addresses(rig),
        "sockets": sorted(socket_units(rig.instances, rig.gateway)),
        "holders": socket_units(rig.instances, rig.gateway),
        "folders": private_folders(rig.instances, rig.gateway),
        "units": service_units(rig),
        "models": model_names(rig.instances, rig.gateway),
    }


REACH: Section[ReachSurvey] = Section(
    "service_exposure",
    ReachSurvey,
    _questions,
    blind="forwarders on other machines, in another network of this one (a container's), or active only after a boot",
    start_order=9,
)
