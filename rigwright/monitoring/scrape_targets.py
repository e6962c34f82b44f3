"""Scrape targets: the boxes of an inventory that export metrics, and the endpoints of each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING

from pydantic import ValidationError

from rigwright.engines import kind_of
from rigwright.gateway.served_models import offers_of
from rigwright.model.catalog_schema import Card
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.model.monitoring_schema import (
    GatewayEndpoint,
    Monitoring,
    ScrapedInstance,
    ScrapeTarget,
    format_endpoint,
)
from rigwright.problems import Invalid, Problem

if TYPE_CHECKING:
    pass


def scrape_target_of(
    box: str,
    cards: tuple[Card, ...],
    instances: tuple[Instance, ...],
    gateway: Gateway | None,
    monitoring: Monitoring | None,
) -> ScrapeTarget | None:
    """The endpoints of a rig; None for a rig that exports no metrics."""
    if not monitoring:
        return None
    doors = []
    for _, one in sorted(gateway.listeners.items()) if gateway else ():
        # a listener on all addresses is reached where the rest is
        at = monitoring.address if ip_address(one.address).is_unspecified else one.own_address
        if not ip_address(at).is_loopback or at == monitoring.address:
            doors.append(GatewayEndpoint(address=at, port=one.port, tls=one.tls))
    offered = {one.name: one for offer in offers_of(instances, gateway) for one in offer.instances}
    return ScrapeTarget(
        name=box,
        address=monitoring.address,
        node_port=monitoring.node_port,
        gpu_port=monitoring.gpu_port if cards else None,
        doors=tuple(sorted(doors, key=lambda door: door.tls)),
        instances=tuple(
            ScrapedInstance(name=one.name, variant=one.variant_name, model=one.model_name, engine=kind_of(one).name)
            for _, one in sorted(offered.items())
        ),
    )


def parse_scrape_targets(file: str, name: str, data: object) -> tuple[ScrapeTarget, ...]:
    """Those of an inventory, as its host data has them.

    Raises:
        Invalid: that is not what an inventory gives.
    """
    if not isinstance(data, (list, tuple)):
        raise Invalid([Problem(file, f"{name}.watched", "was not made by rigwright.inventory.hosts()")])
    try:
        return tuple(ScrapeTarget.model_validate(one) for one in data)
    except ValidationError as error:
        raise Invalid([Problem(file, f"{name}.watched", str(error.errors()[0]["msg"]))]) from None


def render_target_files(boxes: Iterable[ScrapeTarget]) -> dict[str, str]:
    """The targets of Prometheus: file below its folder of targets -> text, as `file_sd_configs` reads it."""
    found: dict[str, list[dict[str, object]]] = {"node": [], "gpu": [], "gateway": [], "engine": [], "probe": []}

    def add(job: str, at: str, /, **labels: str) -> None:
        found[job].append({"targets": [at], "labels": dict(sorted(labels.items()))})

    for box in boxes:
        add("node", format_endpoint(box.address, box.node_port), box=box.name)
        if box.gpu_port:
            add("gpu", format_endpoint(box.address, box.gpu_port), box=box.name)
        for door in box.doors:
            add("probe", f"{door.scheme}://{door.endpoint}/health", box=box.name, door=door.endpoint)
        for door in box.doors[:1]:
            add("gateway", door.endpoint, box=box.name, __scheme__=door.scheme)
            for one in box.instances:
                add(
                    *("engine", door.endpoint),
                    box=box.name,
                    instance=one.name,
                    variant=one.variant,
                    model=one.model,
                    kind=one.engine,
                    __scheme__=door.scheme,
                    __metrics_path__=f"/metrics/{one.name}",
                )
    return {f"{job}.json": json.dumps(rows, indent=1) + "\n" for job, rows in found.items()}
