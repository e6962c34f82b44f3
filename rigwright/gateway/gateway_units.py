"""The gateway on a host: its units and all that they read, as text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from rigwright.gateway import address_reservations, nginx_conf, secrets_distribution
from rigwright.gateway.address_reservations import split_place
from rigwright.gateway.request_rules import load_request_rules
from rigwright.gateway.rotation import ROTATION_FOLDER
from rigwright.gateway.secrets_distribution import (
    FLEET,
    FRONT,
    GATEWAY_UNIT,
    HEALTH_UNIT,
    KEEPALIVED_UNIT,
    ROUTER_SOCKET,
    ROUTER_SOCKETS,
    ROUTER_UNIT,
)
from rigwright.gateway.served_models import offers_of
from rigwright.host.systemd import LINKS, STARTED_FROM_FOLDER, UNIX, SocketUnit, UnitState
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.fleet_schema import (
    FrontPair,
    format_fleet_endpoint,
    front_certificate_name,
    lender_certificate_name,
)
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.model.inventory_feature import FactSource
from rigwright.model.monitoring_schema import Monitoring, metrics_readers
from rigwright.model.roots import Roots
from rigwright.render import render

if TYPE_CHECKING:
    from rigwright.model.gateway_schema import Gateway

# The socket unit that holds a listener's port: PREFIX, the port, `.socket`.
GATEWAY_PREFIX = "rigwright_gateway-"
# The units that the packages of PACKAGES bring, and start on port 80 as they are installed.
PACKAGES = (*nginx_conf.PACKAGES, "logrotate")
# Runtime folders of both.
RUNTIME, ROUTER_RUNTIME = f"/run/{secrets_distribution.GATEWAY}", f"/run/{secrets_distribution.ROUTER}"
# The copy of clients' keys that the router reads.
ROUTER_KEYS = f"{ROUTER_RUNTIME}/keys.json"
ADMIN = f"{RUNTIME}/admin.sock"
SILENCE = 3  # seconds within which a stream says something, and can be ended with a reason
WAKE_SOCKET = "/run/rigwright/residency.sock"
"""The socket of the service that starts instances on demand."""
WAKE_STATES = "/run/rigwright/residency/states"
"""The service's file of instances that failed or were stopped by hand; systemd removes its folder with the service."""
LOGS = "/var/log/rigwright_gateway"
LOG = f"{LOGS}/access.log"
# Tokens by key and model: this and a day (UTC).
USAGE = f"{LOGS}/usage-"
# By which logrotate, once a day, begins another one.
ROTATION = f"/etc/logrotate.d/{secrets_distribution.GATEWAY}"
# Seconds between looks at an instance that is silent, and until one that has not answered a probe is left out. Answers
# of a busy engine wait for those before them: a minute is longer than a prefill of 256K tokens on the slowest of our
# cards (2.5k tokens/s and more, reported for two RTX 2080 Ti).
PROBE_EVERY, PROBE_TIMEOUT = 10, 120
# Below the generation's folder.
FOLDER = "gateway"
RESERVE = "reserve.py"
# The programs that root runs for them.
SCRIPTS = ("bounded", "prove", "configured")
# By these, a gateway shares an address with another one.
KEEPALIVED, KEEPALIVED_PACKAGED_UNIT = "keepalived", "keepalived.service"
# Addresses that each network has.
EVERYWHERE = frozenset({"0.0.0.0", "::", "127.0.0.1", "::1"})  # noqa: S104
HEALTH_FOLDER = "/run/rigwright_health"
HEALTH_PROGRAM = Path(__file__).resolve().parents[2] / "roles/gateway/host/health.py"
ADVERT_INTERVAL = 0.5  # seconds; after three of them without a word the other gateway takes the address
BOX_OUT = "out"
"""The file in `roots.rollout` that keeps gateways of other boxes away from this one."""
PROGRAM = Path(__file__).resolve().parents[2] / "roles/gateway/host/router"


