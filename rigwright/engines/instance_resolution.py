"""A declared instance into one that can be run: its variant, model and engine are found, and their flags judged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from rigwright.engines import kind_of, kinds
from rigwright.engines.engine_interface import InstallingKind, Kind
from rigwright.engines.known_issues import describe_issues, place_instance
from rigwright.model import api_keys
from rigwright.model.catalog_schema import Catalog, MissingModelFile, ModelSelection
from rigwright.model.engine_schema import EngineKeys, PatchedKeys, VariantKeys
from rigwright.model.instance import POWER_UNIT, EnvSpec, Instance, ModelPart
from rigwright.model.instance_schema import InstanceEntry
from rigwright.model.inventory_feature import EntryDraft, Feature, Fields, Refuse, RigDraft
from rigwright.model.inventory_schema import RigEntry
from rigwright.model.lock_coverage import describe_uncovered
from rigwright.model.secret_sources import SecretCommand, is_readable, validate_secret
from rigwright.patches.patch import Patch, select_patches
from rigwright.plugins.plugin import select_plugins
from rigwright.problems import MOST_NAMES, Invalid, describe_unknown, format_count, format_value, suggestion
from rigwright.supply import lock as locks
from rigwright.validated_types import VARIANT_REFERENCE

ON_DEMAND = "on-demand"


def resolve_instance(name: str, declared: InstanceEntry, draft: RigDraft) -> Instance | None:
    """One instance with its names resolved, or None after refusing it."""
    catalog, lock, refuse, present = draft.catalog, draft.lock, draft.refuse, draft.card_count
    key = f"instances.{name}"
    if f"rigwright-{name}.service" == POWER_UNIT:
        refuse(key, f"another name: {POWER_UNIT} is the unit that sets power limits")
    if (variant := _find_variant(declared.variant, key, draft)) is None:
        return None
    if len(declared.cards) != variant.cards:
        text = f"{declared.variant} needs {format_count(variant.cards, 'card')}, but {len(declared.cards)} are listed"
        example = [*range(variant.cards)]
        refuse(f"{key}.cards", text + (f': add "cards": {example}' if example and not declared.cards else ""))
    if missing := [index for index in declared.cards if index >= present]:
        has = (
            f"{format_count(present, 'card')}, counted from 0" if present else 'no cards: list them in its key "cards"'
        )
        refuse(f"{key}.cards", f"no card {missing[0]}: the rig declares {has}")
    said = f"{declared.variant}: "
    engine = catalog.engines.get(variant.engine)
    model = catalog.models.get(variant.model)
    if engine is None:
        refuse(f"{key}.variant", said + describe_unknown("engine", variant.engine, catalog.engines))
    if model is None:
        refuse(f"{key}.variant", said + describe_unknown("model", variant.model, catalog.models))
    kind = kinds()[engine.kind] if engine else None
    inputs = _resolve_inputs(kind, engine, catalog, key, said, refuse) if kind and engine else {}
    for source, what in inputs.items():
        if wrong := describe_uncovered(source, what, catalog.inputs, lock, draft.file):
            refuse(f"{key}.variant", said + wrong)
    made: tuple[ModelPart, ...] = ()
    if model and kind:
        try:
            made = kind.parts(model, ModelSelection(catalog.inputs, lock, draft.file, lenient=draft.is_locking))
        except MissingModelFile as error:
            for wrong in str(error).splitlines():
                refuse(f"{key}.variant", said + wrong)
    rows = [lock.rows(source) for source in inputs]
    artefacts = tuple(row for found in rows for row in found)
    if not engine or not kind or not made or not all(rows):
        return None
    try:
        known = kind.version_data(catalog, engine, artefacts)
    except Invalid as error:
        refuse(f"{key}.variant", f"{said}{error}")
        return None
    patches: tuple[Patch, ...] = ()
    if isinstance(kind, InstallingKind) and isinstance(engine, PatchedKeys):
        versions = kind.patchable(engine, artefacts) if not draft.is_locking else None
        patches, unfit = select_patches(engine.patches, catalog.patches, versions, variant.engine)
        for wrong in unfit:
            refuse(f"{key}.variant", said + wrong)
    env = catalog.envs.get(engine.environment or "")
    key_source = fingerprint = None
    if declared.api_key_file is not None:
        key_source = draft.resolve_secret(declared.api_key_file)
        try:
            validate_secret(key_source, api_keys.load_api_key)
            if is_readable(key_source):
                fingerprint = api_keys.key_fingerprint(api_keys.load_api_key(key_source), name)
        except ValueError as error:
            refuse(f"{key}.api_key_file", f"{key_source} {error}")
    return Instance(
        name=name,
        variant_name=declared.variant,
        variant=variant,
        model_name=variant.model,
        parts=made,
        engine_name=variant.engine,
        engine=engine,
        artefacts=artefacts,
        known=known,
        cards=declared.cards,
        port=declared.port,
        memory_max=declared.memory_max,
        tasks_max=declared.tasks_max,
        api_key_file=key_source,
        key_fingerprint=fingerprint,
        patches=patches,
        plugins=select_plugins(env.plugins, catalog.plugins, lock.artefacts) if env else (),
        start=declared.start,
        idle=declared.idle,
        priority=declared.priority,
        keep_warm=declared.keep_warm,
    )


def _find_variant(name: str, key: str, draft: RigDraft) -> VariantKeys | None:
    """A variant of the catalogue, or None after refusing its name."""
    if found := draft.catalog.variants.get(name):
        return found
    blocked = draft.catalog.blocked.get(name)
    text = f"{name} {blocked.refusal}" if blocked else _describe_unknown_variant(name, draft)
    if serving := [one for one, variant in draft.catalog.variants.items() if _is_model(name, variant.model)]:
        text = f"{format_value(name)} is a model, served by {', '.join(sorted(serving)[:MOST_NAMES])}: name a variant"
    elif not blocked:
        text += f"; `rigwright show variants {draft.file}` lists those for its cards"
    draft.refuse(f"{key}.variant", text)
    return None


def _describe_unknown_variant(name: str, draft: RigDraft) -> str:
    """The text of an unknown variant, with the nearest that fits the rig's cards, or of all."""
    cards = {*draft.entry.cards}
    fitting = [
        one
        for one, variant in draft.catalog.variants.items()
        if variant.cards <= len(draft.entry.cards)
        and (not (variant.purpose and variant.purpose.cards) or cards & {*variant.purpose.cards})
    ]
    is_near = suggestion(name, fitting).startswith("; did you mean")
    return describe_unknown("variant", name, fitting if is_near else draft.catalog.variants)


