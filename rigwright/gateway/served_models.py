"""Models that a gateway serves, and which clients may use them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from rigwright.engines import kind_of
from rigwright.gateway.request_rules import rule_names
from rigwright.model.fleet_schema import RemoteInstance, format_fleet_endpoint
from rigwright.model.gateway_schema import OPAQUE_ORIGIN, Gateway, ListenerEntry, ModelEntry
from rigwright.model.instance import Instance
from rigwright.model.inventory_feature import EntryDraft, Feature, Fields, RigDraft
from rigwright.problems import describe_unknown

# Requests that an instance works on at once where its variant does not say it: vLLM's own default (`max_num_seqs` of
# vllm/engine/arg_utils.py 0.21.0, for cards of less than 70 GiB).
SLOTS = 256


@dataclass(frozen=True)
class GatewayModel:
    """A name that clients ask for."""

    name: str
    instances: tuple[Instance, ...]
    queue: int
    """Requests that wait beyond those that are worked on."""
    sticky: str
    allow_fields: tuple[str, ...] = ()
    """Rules for request fields that are not applied."""
    cache_isolation: str = ""
    """By what prefix caches are kept apart: nothing, `key`."""
    remote: tuple[RemoteInstance, ...] = ()
    """Instances of other boxes."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its instances, as an inventory names them."""
        return (*(one.name for one in self.instances), *(one.name for one in self.remote))

    @property
    def on_demand(self) -> tuple[str, ...]:
        """Its instances that requests start."""
        return tuple(one.name for one in self.instances if one.is_on_demand)

    @property
    def engine_names(self) -> dict[str, str]:
        """By instance: the name of the model at its engine."""
        own = {one.name: one.model_name for one in self.instances}
        return own | {one.name: one.model for one in self.remote}

    @property
    def slots(self) -> int:
        """Requests that each instance works on at once."""
        own = [(one.variant.capacity or (SLOTS, 0))[0] for one in self.instances]
        return min([*own, *(one.slots for one in self.remote)], default=1)

    @property
    def usage_on_request(self) -> bool:
        """Whether streams of all its instances name their tokens if the request asks for that."""
        own = [kind_of(one).has_stream_usage for one in self.instances]
        return all([*own, *(one.usage_on_request for one in self.remote)])

    @property
    def paths(self) -> tuple[str, ...]:
        """Those after `/v1/` that all of its instances have, and where caches are kept apart none that ignores that."""
        found = [(kind_of(one).paths(one), kind_of(one).unsalted_paths) for one in self.instances]
        found += [(one.paths, one.unsalted_paths) for one in self.remote]
        unsalted = {path for _, ignoring in found for path in ignoring if self.cache_isolation}
        first = found[0][0] if found else ()
        return tuple(path for path in first if path not in unsalted and all(path in one for one, _ in found))


def offers_of(instances: tuple[Instance, ...], gateway: Gateway | None) -> tuple[GatewayModel, ...]:
    """The offers of a rig's gateway, by name; empty without one."""
    return resolve_models(gateway, instances) if gateway else ()


def resolve_models(gateway: Gateway, instances: Sequence[Instance]) -> tuple[GatewayModel, ...]:
    """The offers of a gateway that was not refused, by name."""
    found = {one.name: one for one in instances}
    others = {one.name: one for one in gateway.fleet.remote}
    return tuple(
        GatewayModel(
            name,
            tuple(found[instance] for instance in one.instances if "/" not in instance),
            gateway.queue if one.queue is None else one.queue,
            gateway.sticky if one.sticky is None else one.sticky,
            tuple(sorted(set(gateway.allow_fields if one.allow_fields is None else one.allow_fields))),
            gateway.cache_isolation if one.cache_isolation is None else one.cache_isolation,
            tuple(others[instance] for instance in one.instances if instance in others),
        )
        for name, one in sorted(_declared_models(gateway, instances).items())
    )


def _declared_models(gateway: Gateway, instances: Sequence[Instance]) -> Mapping[str, ModelEntry]:
    if gateway.models or not gateway.serves_clients:
        return gateway.models
    serving: dict[str, list[str]] = {}
    for one in instances:
        serving.setdefault(one.model_name, []).append(one.name)
    return {name: ModelEntry(instances=tuple(sorted(names))) for name, names in serving.items()}


