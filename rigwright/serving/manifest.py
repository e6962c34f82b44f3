"""A generation's manifest: what of a rig it serves, for deploys, people and programs that look at the box."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rigwright.addresses import Port
from rigwright.gateway.reservations import RESERVATION_UNIT
from rigwright.host.unit_states import SocketUnit, UnitState
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.catalog import Card
from rigwright.model.instance import Instance, loaded_weights
from rigwright.model.roots import Roots
from rigwright.serving.instance_units import InstanceUnit
from rigwright.serving.listeners import LOOPBACK, PortListener, listener_units, port_socket
from rigwright.types import CardIndex, Name, VariantName

UNIT = re.compile(r"rigwright-[a-z0-9][a-z0-9-]{0,47}\.service")

DIGEST = re.compile("[0-9a-f]{64}")
USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
NAME: TypeAdapter[str] = TypeAdapter(Name)
VARIANT: TypeAdapter[str] = TypeAdapter(VariantName)


class _ManifestInstance(BaseModel):
    """One instance, as far as a deploy acts on it.

    Manifests of before version 1 have no units in them, nor users; without a socket it listens on the port itself.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    port: Port
    cards: tuple[CardIndex, ...]
    socket: str = ""
    user: str = ""
    variant: str = ""
    units: dict[str, str] = Field(default_factory=dict)


class _ManifestListener(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    port: Port
    leads_to: str
    started_from: str


class _GatewayUnit(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    unit: str = Field(pattern=rf"^(rigwright_(gateway|router)\.service|{RESERVATION_UNIT.pattern})$")
    user: str
    started_from: str = Field(pattern=r"^[0-9a-f]{64}$")
    rereads: bool = False
    configured_from: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    sockets: dict[
        Annotated[str, Field(pattern=r"^rigwright_(gateway-[0-9]{1,5}|router)\.socket$")],
        tuple[Annotated[str, Field(pattern=r"^(unix|[0-9a-f.:\[\]]{3,45}:[0-9]{1,5})$")], ...],
    ]


class _Manifest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    instances: dict[str, _ManifestInstance]
    listeners: tuple[_ManifestListener, ...] = ()
    gateway: tuple[_GatewayUnit, ...] = ()


def render_manifest(
    box: str,
    roots: Roots,
    accounts: ServiceAccounts,
    cards: tuple[Card, ...],
    instances: tuple[Instance, ...],
    engines: Mapping[str, str],
    tools: str,
    units: tuple[InstanceUnit, ...],
    listeners: tuple[PortListener, ...],
    gateway: tuple[UnitState, ...] = (),
) -> str:
    """The manifest's text.

    Args:
        box: The name of the rig.
        roots: Directories on the host.
        accounts: System users of the services.
        cards: The declared cards by GPU index.
        instances: The declared instances.
        engines: Engine -> the folder of its installation.
        tools: The folder of the host's tools.
        units: Those of the rig's instances, in their order.
        listeners: On their ports.
        gateway: What the units of its gateway are to be.
    """
    value = {
        "rig": box,
        "cards": [card.name for card in cards],
        "engines": dict(engines),
        "state": roots.state,
        "tools": tools,
        "weights": {roots.weight_path(artefact): artefact.sha256 for artefact in loaded_weights(instances)},
        "instances": {
            i.name: {
                "variant": i.variant_name,
                "kind": i.engine.kind,
                "port": i.port,
                "listener": f"{LOOPBACK}:{i.port}",
                "cards": list(i.cards),
                "engine": i.engine_name,
                "capacity": list(i.variant.capacity or ()),
                "digest": one.digest,
                "units": {one.name: one.unit_state.started_from},
                "slice": one.slice,
                "user": one.user,
                "socket": i.socket,
                "weights": [roots.weight_path(artefact) for artefact in i.weights],
            }
            for i, one in zip(instances, units, strict=True)
        },
        "listeners": [
            {
                "port": one.port,
                "address": f"{LOOPBACK}:{one.port}",
                "leads_to": one.instance,
                "started_from": one.unit_state.started_from,
                "units": [one.unit, one.socket_unit],
            }
            for one in listeners
        ],
        "gateway": [
            {
                "unit": one.unit,
                "user": accounts.gateway if one.rereads else accounts.router,
                "started_from": one.started_from,
                "configured_from": one.configured_from,
                "rereads": one.rereads,
                "sockets": {holder.unit: sorted(holder.addresses) for holder in one.holders},
            }
            for one in gateway
        ],
    }
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


@dataclass(frozen=True)
class ManifestFacts:
    """What a deploy acts on of a manifest that lies on a host."""

    unit_states: tuple[UnitState, ...] = ()
    users: frozenset[str] | None = None
    """That its instances run as; None where it does not say so of all."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """Instance -> the variant that it serves, of those whose names are names."""
    cards: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The same instances -> GPU indexes that each has, in its order."""


def parse_manifest(text: str, started_from: Mapping[str, str]) -> ManifestFacts:
    """Read a manifest that lies on a host.

    Args:
        text: The manifest.
        started_from: Unit -> SHA-256 of its texts, of a manifest that does not say it.

    Raises:
        ValueError: it is none.
    """
    try:
        made = _Manifest.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"a manifest that is none: {error.errors()[0]['msg']}") from None
    unit_states = [
        unit_state for name, one in made.instances.items() for unit_state in _instance_states(name, one, started_from)
    ]
    unit_states += [_listener_state(one) for one in made.listeners]
    unit_states += [_gateway_state(one) for one in made.gateway]
    users = frozenset([one.user for one in made.instances.values()] + [one.user for one in made.gateway])
    known = users if all(USER.fullmatch(user) for user in users) else None
    ordered = tuple(sorted(unit_states, key=lambda unit_state: unit_state.unit))
    variants = dict(_variants_by_instance(made.instances))
    return ManifestFacts(ordered, known, variants, {name: made.instances[name].cards for name in variants})


def _variants_by_instance(instances: Mapping[str, _ManifestInstance]) -> Iterator[tuple[str, str]]:
    for name, one in instances.items():
        with suppress(ValidationError):
            yield NAME.validate_python(name), VARIANT.validate_python(one.variant)


def _instance_states(name: str, made: _ManifestInstance, started_from: Mapping[str, str]) -> list[UnitState]:
    units = made.units or {unit: digest for unit, digest in started_from.items() if unit == f"rigwright-{name}.service"}
    for unit, digest in units.items():
        if not UNIT.fullmatch(unit) or not DIGEST.fullmatch(digest):
            raise ValueError(f"a manifest with the unit {unit!r}")
    port = 0 if made.socket else made.port
    return [UnitState(unit, digest, port, frozenset(made.cards)) for unit, digest in units.items()]


def _listener_state(made: _ManifestListener) -> UnitState:
    if not DIGEST.fullmatch(made.started_from) or not UNIT.fullmatch(made.leads_to):
        raise ValueError(f"a manifest with the listener {made.leads_to!r} on port {made.port}")
    service = listener_units(made.port)[0]
    return UnitState(service, made.started_from, made.port, frozenset(), (port_socket(made.port),), made.leads_to)


def _gateway_state(made: _GatewayUnit) -> UnitState:
    sockets = tuple(SocketUnit(name, frozenset(at)) for name, at in made.sockets.items())
    return UnitState(
        *(made.unit, made.started_from, 0, frozenset(), sockets),
        configured_from=made.configured_from,
        rereads=made.rereads,
    )
