"""Gateways that use instances of other boxes: the connections of each box of an inventory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from pydantic import ValidationError

from rigwright.engines import kind_of
from rigwright.gateway.front_pairs import pair_gateways
from rigwright.gateway.served_models import SLOTS, offers_of
from rigwright.model.fleet_schema import FleetEntry, FleetLinks, FleetListener, RemoteInstance
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.problems import Invalid, Problem, describe_unknown

EXAMPLE = '"fleet": {"address": "192.0.2.8"}'


def link_boxes(
    file: str, rigs: Mapping[str, Rig], declared: Mapping[str, Mapping[str, object]]
) -> tuple[dict[str, FleetLinks], list[Problem]]:
    """The connections between the boxes of an inventory, without boxes that have none.

    Args:
        file: The inventory, for messages.
        rigs: Its rigs that were not refused, by name.
        declared: The entries of all of its rigs, refused ones among them.
    """
    entries = {name: declared[name].get("fleet") for name in rigs}
    lenders = {name: FleetEntry.model_validate(entry) for name, entry in entries.items() if entry is not None}
    problems: list[Problem] = []
    remote: dict[str, dict[str, RemoteInstance]] = {}
    users: dict[str, dict[str, set[str]]] = {}
    lent: dict[str, dict[str, set[str]]] = {}
    known = {
        box: {one.name: one.is_on_demand for one in rigs[box].instances} if box in rigs else _list_sleeping(entry)
        for box, entry in declared.items()
    }
    for front, entry in declared.items():
        rig = rigs.get(front)
        for model, reference in _list_references(rig.gateway) if rig else _list_declared_references(entry):
            box, _, name = reference.partition("/")
            if box in known and box not in rigs and name not in known[box]:
                continue  # its own problems come first
            if text := _find_fault(front, box, name, known, lenders.keys() | known.keys() - rigs.keys()):
                problems.append(Problem(file, f"{front}.gateway.models.{model}.instances", text))
                continue
            if rig is None or box not in rigs:
                continue
            instance = next(one for one in rigs[box].instances if one.name == name)
            remote.setdefault(front, {})[reference] = _describe_remote(box, instance, lenders[box])
            users.setdefault(box, {}).setdefault(name, set()).add(front)
            lent.setdefault(box, {}).setdefault(name, set()).add(model)
    bounds = {
        front: _bound_requests(rigs[front], tuple(one for _, one in sorted(remote[front].items()))) for front in remote
    }
    pairs, more = pair_gateways(file, rigs, declared)
    problems += more
    links = {
        name: FleetLinks(
            remote=tuple(one for _, one in sorted(remote.get(name, {}).items())),
            listener=FleetListener(
                address=lenders[name].address,
                port=lenders[name].port,
                lent={one: tuple(sorted(models)) for one, models in sorted(lent[name].items())},
                variants={one.name: one.variant_name for one in rigs[name].instances if one.name in lent[name]},
                users={one: tuple(sorted(boxes)) for one, boxes in sorted(users[name].items())},
                bounds={front: bounds[front][name] for front in sorted(set().union(*users[name].values()))},
            )
            if name in lent
            else None,
            pair=pairs.get(name),
        )
        for name in rigs
        if name in remote or name in lent or name in pairs
    }
    for name, one in links.items():
        problems += _find_model_problems(file, rigs[name], one)
    return links, problems


def _list_references(gateway: Gateway | None) -> Iterator[tuple[str, str]]:
    """Model and name of each instance of another box that a gateway uses."""
    for model, entry in gateway.models.items() if gateway else ():
        for reference in entry.instances:
            if "/" in reference:
                yield model, reference


def _list_declared_references(entry: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The model and reference of each reference of a refused box, as far as its entry has them."""
    gateway = entry.get("gateway")
    models = gateway.get("models") if isinstance(gateway, Mapping) else None
    for model, of_model in models.items() if isinstance(models, Mapping) else ():
        references = of_model.get("instances") if isinstance(of_model, Mapping) else None
        for reference in references if isinstance(references, (list, tuple)) else ():
            if isinstance(reference, str) and reference.count("/") == 1:
                yield str(model), reference


def _list_sleeping(entry: Mapping[str, object]) -> dict[str, bool]:
    """Instance -> whether requests start it, for a refused box, as far as its entry declares that."""
    instances = entry.get("instances")
    found = instances.items() if isinstance(instances, Mapping) else ()
    return {str(name): one.get("start") == "on-demand" for name, one in found if isinstance(one, Mapping)}