@dataclass(frozen=True)
class GatewayFiles:
    """A rig's gateway, as files of a generation and units."""

    files: Mapping[str, str]
    """Path in the generation's folder -> text, units among them."""
    unit_states: tuple[UnitState, ...]
    """That of what keeps addresses, if any, then the router's, then nginx's own."""

    def joined(self, other: GatewayFiles) -> GatewayFiles:
        """These files and units, then those of another part."""
        return GatewayFiles({**self.files, **other.files}, (*self.unit_states, *other.unit_states))

    @property
    def wanted_units(self) -> tuple[str, ...]:
        """Units that the rig's target starts."""
        return tuple(name for state in self.unit_states for name in (*(one.unit for one in state.holders), state.unit))


@cache
def load_router_modules() -> dict[str, str]:
    """The router's modules: name -> text."""
    return {path.name: path.read_text() for path in sorted(PROGRAM.glob("*.py"))}


def router_settings(
    roots: Roots, instances: tuple[Instance, ...], gateway_entry: Gateway | None, gateway: Gateway, nginx: str
) -> dict[str, object]:
    """The settings of router and nginx, as both read them; `digest` stands for them and for nginx's configuration."""
    links = gateway.fleet
    made: dict[str, object] = {
        "listeners": {
            name: {
                "keys": one.keys,
                "models": list(one.models) or None,
                # with a key, or by a certificate, a client that a foreign name led here is refused
                "names": [] if one.keys else [host.lower() for host in one.names],
            }
            for name, one in gateway.listeners.items()
        },
        "models": {
            one.name: {
                "instances": list(one.names),
                "engine_name": one.engine_names,
                "paths": list(one.paths),
                "queue": one.queue,
                "slots": one.slots,
                "sticky": one.sticky,
                "allow_fields": list(one.allow_fields),
                "salted": one.cache_isolation == "key",
                "usage_on_request": one.usage_on_request,
                **({"on_demand": list(one.on_demand)} if one.on_demand else {}),
            }
            for one in offers_of(instances, gateway_entry)
        },
        "aliases": dict(sorted(gateway.aliases.items())),
        "fields": [one.setting for one in load_request_rules()],
        "origins": list(gateway.origins),
        "probe": {"every": PROBE_EVERY, "timeout": PROBE_TIMEOUT},
        "links": LINKS,
        "out": f"{ROUTER_RUNTIME}/out",
        "rotation": ROTATION_FOLDER,
        "admin": ADMIN,
        "usage": USAGE,
    }
    if any(one.on_demand for one in offers_of(instances, gateway_entry)):
        made["wake"] = {
            "socket": WAKE_SOCKET,
            "states": WAKE_STATES,
            "wait": gateway.wait,
            "evict": {name: one.may_evict for name, one in gateway.listeners.items()},
        }
    if links.remote:
        made["remote"] = {
            one.name: {
                "url": f"https://fleet-{one.box}/{one.instance}",
                "certificate": lender_certificate_name(one.box),
                # connections to this address end when the box is lost
                "address": one.address,
                "port": one.port,
            }
            for one in links.remote
        }
    if links.listener:
        # names in certificates: a gateway that uses one instance of this box may not use the others
        made["lent"] = {
            one: [front_certificate_name(box) for box in boxes] for one, boxes in links.listener.users.items()
        }
        made["fronts"] = {front_certificate_name(box): bound for box, bound in links.listener.bounds.items()}
        made["box_out"] = f"{roots.rollout}/{BOX_OUT}"
    text = json.dumps(made, sort_keys=True) + nginx + json.dumps(dict(nginx_conf.load_lua_modules()), sort_keys=True)
    return made | {"digest": hashlib.sha256(text.encode()).hexdigest()}


def listener_sockets(gateway: Gateway | None) -> tuple[SocketUnit, ...]:
    """The socket units of its listeners."""
    places: dict[int, set[str]] = {}
    for one in gateway.listeners.values() if gateway else ():
        places.setdefault(one.port, set()).update(one.addresses)
    if gateway and (fleet := gateway.fleet.listener):
        places.setdefault(fleet.port, set()).add(fleet.endpoint)
    return tuple(SocketUnit(f"{GATEWAY_PREFIX}{port}.socket", frozenset(at)) for port, at in sorted(places.items()))


def gateway_services(gateway: Gateway | None) -> list[str]:
    """The services of a gateway."""
    if not gateway:
        return []
    pair = [HEALTH_UNIT, KEEPALIVED_UNIT] if gateway.fleet.pair else []
    return [GATEWAY_UNIT, ROUTER_UNIT, *address_reservations.unit_names(gateway), *pair]


