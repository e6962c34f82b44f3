"""A generation's manifest: what of a rig it serves, for deploys, people and programs that look at the box."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rigwright.declaration.rig import Rig
from rigwright.serving.units import LOOPBACK, Slot, Unit
from rigwright.types import CardIndex, Port

UNIT = re.compile(r"rigwright-[a-z0-9][a-z0-9-]{0,47}\.service")


class _Instance(BaseModel):
    """One instance, as far as a deploy acts on it. Manifests of before version 1 have no units in them."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    port: Port
    cards: tuple[CardIndex, ...]
    units: dict[str, str] = Field(default_factory=dict)


class _Manifest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    instances: dict[str, _Instance]


def manifest(rig: Rig, engines: Mapping[str, str], tools: str, units: tuple[Unit, ...]) -> str:
    """The manifest's text.

    Args:
        rig: The rig.
        engines: Engine -> the folder of its installation.
        tools: The folder of the host's tools.
        units: Those of the rig's instances, in their order.
    """
    value = {
        "rig": rig.name,
        "cards": [card.name for card in rig.cards],
        "engines": dict(engines),
        "state": rig.roots.state,
        "tools": tools,
        "weights": {rig.weight_path(artefact): artefact.sha256 for artefact in rig.weights},
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
                "units": {one.name: one.slot.started_from},
                "slice": one.slice,
                "user": rig.service_user,
                "weights": [rig.weight_path(artefact) for artefact in i.weights],
            }
            for i, one in zip(rig.instances, units, strict=True)
        },
    }
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def slots(text: str, started_from: Mapping[str, str]) -> tuple[Slot, ...]:
    """The slots of a manifest that lies on a host.

    Args:
        text: The manifest.
        started_from: Unit -> SHA-256 of its texts, of a manifest that does not say it.

    Raises:
        ValueError: it is none.
    """
    try:
        read = _Manifest.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"a manifest that is none: {error.errors()[0]['msg']}") from None
    found = []
    for name, one in read.instances.items():
        units = one.units or {u: digest for u, digest in started_from.items() if u == f"rigwright-{name}.service"}
        for unit, digest in units.items():
            if not UNIT.fullmatch(unit) or not re.fullmatch("[0-9a-f]{64}", digest):
                raise ValueError(f"a manifest with the unit {unit!r}")
            found.append(Slot(unit, digest, one.port, frozenset(one.cards)))
    return tuple(sorted(found, key=lambda slot: slot.unit))