def refuse_gateway(
    gateway: Gateway,
    instances: Sequence[Instance],
    declared: Mapping[str, int],
    taken: Mapping[int, str],
    refuse: Callable[[str, str], None],
) -> None:
    """Refuse what a gateway cannot offer, and where it cannot listen.

    Args:
        gateway: As it is declared.
        instances: Those of the rig that were not refused themselves.
        declared: All that the rig declares, each with its port on the loopback interface.
        taken: Other ports of the host's that are taken, and what for.
        refuse: Gets a key of the rig and its problem.
    """
    _refuse_addresses(gateway, declared, taken, refuse)
    if not declared and not gateway.uses_other_boxes:
        return
    found = {one.name: one for one in instances}
    _refuse_fields(gateway, refuse)
    _refuse_isolation(gateway, instances, refuse)
    _refuse_opaque_origin(gateway, refuse)
    for name, model in gateway.models.items():
        _refuse_model(f"gateway.models.{name}", model, found, declared, refuse)
    names = set(_declared_models(gateway, instances))
    for name, one in ({} if gateway.models else _declared_models(gateway, instances)).items():
        if len(variants := sorted({found[instance].variant_name for instance in one.instances})) > 1:
            said = f"{name} is served by instances of {' and '.join(variants)}, which differ"
            refuse("gateway.models", f"{said}: name each of them here")
    if len(found) < len(declared) and not gateway.models:
        return  # the error of a refused instance is reported already, and its model's name is not known
    for alias, name in gateway.aliases.items():
        if name not in names:
            refuse(f"gateway.aliases.{alias}", describe_unknown("model", name, names))
        if alias in names:
            refuse(f"gateway.aliases.{alias}", f"{alias} is already a model name")
    for listener, entry in gateway.listeners.items():
        for name in entry.models:
            if name not in names | gateway.aliases.keys():
                refuse(
                    f"gateway.listeners.{listener}.models",
                    describe_unknown("model", name, names | gateway.aliases.keys()),
                )


def _refuse_model(
    key: str,
    model: ModelEntry,
    found: Mapping[str, Instance],
    declared: Collection[str],
    refuse: Callable[[str, str], None],
) -> None:
    for name in model.instances:
        if name not in declared and "/" not in name:
            refuse(f"{key}.instances", describe_unknown("instance", name, declared))
    if len(set(model.instances)) < len(model.instances):
        refuse(f"{key}.instances", "an instance is listed twice")
    variants = sorted({found[name].variant_name for name in model.instances if name in found})
    if len(variants) > 1:
        refuse(
            f"{key}.instances", f"they are of {' and '.join(variants)}: only instances of one variant can share a name"
        )


def _refuse_fields(gateway: Gateway, refuse: Callable[[str, str], None]) -> None:
    allowed = {"gateway": gateway.allow_fields} | {
        f"gateway.models.{name}": model.allow_fields or () for name, model in gateway.models.items()
    }
    for key, names in allowed.items():
        for name in names:
            if name not in rule_names():
                refuse(f"{key}.allow_fields", describe_unknown("rule for request fields", name, rule_names()))


def _refuse_isolation(gateway: Gateway, instances: Sequence[Instance], refuse: Callable[[str, str], None]) -> None:
    """Refuse to keep caches apart where an engine cannot, or where no client has a key."""
    found = {one.name: one for one in instances}
    for name, model in _declared_models(gateway, instances).items():
        own = model.cache_isolation is not None
        if not (model.cache_isolation if own else gateway.cache_isolation):
            continue
        key = f"gateway.models.{name}.cache_isolation" if own else "gateway.cache_isolation"
        for instance in (found[one] for one in model.instances if one in found):
            if not kind_of(instance).salts_prompts:
                refuse(
                    key,
                    f"{name} is served by {kind_of(instance).name}, whose prompt cache does not support isolation "
                    f"by key: "
                    'set cache_isolation = "" for this model, or an instance for each client',
                )
        if not gateway.needs_keys:
            refuse(key, "no listener needs keys, so all clients would share one cache: set keys = True for one")


def _refuse_opaque_origin(gateway: Gateway, refuse: Callable[[str, str], None]) -> None:
    """Refuse the origin that any web page can have where it is all that a page lacks."""
    keyless = sorted(name for name, one in gateway.listeners.items() if not one.keys)
    if OPAQUE_ORIGIN in gateway.origins and keyless:
        refuse(
            "gateway.origins",
            f"{OPAQUE_ORIGIN} is the origin of sandboxed frames and local files, which any web page can make: with it, "
            f"every page that a client opens can send requests to {', '.join(keyless)}, where no key is needed; set "
            f"keys = True there, or serve the page from an address and name its origin",
        )


def _refuse_addresses(
    gateway: Gateway, declared: Mapping[str, int], taken: Mapping[int, str], refuse: Callable[[str, str], None]
) -> None:
    ours: list[tuple[str, ListenerEntry]] = []
    for name, entry in gateway.listeners.items():
        key = f"gateway.listeners.{name}.port"
        for other, earlier in ours:
            if entry.port == earlier.port and _is_conflicting(entry.address, earlier.address):
                refuse(key, f"{entry.port} is already the port of the listener {other}: choose another, or address")
        # another address would do for both, but a port that answers elsewhere, too, is what S04 is there to find
        for instance, port in declared.items():
            if entry.port == port:
                refuse(key, f"{port} is the port of instance {instance} on the loopback interface: change one of them")
        if entry.port in taken:
            refuse(key, f"{entry.port} is {taken[entry.port]}: choose another")
        ours.append((name, entry))