def _is_model(name: str, model: str) -> bool:
    """Whether a name in the place of a variant is a model's: in the catalogue, or on the hub, with its owner."""
    return name.rpartition("/")[2].casefold() == model.casefold()


def _resolve_inputs(
    kind: Kind, engine: EngineKeys, catalog: Catalog, key: str, said: str, refuse: Refuse
) -> Mapping[str, locks.ArtefactKind]:
    """The inputs that an engine is installed from: input of the catalogue -> the kind of its artefacts in the lock."""
    if isinstance(kind, InstallingKind):
        return kind.inputs(engine)
    env = engine.environment or ""
    if (keys_ := catalog.envs.get(env)) is None:
        refuse(f"{key}.variant", said + describe_unknown("environment", env, catalog.envs))
        return {}
    return {keys_.packages: "wheel"}


def refuse_without_cdi(instances: Iterable[Instance], entry: RigEntry, refuse: Refuse) -> None:
    """Refuse instances whose containers would not find their cards: nothing brings the spec that names those.

    Args:
        instances: All of the entry's.
        entry: The entry.
        refuse: Gets a key and its problem.
    """
    for one in instances:
        if one.cards and kind_of(one).container_engine and not entry.containers:
            refuse(
                f"instances.{one.name}.variant",
                f"{one.variant_name}: runs in a container, which needs the container toolkit to find its cards: "
                f'declare "containers": {json.dumps({"engines": [kind_of(one).container_engine]})}, or "docker" if the '
                "release's podman is older than 5.1",
            )