def certificate_owners(gateway: Gateway) -> list[str]:
    """Listeners with a certificate, and the ends of connections between boxes."""
    links = gateway.fleet
    between = [name for name, used in ((FRONT, links.remote), (FLEET, links.listener)) if used]
    return [*(name for name, one in gateway.listeners.items() if one.tls), *between]


def render_gateway(
    roots: Roots,
    accounts: ServiceAccounts,
    instances: tuple[Instance, ...],
    gateway: Gateway | None,
    monitoring: Monitoring | None,
    owned: str,
) -> GatewayFiles:
    """A rig's gateway; nothing where it has none.

    Args:
        roots: Directories on the host.
        accounts: System users of the services.
        instances: The declared instances.
        gateway: The declared gateway.
        monitoring: The declared monitoring.
        owned: First line of unit files of ours.
    """
    if not gateway:
        return GatewayFiles({}, ())
    sockets, links = listener_sockets(gateway), gateway.fleet
    nginx = nginx_conf.render_nginx_conf(
        nginx_conf.NginxSettings(
            listeners=tuple(
                nginx_conf.NginxListener(name, one.addresses, keys=one.keys, tls=one.tls)
                for name, one in sorted(gateway.listeners.items())
            ),
            folder=f"{roots.config}/current/{FOLDER}",
            router=ROUTER_SOCKETS,
            runtime=RUNTIME,
            log=LOG,
            scrapers=metrics_readers(gateway, monitoring),
            sticky_headers=tuple(
                sorted(
                    {one.sticky.removeprefix("header:") for one in offers_of(instances, gateway) if ":" in one.sticky}
                )
            ),
            boxes={one.box: format_fleet_endpoint(one.address, one.port) for one in links.remote},
            fleet=nginx_conf.NginxFleetListener(
                links.listener.endpoint, tuple(front_certificate_name(box) for box in links.listener.fronts)
            )
            if links.listener
            else None,
            wakes=any(one.on_demand for one in offers_of(instances, gateway)),
        ),
        owned,
    )
    config = {
        "nginx.conf": nginx,
        **nginx_conf.load_lua_modules(),
        "settings.json": json.dumps(
            router_settings(roots, instances, gateway, gateway, nginx), indent=1, sort_keys=True
        )
        + "\n",
        # a reload gives it these in addition: another key of an engine is a reason for one, on the way back, too
        **secrets_distribution.render_name_lists(
            {one.name: one.key_name for one in instances}, certificate_owners(gateway)
        ),
    }
    modules = {f"router/{name}": text for name, text in load_router_modules().items()}
    routed = modules | {"settings.json": config["settings.json"]}
    programs = {RESERVE: address_reservations.PROGRAM.read_text()}
    values: dict[str, object] = {
        "owned": owned,
        "roots": roots,
        "accounts": accounts,
        "gateway": GATEWAY_UNIT,
        "router": ROUTER_UNIT,
        "router_socket": ROUTER_SOCKET,
        "router_sockets": ROUTER_SOCKETS,
        "runtime": RUNTIME,
        "router_runtime": ROUTER_RUNTIME,
        "admin": ADMIN,
        "config": sorted(config),
        "routed": sorted(routed),
        "logs": LOGS,
        "started_from": STARTED_FROM_FOLDER,
        "folder": f"{roots.config}/current/{FOLDER}",
        "uses_other_boxes": bool(links.remote),
        "pair": links.pair,
        "places": sorted({split_place(at)[0] for one in sockets for at in one.addresses} - EVERYWHERE),
        "sockets": [(one.unit, sorted(one.addresses)) for one in sockets],
        # one descriptor each address, in the order of the units; nginx finds out by itself which is which
        "handed": [3 + number for number in range(sum(len(one.addresses) for one in sockets))],
        "digest": _digest_texts(routed)[:16],
    }
    reserved = address_reservations.reserved_addresses(gateway)
    keeping = {
        name: render("gateway/reserved.service.j2", **values, unit=name, reserved=reserved, program=RESERVE)
        for name in address_reservations.unit_names(gateway)
    }
    units = keeping | {
        GATEWAY_UNIT: render("gateway/gateway.service.j2", **values),
        ROUTER_UNIT: render("gateway/router.service.j2", **values),
        ROUTER_SOCKET: render("gateway/router.socket.j2", **values),
        **{
            one.unit: render("gateway/listener.socket.j2", **values, addresses=sorted(one.addresses), port=one.port)
            for one in sockets
        },
    }
    shared: dict[str, str] = {}
    of_pair: dict[str, str] = {}
    if links.pair:
        shared, of_pair = _render_keepalived(values, links.pair)
        units |= of_pair
    scripts = {
        name: render(f"gateway/{name}.j2", **values) for name in SCRIPTS
    } | secrets_distribution.render_root_programs(roots, accounts)
    return GatewayFiles(
        files={f"{FOLDER}/{name}": text for name, text in (config | modules | programs | scripts | shared).items()}
        | {f"units/{name}": text for name, text in units.items()},
        unit_states=(
            *(UnitState(name, _sha256(text), 0, frozenset()) for name, text in keeping.items()),
            UnitState(
                *(ROUTER_UNIT, _sha256(units[ROUTER_UNIT]), 0, frozenset()),
                holders=(SocketUnit(ROUTER_SOCKET, frozenset({UNIX})),),
                configured_from=_digest_texts(routed),
            ),
            UnitState(
                *(GATEWAY_UNIT, _sha256(units[GATEWAY_UNIT]), 0, frozenset(), sockets),
                configured_from=_digest_texts(config),
                rereads=True,
            ),
            # after it, for its health decides
            *(UnitState(name, _sha256(text), 0, frozenset()) for name, text in of_pair.items()),
        ),
    )


