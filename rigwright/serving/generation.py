"""Generations: numbered, complete states of what a rig serves, each with its manifest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rigwright.address_types import Port
from rigwright.fetch_job_spec import ToolEnvironment
from rigwright.gateway.address_reservations import RESERVATION_UNIT
from rigwright.gateway.gateway_units import render_gateway
from rigwright.host.generation_layout import ACTIVATING, digest_generation
from rigwright.host.systemd import LINKS, STARTED_FROM_FOLDER, UNIT_FOLDER, SocketUnit, UnitState
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.catalog_schema import Card
from rigwright.model.installation import Installation
from rigwright.model.instance import SOCKET_FOLDER, WARM, Instance, loaded_weights
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.serving.instance_units import (
    LOOPBACK,
    OWNED_HEADER,
    InstanceUnit,
    PortListener,
    build_listener,
    build_unit,
    credential_path,
    listener_units,
    port_socket,
)
from rigwright.validated_types import CardIndex, Name, VariantName

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
    on_demand: bool = False


class _ManifestListener(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    port: Port
    leads_to: str
    started_from: str


class _GatewayUnit(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    unit: str = Field(
        pattern=rf"^(rigwright_(gateway|router|keepalived|health|residency)\.service|{RESERVATION_UNIT.pattern})$"
    )
    user: str
    started_from: str = Field(pattern=r"^[0-9a-f]{64}$")
    rereads: bool = False
    configured_from: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    sockets: dict[
        Annotated[str, Field(pattern=r"^rigwright_(gateway-[0-9]{1,5}|router|residency)\.socket$")],
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
        gateway: The target states of the units of its gateway.
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
                **({"on_demand": True} if i.is_on_demand else {}),
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
    """The parts of a manifest on a host that a deploy acts on."""

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
        ValueError: it is invalid.
    """
    try:
        made = _Manifest.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"an invalid manifest: {error.errors()[0]['msg']}") from None
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
    return [
        UnitState(unit, digest, port, frozenset(made.cards), on_demand=made.on_demand) for unit, digest in units.items()
    ]


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


SETTLE = "rigwright_settle.service"


@dataclass(frozen=True)
class Generation:
    """The generation that a rig is to serve."""

    files: dict[str, str]
    """Path in the generation's folder -> text."""
    links: dict[str, str]
    """Path in the generation's folder -> what the link points to."""
    units: tuple[InstanceUnit, ...]
    """Those of its instances."""
    listeners: tuple[PortListener, ...]
    gateway: tuple[UnitState, ...]
    """The target states of the units of its gateway; none without one."""
    mark: str
    """In the target's description: tells which generation systemd has read."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all content, as templates/generation/state.sh.j2 finds it on the host."""
        return digest_generation(self.files, self.links)

    @property
    def unit_states(self) -> tuple[UnitState, ...]:
        """The target states and holdings of its units' processes."""
        return (*(one.unit_state for one in self.units), *(one.unit_state for one in self.listeners), *self.gateway)

    @property
    def unit_files(self) -> tuple[str, ...]:
        """Names of its unit files, by name."""
        return tuple(sorted(path.removeprefix("units/") for path in self.files if path.startswith("units/")))


