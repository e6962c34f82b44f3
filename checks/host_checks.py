"""The checks of one host. Ours are collected once for all hosts: an item of pytest for each takes most of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from checks.check_items import find_part, item_params, read_check_mark
from rigwright.engines import kind_of
from rigwright.gateway.served_models import offers_of
from rigwright.model.fleet_schema import FleetLinks
from rigwright.model.instance import loaded_weights, standalone_engines
from rigwright.model.rig import Rig
from rigwright.monitoring.monitoring_units import monitoring_services

HERE = Path(__file__).parent
TARGET = "target_name"
"""The fixture of a check's host."""
ANY_HOST = ""
"""The host of a check that pytest has collected for all of them."""


def fleet_links(rig: Rig) -> list[FleetLinks]:
    """The connections of a rig with other boxes."""
    links = rig.gateway.fleet if rig.gateway else FleetLinks()
    return [] if links == FleetLinks() else [links]


PARTS: dict[str, Callable[[Rig], Sequence[object]]] = {
    "contained": lambda rig: [one for one in rig.instances if kind_of(one).container_engine],
    "instance": lambda rig: rig.instances,
    "engine_name": lambda rig: [*standalone_engines(rig.instances), *(env.name for env in rig.envs)],
    "env": lambda rig: rig.envs,
    "weight": lambda rig: loaded_weights(rig.instances),
    "share": lambda rig: [rig.share] if rig.share else [],
    "pull": lambda rig: [rig.pull] if rig.pull else [],
    "containers": lambda rig: [("containers", rig.containers)] if rig.containers else [],
    "gateway": lambda rig: [("gateway", rig.gateway)] if rig.gateway else [],
    "fleet": lambda rig: [("fleet", one) for one in fleet_links(rig)],
    "fleet_port": lambda rig: [("fleet", one.listener) for one in fleet_links(rig) if one.listener],
    "front_pair": lambda rig: [("fleet", one.pair) for one in fleet_links(rig) if one.pair],
    "offered": lambda rig: list(
        {one.name: one for offer in offers_of(rig.instances, rig.gateway) for one in offer.instances}.values()
    ),
    "watching": lambda rig: monitoring_services(rig),
    "listener": lambda rig: sorted(rig.gateway.listeners.items()) if rig.gateway else [],
}
"""The parts of a rig that a check may be about -> the list of those."""


class CheckFunction:
    """A check as pytest has collected it: one of ours for all hosts, a user's own for one of them."""

    def __init__(self, item: pytest.Item) -> None:
        """Keep its item.

        Raises:
            pytest.UsageError: it has no mark, or not as checks do.
        """
        self.item = item
        self.mark = read_check_mark(item)
        self.is_ours = item.path.is_relative_to(HERE)
        self.file = str(item.path)
        self.area = item.path.stem.removeprefix("test_")
        self.target = str(item_params(item)[TARGET])
        """The host of a user's own; ANY_HOST for ours."""
        names: Sequence[str] = getattr(item, "fixturenames", ())
        self.about = next((name for name in PARTS if name in names), "")
        """The kind of part that one of ours is about; empty for the host."""

    def find_parts(self, rig: Rig) -> Sequence[object]:
        """The parts of a rig that it is about; the rig itself, if it is about no part."""
        return PARTS[self.about](rig) if self.about else [rig]


@dataclass
class HostCheck:
    """A check of one host, or of one of its parts."""

    function: CheckFunction
    target: str
    params: Mapping[str, Any]
    """Fixtures with the values of this check: its host, and perhaps the part."""
    user_properties: list[tuple[str, object]] = field(default_factory=list)

    def record_property(self, name: str, value: object) -> None:
        """Keep a property, as pytest's fixture of this name does."""
        self.user_properties.append((name, value))

    @cached_property
    def part(self) -> str:
        """The name of the part; empty for all of the host."""
        return find_part(self.params)


def of_item(item: pytest.Item) -> HostCheck:
    """A user's own check."""
    function = CheckFunction(item)
    return HostCheck(function, function.target, item_params(item), item.user_properties)


def list_host_checks(functions: Iterable[CheckFunction], target: str, rig: Rig) -> Iterator[HostCheck]:
    """Our checks of a host, in the order of their functions."""
    for one in functions:
        for part in one.find_parts(rig):
            yield HostCheck(one, target, {TARGET: target, **({one.about: part} if one.about else {})})