def _digest_texts(files: Mapping[str, str]) -> str:
    """SHA-256 of texts one after another, as templates/gateway/configured.j2 has it of those on the host."""
    return _sha256("".join(text for _, text in sorted(files.items())))


def _health_questions() -> list[dict[str, object]]:
    """The questions of each second: to the gateway and its router.

    `fall` is the number of failures until the address goes. A restart with other settings takes a second or two.
    Instances decide nothing: clients of a model without one get 503 with `Retry-After`, and both gateways mostly lose
    the same ones.
    """
    return [
        {"socket": ADMIN, "path": "/state", "fall": 4},
        {"socket": f"{ROUTER_SOCKETS}/light.sock", "path": "/state", "fall": 4},
    ]


def _render_keepalived(values: Mapping[str, object], pair: FrontPair) -> tuple[dict[str, str], dict[str, str]]:
    """Files of a gateway that shares an address, by name in its folder, and the texts of its units."""
    program = HEALTH_PROGRAM.read_text()
    more = {
        **values,
        "keepalived": KEEPALIVED_UNIT,
        "health": HEALTH_UNIT,
        "health_folder": HEALTH_FOLDER,
        "health_digest": _sha256(program)[:16],
        "questions": _health_questions(),
        "interval": ADVERT_INTERVAL,
        # both gateways of a pair have one number, and pairs of a network mostly have others
        "number": int(ip_address(pair.address)) % 255 + 1,
    }
    config = render("gateway/keepalived.conf.j2", **more)
    units = {
        HEALTH_UNIT: render("gateway/health.service.j2", **more),
        KEEPALIVED_UNIT: render("gateway/keepalived.service.j2", **more, keepalived_digest=_sha256(config)[:16]),
    }
    placed = render("gateway/placed.j2", **more)
    return {"keepalived.conf": config, "placed": placed, HEALTH_PROGRAM.name: program}, units


def render_logrotate(accounts: ServiceAccounts, owned: str) -> str:
    """The text of `ROTATION`; part of no generation, as the logs are of none.

    Args:
        accounts: System users of the services.
        owned: First line of files of ours.
    """
    return render("gateway/logrotate.j2", owned=owned, log=LOG, user=accounts.gateway, unit=GATEWAY_UNIT)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _list_packages(gateway: Gateway | None) -> tuple[str, ...]:
    return () if gateway is None else (*PACKAGES, KEEPALIVED) if gateway.fleet.pair else PACKAGES


GATEWAY_FACTS = FactSource("gateway", packages=lambda rig, system: _list_packages(rig.gateway))