def refuse_engine_keys(instance: Instance, draft: RigDraft, env: EnvSpec | None) -> None:
    """Refuse what the engine's version would not start with, be it the variant's or what its keys become, and what is
    known to go wrong for sure.
    """
    entry, catalog = draft.entry, draft.catalog
    named = [entry.cards[index] for index in instance.cards if index < len(entry.cards)]
    cards = [card for card in (catalog.cards.get(one) if isinstance(one, str) else one for one in named) if card]
    capabilities = frozenset(card.capability for card in cards)
    found = kind_of(instance).refusals(instance, entry.roots, draft.folder, capabilities)
    # an input that is only being locked has no known size
    if not draft.is_locking and len(cards) == len(instance.cards):
        found += describe_issues(
            place_instance(instance, cards, env.patches if env else instance.patches), refused=True
        )
    for wrong in found:
        draft.refuse(f"instances.{instance.name}.variant", f"{instance.variant_name}: {wrong}")


def refuse_forbidden_keys(instances: Sequence[Instance], allowed: Sequence[str], refuse: Refuse) -> None:
    """Refuse what a catalogue may not say unless the inventory allows it, and what is allowed for nothing."""
    found: set[str] = set()
    for instance in instances:
        for key, why in kind_of(instance).forbidden_keys(instance).items():
            found.add(key)
            if key not in allowed:
                said = f"{instance.variant_name}: {key} = {format_value(_declared_value(instance, key), key)} {why}"
                refuse(
                    f"instances.{instance.name}.variant",
                    f'{said}; an inventory can allow it: "allow": ["{key}"]',
                )
    for index, key in enumerate(allowed):
        # groups of locks: rigwright.declaration.rig_resolution
        if key not in found and not key.startswith("locks."):
            refuse(f"allow[{index}]", f'"{key}" is not used by any variant of the rig{suggestion(key, found)}')


def _declared_value(instance: Instance, key: str) -> object:
    """The value of engine or variant under a key of one of their tables."""
    table, _, name = key.partition(".")
    if table == "variant":
        return getattr(instance.variant, name)
    return next(
        (found[name] for one in (instance.variant, instance.engine) if name in (found := getattr(one, table, {}))), ""
    )


def _load_key(draft: EntryDraft, instance: InstanceEntry) -> str:
    """The API key of an instance, or the command that prints it; empty without a usable one."""
    if instance.api_key_file is not None:
        source = draft.resolve_secret(instance.api_key_file)
        with suppress(ValueError):  # refused with the instance
            return api_keys.load_api_key(source) if is_readable(source) else repr(source)
    return ""


def _validate_instances(draft: EntryDraft) -> Fields:
    """Refuse two that want one port, weights that are shared among them, and a card that two (or one, twice) want, or
    that is reserved.
    """
    entry, refuse = draft.entry, draft.refuse
    ports: dict[int, str] = {}
    users: dict[int, str] = {}
    keys: dict[str, str] = {}
    for name, instance in entry.instances.items():
        if (key := _load_key(draft, instance)) and (other := keys.setdefault(key, name)) != name:
            declared = instance.api_key_file
            source = draft.resolve_secret(declared) if isinstance(declared, SecretCommand) else declared
            text = f"{source} has the same key as instance {other}: each instance needs its own"
            refuse(f"instances.{name}.api_key_file", text)
        if instance.port in ports:
            refuse(f"instances.{name}.port", f"{instance.port} is already the port of {ports[instance.port]}")
        ports.setdefault(instance.port, name)
        for card in instance.cards:
            taker = users.get(card)
            if taker == name:
                refuse(f"instances.{name}.cards", f"card {card} is listed twice")
            elif taker and not instance.start == entry.instances[taker].start == ON_DEMAND:
                text = f'; instances share a card if all have "start": "{ON_DEMAND}"' if entry.gateway else ""
                refuse(f"instances.{name}.cards", f"card {card} is already taken by {taker}{text}")
            if card in entry.reserved_gpus:
                refuse(
                    f"instances.{name}.cards",
                    f"card {card} is reserved: remove it from reserved_gpus, or choose another",
                )
            users.setdefault(card, name)
        _refuse_wake_keys(name, instance, draft)
    # another address would do for both, but a port that answers elsewhere, too, is what S04 is there to find
    if entry.share and entry.share.port in ports:
        refuse("share.port", f"{entry.share.port} is already the port of {ports[entry.share.port]}: choose another")
    return {}