def _is_conflicting(one: str, other: str) -> bool:
    """Whether two listeners of one port cannot be beside each other."""
    left, right = ip_address(one), ip_address(other)
    if left == right:
        return True
    wide = [address for address in (left, right) if address.is_unspecified]
    # all of IPv6 is all of IPv4 here, too
    return any(address.version == 6 or left.version == right.version for address in wide)


def _validate_gateway(draft: EntryDraft) -> Fields:
    gateway = draft.entry.gateway
    if gateway:
        # few rigs have one
        from rigwright.gateway.operator_file_validation import refuse_files

        refuse_files(gateway, draft.resolve_path, draft.resolve_secret, draft.refuse)
    return {"gateway": gateway}


def _resolve_gateway(draft: RigDraft) -> Fields:
    entry = draft.entry
    _refuse_fleet_port(draft)
    if entry.gateway:
        taken = {entry.share.port: "the port for sharing weights"} if entry.share else {}
        taken |= {entry.fleet.port: "the port for gateways of other boxes"} if entry.fleet else {}
        ports = {name: one.port for name, one in entry.instances.items()}
        # instances with a mistake, in themselves or in the name of their key, have a problem of their own
        lacks = not ports and not draft.data.get("instances") and not entry.gateway.uses_other_boxes
        if lacks and not _is_misspelt("instances", draft):
            draft.refuse("gateway", "the rig declares no instances")
        refuse_gateway(entry.gateway, draft.fields["instances"], ports, taken, draft.refuse)
    return {}


def _refuse_fleet_port(draft: RigDraft) -> None:
    """Refuse the port of other boxes where another service of the box has it."""
    entry = draft.entry
    if not entry.fleet:
        return
    taken = {one.port: f"the port of instance {name}" for name, one in entry.instances.items()}
    taken |= {entry.share.port: "the port for sharing weights"} if entry.share else {}
    if entry.fleet.port in taken:
        draft.refuse("fleet.port", f"{entry.fleet.port} is {taken[entry.fleet.port]}: choose another")


def _is_misspelt(key: str, draft: RigDraft) -> bool:
    """Whether the suggestion for an unknown key of an entry is this one."""
    return any(f'did you mean "{key}"?' in one.text for one in draft.problems if one.key.count(".") == 1)


GATEWAY = Feature("gateway", _validate_gateway, _resolve_gateway)


def _describe_sleeping(offer: GatewayModel) -> str:
    names = ", ".join(offer.on_demand)
    return offer.name if names == offer.name else f"{offer.name} ({names})"


def describe_access(instances: tuple[Instance, ...], gateway: Gateway | None) -> list[str]:
    """A line for each listener, and for each model with harmful request fields allowed."""
    if not gateway:
        return []
    offers = offers_of(instances, gateway)
    open_fields = [f"{one.name}: {', '.join(one.allow_fields)}" for one in offers if one.allow_fields]
    others = [
        f"{offer.name} is also served by {one.name} at {format_fleet_endpoint(one.address, one.port)}; TLS with "
        "certificates on both sides"
        for offer in offers
        for one in offer.remote
    ]
    if sleeping := [_describe_sleeping(offer) for offer in offers if offer.on_demand]:
        evicting = [name for name, one in sorted(gateway.listeners.items()) if one.may_evict]
        others.append(
            f"requests load {', '.join(sleeping)}; those at {', '.join(evicting) or 'no listener'} may have an idle "
            f"model stopped, if their key may; requests without `stream` wait up to {gateway.wait} s"
        )
    if lent := gateway.fleet.listener:
        others.append(
            f"fleet, {lent.endpoint}: gateways of {', '.join(lent.fronts)}, with a certificate, may use "
            f"{', '.join(lent.lent)}; TLS"
        )
    if pair := gateway.fleet.pair:
        others.append(
            f"{pair.address} is shared with {pair.partner} at {pair.partner_source}; VRRP from {pair.source} on "
            f"{pair.interface}, priority {pair.priority}, without authentication"
        )
    return [
        *(
            _describe_listener(name, one, instances, gateway, gateway)
            for name, one in sorted(gateway.listeners.items())
        ),
        *others,
        *(f"request fields that can harm an engine are allowed for {one}" for one in open_fields),
    ]


def _describe_listener(
    name: str, entry: ListenerEntry, instances: tuple[Instance, ...], gateway_entry: Gateway | None, gateway: Gateway
) -> str:
    offered = [one.name for one in offers_of(instances, gateway_entry) if gateway.has_model(entry, one.name)]
    address = ip_address(entry.address)
    where = "only this host" if address.is_loopback else "all clients that reach this host over the network"
    who = f"{where}, with a key" if entry.keys else f"{where}, without a key"
    how = "TLS" if entry.tls else "plain HTTP"
    if not entry.tls and not address.is_loopback:
        how += ": prompts and answers are sent in the clear" + (", including keys" if entry.keys else "")
    return f"{name}, {' and '.join(entry.addresses)}: {who}, may use {', '.join(offered)}; {how}"