def build_generation(
    rig: Rig,
    installations: Mapping[str, Installation],
    tools: ToolEnvironment,
    nodes: Mapping[str, int | None] | None = None,
) -> Generation:
    """The generation that a rig asks for; the same rig on the same host gives the same bytes.

    Args:
        rig: The rig.
        installations: Engine or environment -> what it is on the host.
        tools: The host's Python tools.
        nodes: Instance -> the NUMA node that its cards are at, where they share one.
    """
    # few verbs build a generation
    from rigwright.serving.memory_recorder import RECORDER, render_recorder

    toolkits = sorted({made.toolkit.folder for made in installations.values() if made.toolkit and made.toolkit.folder})
    engines = {name: rig.roots.installation_path(made.folder) for name, made in installations.items()}
    units = tuple(
        build_unit(rig, instance, installations[instance.installed_as], (nodes or {}).get(instance.name))
        for instance in rig.instances
    )
    listeners = tuple(
        build_listener(rig.roots, rig.accounts, rig.gateway, instance, OWNED_HEADER) for instance in rig.instances
    )
    gateway = render_gateway(rig.roots, rig.accounts, rig.instances, rig.gateway, rig.monitoring, OWNED_HEADER)
    if any(one.on_demand for one in units):
        # here, for most hosts have none
        from rigwright.serving.residency import render_residency

        gateway = gateway.joined(render_residency(rig, units))
    scripts = {
        "ready": render(
            "serving/ready.j2",
            started_from=STARTED_FROM_FOLDER,
            units=UNIT_FOLDER,
            starts=rig.roots.startup_records,
            warm=WARM,
            links=LINKS if rig.gateway else "",
            sockets=SOCKET_FOLDER,
            gateway=rig.accounts.gateway,
            recorder=RECORDER,
            memory=rig.roots.memory_records,
        ),
        "seed": render("serving/seed.j2", started_from=STARTED_FROM_FOLDER, warm=WARM),
        "started": render("serving/started.j2", started_from=STARTED_FROM_FOLDER, units=UNIT_FOLDER),
        "settle": render("generation/settle.j2", config=rig.roots.config, activating=ACTIVATING, units=UNIT_FOLDER),
    }
    files = {
        **scripts,
        **{f"units/{one.name}": one.text for one in units},
        **{f"env/{one.instance}": one.environment for one in units},
        **{f"requests/{one.instance}": one.ready for one in units},
        **{f"requests/{one.instance}.again": one.ready_again for one in units if one.ready_again},
        **{f"warm-up/{u.instance}.{n}": text for u in units for n, text in enumerate(u.warm_up, start=1)},
        **{f"weights/{one.instance}": one.weights for one in units},
        **{f"said/{one.instance}": "".join(f"{mark}\n" for mark in one.marks) for one in units if one.marks},
        **render_recorder(rig, units),
        **{f"programs/{name}": text for one in units for name, text in one.programs.items()},
        **{f"units/{one.unit}": one.text for one in listeners},
        **{f"units/{one.socket_unit}": one.socket_text for one in listeners},
        "units/rigwright.slice": render("serving/rigwright.slice.j2", owned=OWNED_HEADER),
        f"units/{SETTLE}": render(
            "generation/settle.service.j2", owned=OWNED_HEADER, roots=rig.roots, activating=ACTIVATING
        ),
        **gateway.files,
        "manifest.json": render_manifest(
            rig.name,
            rig.roots,
            rig.accounts,
            rig.cards,
            rig.instances,
            engines,
            tools.folder,
            units,
            listeners,
            gateway.unit_states,
        ),
        "references": "".join(
            f"{path}\n" for path in referenced_paths(rig.roots, rig.instances, engines, tools, toolkits, units)
        ),
    }
    mark = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:12]
    ports = [name for one in listeners for name in (one.socket_unit, one.unit)]
    wants = [SETTLE, *ports, *gateway.wanted_units, *(one.name for one in units if not one.on_demand)]
    target = render("serving/rigwright.target.j2", owned=OWNED_HEADER, mark=mark, wants=wants)
    links = {f"engines/{name}": path for name, path in engines.items()} | {"tools": tools.folder}
    return Generation({**files, "units/rigwright.target": target}, links, units, listeners, gateway.unit_states, mark)


def referenced_paths(
    roots: Roots,
    instances: tuple[Instance, ...],
    engines: dict[str, str],
    tools: ToolEnvironment,
    toolkits: list[str],
    units: tuple[InstanceUnit, ...],
) -> list[str]:
    """Absolute paths that stay on the host as long as the generation does."""
    keys = [credential_path(roots, instance) for instance in instances]
    caches = [one.cache for one in units if one.cache]
    caches += [f"{WARM}/{PurePosixPath(cache).name}" for cache in caches]
    weights = [roots.weight_path(artefact) for artefact in loaded_weights(instances)]
    return sorted({*engines.values(), *toolkits, tools.folder, *weights, *keys, *caches})