def _refuse_wake_keys(name: str, instance: InstanceEntry, draft: EntryDraft) -> None:
    """Refuse an instance on demand that nothing could wake, and keys of those on demand for others."""
    if instance.start == ON_DEMAND:
        if not draft.entry.gateway and "gateway" not in draft.data:
            draft.refuse(
                f"instances.{name}.start", f'"{ON_DEMAND}" needs a "gateway", whose requests start the instance'
            )
        if instance.keep_warm and instance.idle:
            draft.refuse(f"instances.{name}.idle", "0 or no idle with keep_warm = True, which never stops the instance")
        return
    for key in ("idle", "priority", "keep_warm"):
        if getattr(instance, key):
            draft.refuse(f"instances.{name}.{key}", f'needs "start": "{ON_DEMAND}"')


def _refuse_unwakeable_kinds(instances: Iterable[Instance], refuse: Refuse) -> None:
    """Refuse containers on demand: their start by podman is not part of the ledger's proof."""
    for one in instances:
        if one.is_on_demand and kind_of(one).container_engine:
            refuse(
                f"instances.{one.name}.start",
                f"'on-demand' is refused: must be 'boot', for {one.variant_name} runs in a container",
            )


def _refuse_unknown_variants(draft: RigDraft) -> None:
    """Refuse unknown variants of the instances that are refused for another key."""
    declared = draft.data.get("instances")
    for name, instance in declared.items() if isinstance(declared, dict) else ():
        variant = instance.get("variant") if isinstance(instance, dict) and name not in draft.entry.instances else None
        if isinstance(variant, str) and VARIANT_REFERENCE.fullmatch(variant):
            _find_variant(variant, f"instances.{name}", draft)


def _resolve_instances(draft: RigDraft) -> Fields:
    _refuse_unknown_variants(draft)
    found = [resolve_instance(name, declared, draft) for name, declared in draft.entry.instances.items()]
    instances = [one for one in found if one]
    _refuse_unwakeable_kinds(instances, draft.refuse)
    artefacts = {one.engine_name: one.artefacts for one in instances if one.env is None}
    draft.addressed += [row for rows in artefacts.values() for row in rows]
    draft.addressed += [row for one in instances for row in one.weights]
    draft.artefacts += draft.addressed
    return {
        "instances": tuple(sorted(instances, key=lambda instance: instance.name)),
        "engine_artefacts": artefacts,
        "variants": tuple(draft.catalog.variants.values()),
        "on_demand": draft.entry.on_demand,
    }


def _resolve_engine_keys(draft: RigDraft) -> Fields:
    """Refuse keys that the engines' versions, the cards, the containers or `allow` do not permit."""
    entry, instances, envs = draft.entry, draft.fields["instances"], draft.fields["envs"]
    refuse_without_cdi(instances, entry, draft.refuse)
    # the version of an environment is unknown while its lock is being made
    known = [one for one in instances if not draft.is_locking or one.env is None]
    for instance in known:
        refuse_engine_keys(instance, draft, next((one for one in envs if one.name == instance.env), None))
    if len(known) == len(entry.instances):
        refuse_forbidden_keys(instances, entry.allow, draft.refuse)
    return {}


INSTANCES = Feature("instances", _validate_instances, _resolve_instances)
ENGINE_KEYS = Feature("engine_keys", resolve=_resolve_engine_keys)