def _find_fault(
    front: str,
    box: str,
    name: str,
    known: Mapping[str, Mapping[str, bool]],
    lenders: Collection[str],
) -> str:
    """The mistake of a reference; empty without one.

    Args:
        front: The box whose gateway refers to an instance.
        box: The instance's box.
        name: The instance.
        known: Box -> instance -> whether requests start it.
        lenders: Boxes that gateways of others can reach.
    """
    if box == front:
        return f'{box}/{name} is an instance of this box itself: name it "{name}"'
    if box not in known:
        return f"{box}/{name}: {describe_unknown('box', box, sorted(known.keys() - {front}))}"
    if name not in known[box]:
        return f"{box}/{name}: {describe_unknown(f'instance of {box}', name, [*known[box]])}"
    if known[box][name]:
        loaded = ", ".join(f"{box}/{one}" for one, is_on_demand in known[box].items() if not is_on_demand)
        others = f"name {loaded} here, or " if loaded else ""
        cure = f'{others}give {name} of {box} "start": "boot"'
        return f"{box}/{name} starts on demand, and only the gateway of its own box wakes it: {cure}"
    if box not in lenders:
        return f"{box}/{name}: no gateway of another box can reach {box}: add {EXAMPLE} with its address to {box}"
    return ""


def _describe_remote(box: str, instance: Instance, entry: FleetEntry) -> RemoteInstance:
    kind = kind_of(instance)
    return RemoteInstance(
        box=box,
        instance=instance.name,
        address=entry.address,
        port=entry.port,
        variant=instance.variant_name,
        model=instance.model_name,
        paths=kind.paths(instance),
        unsalted_paths=kind.unsalted_paths,
        slots=(instance.variant.capacity or (SLOTS, 0))[0],
        usage_on_request=kind.has_stream_usage,
        salts_prompts=kind.salts_prompts,
    )


def _bound_requests(rig: Rig, remote: tuple[RemoteInstance, ...]) -> dict[str, int]:
    """Box -> the requests of a gateway that may be under way there: all of the models that it uses the box for.

    A model's other instances may all be out, and its queue is then at this one. As much again is for requests that the
    gateway has done with, and the box not yet.
    """
    found: dict[str, int] = {}
    gateway = rig.gateway.with_fleet(FleetLinks(remote=remote)) if rig.gateway else None
    for offer in offers_of(rig.instances, gateway):
        for box in {one.box for one in offer.remote}:
            found[box] = found.get(box, 0) + 2 * (offer.slots * len(offer.names) + offer.queue)
    return found


def _find_model_problems(file: str, rig: Rig, links: FleetLinks) -> Iterator[Problem]:
    """Models that mix variants, and caches that the engine of another box cannot keep apart."""
    if not rig.gateway:
        return
    own = {one.name: one.variant_name for one in rig.instances}
    others = {one.name: one for one in links.remote}
    for model, entry in rig.gateway.models.items():
        key = f"{rig.name}.gateway.models.{model}"
        variants = {own.get(name) or (others[name].variant if name in others else "") for name in entry.instances}
        if len(variants := variants - {""}) > 1:
            listed = " and ".join(sorted(variants))
            text = f"they are of {listed}: only instances of one variant can share a name"
            yield Problem(file, f"{key}.instances", text)
        isolation = rig.gateway.cache_isolation if entry.cache_isolation is None else entry.cache_isolation
        for name in entry.instances:
            if isolation and name in others and not others[name].salts_prompts:
                text = f'the prompt cache of {name} does not support isolation by key: set it to "" for this model'
                yield Problem(file, f"{key}.cache_isolation", text)


def _find_exchanged_variants(rig: Rig, links: FleetLinks) -> Iterator[Problem]:
    """Instances with another variant than the gateways of others rely on: a switch of this box alone."""
    if not links.listener:
        return
    fronts = ", ".join(links.listener.fronts)
    for one in rig.instances:
        known = links.listener.variants.get(one.name, one.variant_name)
        if known != one.variant_name:
            text = (
                f"gateways of {fronts} use it as {known}: change the variant in the inventory, and deploy these boxes"
            )
            yield Problem(rig.inventory, f"{rig.name}.instances.{one.name}.variant", text)


def attach_links(rig: Rig, links: FleetLinks) -> Rig:
    """A rig that has to do with others. One without a gateway of its own has one without listeners.

    Raises:
        Invalid: they do not fit its models: a variant was exchanged.
    """
    if problems := [*_find_model_problems(rig.inventory, rig, links), *_find_exchanged_variants(rig, links)]:
        raise Invalid(problems)
    gateway = rig.gateway or Gateway.model_construct(listeners={})
    return replace(rig, gateway=gateway.with_fleet(links))


def parse_links(file: str, name: str, data: object) -> FleetLinks:
    """Those that `rigwright.inventory` put into the data of a rig.

    Raises:
        Invalid: they are not.
    """
    try:
        return FleetLinks.model_validate(data)
    except ValidationError:
        raise Invalid([Problem(file, f"{name}.fleet", "was not made by rigwright.inventory.hosts()")]) from None
