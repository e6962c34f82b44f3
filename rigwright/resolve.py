"""An inventory entry into a rig: every name in it is resolved, and what cannot be is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from rigwright import bundle as bundles
from rigwright import certificates, flags, keys
from rigwright.bundle import Bundle
from rigwright.catalog import DRIVER, OWN_FLAGS, Catalog, Engine
from rigwright.command import options
from rigwright.driver.tables import Tables, tables
from rigwright.inputs import complaint
from rigwright.lock import Artefact, Kind, Lock
from rigwright.problems import Invalid, Problem, of_validation, unknown
from rigwright.rig import CUDA, POWER_UNIT, TOOLS, Instance, InstanceEntry, Rig, RigEntry, Roots, urls

_Refuse = Callable[[str, str], None]
Making = Literal["", "lock", "bundle"]
"""What of a rig is only being made while it is loaded."""


def _sound_part(data: object, error: ValidationError) -> dict[str, object]:
    """An entry without the keys, or instances, that have a mistake: the names in the rest are still worth a look."""
    sound: dict[str, object] = dict(data) if isinstance(data, dict) else {}
    for detail in error.errors():
        top, *inner = detail["loc"] or ("",)
        instances = sound.get("instances")
        if top == "instances" and inner and isinstance(instances, dict):
            sound["instances"] = {name: value for name, value in instances.items() if name != inner[0]}
        else:
            sound.pop(str(top), None)
    try:
        RigEntry.model_validate(sound)
    except ValidationError:  # pydantic gives a key that is no text as text
        return {}
    return sound


def parse(
    file: str,
    name: str,
    data: object,
    catalog: Catalog,
    lock: Lock,
    also: frozenset[str] = frozenset(),
    *,
    making: Making = "",
) -> Rig:
    """Validate one inventory entry and resolve every name in it.

    Args:
        file: The inventory, for messages.
        name: The rig's name.
        data: Its entry.
        catalog: What it names.
        lock: What that is made of.
        also: Keys that are valid beside these, for suggestions.
        making: What of it is only being made: its lock, its bundle, or nothing.

    Raises:
        Invalid: with every mistake in the entry.
    """
    problems: list[Problem] = []
    try:
        entry = RigEntry.model_validate(data)
    except ValidationError as error:
        problems += of_validation(error, RigEntry, file, name, also=also)
        entry = RigEntry.model_validate(_sound_part(data, error))

    def refuse(key: str, text: str) -> None:
        problems.append(Problem(file, f"{name}.{key}", text))

    given = data.get("cards") if isinstance(data, dict) else None
    # a mistake in one of them leaves the entry without any
    present = len(given) if isinstance(given, (list, tuple)) else len(entry.cards)
    for index, card in enumerate(entry.cards):
        if isinstance(card, str) and card not in catalog.cards:
            refuse(f"cards[{index}]", unknown("card", card, catalog.cards))
    instances = [
        instance
        for instance_name, declared in entry.instances.items()
        if (instance := _resolve(instance_name, declared, present, catalog, lock, refuse, Path(file)))
    ]
    _refuse_shared(entry, refuse)
    authorities = ""
    if entry.ca_file is not None:
        try:
            authorities = certificates.read(_beside(Path(file).parent, entry.ca_file))
        except ValueError as error:
            refuse("ca_file", f"{entry.ca_file} {error}")
    if wrong := complaint(TOOLS, "wheel", catalog.inputs, lock, file):
        refuse("tools", wrong)
    cuda: tuple[Artefact, ...] = ()
    if entry.cuda_root is None and any(instance.cards for instance in instances):
        if wrong := complaint(CUDA, "wheel", catalog.inputs, lock, file):
            refuse("cuda_root", f"no toolkit of your own is named, and ours cannot be had: {wrong}")
        cuda = lock.groups.get(CUDA, ())
    drivers = tables(Path(file).parent)
    _refuse_driver(entry, catalog, drivers, present, refuse)
    locked = _drivers(catalog, lock) if entry.driver.managed else []
    for group in locked:
        if wrong := complaint(group, "deb", catalog.inputs, lock, file):
            refuse("driver.managed", wrong)
    sources = {i.engine_name: lock.artefacts[i.engine.source] for i in instances}
    for instance in instances:
        _refuse_flags(instance, entry.roots, sources[instance.engine_name], Path(file).parent, refuse)
    needed = [*sources.values(), *(artefact for i in instances for artefact in i.weights)]
    bundle, faults = None, []
    bundle_folder = _beside(Path(file).parent, entry.bundle) if entry.bundle is not None else None
    if bundle_folder is not None and not making:
        try:
            bundle = bundles.read(Path(bundle_folder))
            faults = _lacking(bundle, [*needed, *cuda, *lock.groups.get(TOOLS, ())], file, name)
        except Invalid as error:
            faults = error.problems
    elif bundle_folder is None and making != "bundle":
        _refuse_unreachable(needed, entry.mirrors, refuse)
    if problems:
        raise Invalid(problems)
    return Rig(
        name=name,
        inventory=file,
        cards=tuple(catalog.cards[card] if isinstance(card, str) else card for card in entry.cards),
        driver=entry.driver,
        drivers=drivers,
        driver_packages={group.removeprefix(DRIVER): lock.groups[group] for group in locked},
        driver_keys={group.removeprefix(DRIVER): lock.keys[group] for group in locked if group in lock.keys},
        instances=tuple(sorted(instances, key=lambda instance: instance.name)),
        roots=entry.roots,
        service_user=entry.service_user,
        mirrors=entry.mirrors,
        proxy=entry.proxy,
        no_proxy=entry.no_proxy,
        authorities=authorities,
        keep_generations=entry.keep_generations,
        cuda_root=entry.cuda_root,
        cuda=cuda,
        also_build_for=entry.also_build_for,
        bundle_folder=bundle_folder,
        bundle=bundle,
        bundle_faults=tuple(faults),
        sources=sources,
        tools=lock.groups[TOOLS],
    )


def _drivers(catalog: Catalog, lock: Lock) -> list[str]:
    """The drivers that are asked for or locked, as the lock's groups are called."""
    asked = {name for name, one in catalog.inputs.items() if one.kind == "deb"}
    return sorted(asked | {group for group in lock.groups if group.startswith(DRIVER)})


def _refuse_driver(entry: RigEntry, catalog: Catalog, known: Tables, present: int, refuse: _Refuse) -> None:
    """Refuse what the cards, or the tables of drivers, have no place for."""
    driver = entry.driver
    if driver.managed and not present:
        refuse("driver.managed", "the rig declares no cards: nothing needs a driver")
    if driver.branch is not None and driver.branch < known.minimum:
        refuse("driver.branch", f"{driver.branch} is refused: must be at least {known.minimum}")
    if driver.managed and entry.bundle is not None:
        refuse("driver.managed", "a bundle has no driver in it: leave bundle out, or install the driver yourself")
    for key, listed in (("lanes", driver.lanes), ("power_w", driver.power_w)):
        if isinstance(listed, tuple) and listed and len(listed) != present:
            refuse(f"driver.{key}", f"{len(listed)} are named, and the rig declares {present} cards: one a card")
    if missing := sorted({index for pair in driver.nvlinks for index in pair if index >= present}):
        refuse("driver.nvlinks", f"no card {missing[0]}: the rig declares {present} cards, counted from 0")
    limits = driver.power_w if isinstance(driver.power_w, tuple) else (driver.power_w,) * present
    for index, (declared, limit) in enumerate(zip(entry.cards, limits, strict=False)):
        card = catalog.cards.get(declared) if isinstance(declared, str) else declared
        if card and card.power_w and limit is not None and not card.power_w[0] <= limit <= card.power_w[1]:
            refuse(
                "driver.power_w",
                f"{limit} W is refused for card {index}: a {card.name} takes {card.power_w[0]} to {card.power_w[1]} W",
            )


def _resolve(
    name: str, declared: InstanceEntry, present: int, catalog: Catalog, lock: Lock, refuse: _Refuse, inventory: Path
) -> Instance | None:
    """One instance with its names resolved, or None after refusing it."""
    key = f"instances.{name}"
    if f"rigwright-{name}.service" == POWER_UNIT:
        refuse(key, f"another name: {POWER_UNIT} sets the cards' power limits")
    variant = catalog.variants.get(declared.variant)
    if variant is None:
        refuse(f"{key}.variant", unknown("variant", declared.variant, catalog.variants))
        return None
    if len(declared.cards) != variant.cards:
        refuse(f"{key}.cards", f"{declared.variant} takes {variant.cards} cards, {len(declared.cards)} are named")
    if missing := [index for index in declared.cards if index >= present]:
        refuse(f"{key}.cards", f"no card {missing[0]}: the rig declares {present} cards, counted from 0")
    said = f"{declared.variant}: "
    engine = catalog.engines.get(variant.engine)
    model = catalog.models.get(variant.model)
    if engine is None:
        refuse(f"{key}.variant", said + unknown("engine", variant.engine, catalog.engines))
    if model is None:
        refuse(f"{key}.variant", said + unknown("model", variant.model, catalog.models))
    parts: list[tuple[Kind, str]] = [("source", engine.source)] if engine else []
    parts += [("weight", file) for file in (model.file, model.mmproj) if file] if model else []
    for kind, part in parts:
        if wrong := complaint(part, kind, catalog.inputs, lock, str(inventory)):
            refuse(f"{key}.variant", said + wrong)
    if not engine or not model or any(part not in lock.artefacts for _, part in parts):
        return None
    try:
        snapshot = _snapshot(catalog, engine, lock)
    except Invalid as error:
        refuse(f"{key}.variant", f"{said}{error}")
        return None
    key_file, key_name = None, f"{name}.api-key"
    if declared.api_key_file is not None:
        key_file = _beside(inventory.parent, declared.api_key_file)
        try:
            key_name = f"{name}.{keys.fingerprint(keys.read(key_file), name)}.api-key"
        except ValueError as error:
            refuse(f"{key}.api_key_file", f"{key_file} {error}")
    return Instance(
        name=name,
        variant_name=declared.variant,
        variant=variant,
        model_name=variant.model,
        weight=lock.artefacts[model.file],
        projector=lock.artefacts[model.mmproj] if model.mmproj else None,
        engine_name=variant.engine,
        engine=engine,
        snapshot=snapshot,
        cards=declared.cards,
        port=declared.port,
        api_key_file=key_file,
        key_name=key_name,
    )


def _snapshot(catalog: Catalog, engine: Engine, lock: Lock) -> flags.Snapshot | None:
    """The engine's options, if the catalogue has them.

    Raises:
        Invalid: the file with them is none.
    """
    path = catalog.snapshots.get(flags.file_name(lock.artefacts[engine.source].version, engine.commit))
    return flags.read(path) if path else None


def _refuse_flags(instance: Instance, roots: Roots, source: Artefact, folder: Path, refuse: _Refuse) -> None:
    """Refuse what the engine's llama-server would not start with, be it the variant's or what its keys become."""
    key, variant = f"instances.{instance.name}.variant", instance.variant
    if instance.snapshot is None:
        if variant.flags or variant.memory_lock or variant.thinking:
            path = folder / "catalog" / "flags" / flags.file_name(source.version, instance.engine.commit)
            text = f"nothing says which options {instance.engine_name} takes: its `llama-server --help > {path}` does"
            refuse(key, f"{instance.variant_name}: {text}")
        return
    ours = options(instance, roots)
    for option, wrong in flags.judge(instance.snapshot, ours).items():
        refuse(key, f"{instance.variant_name}: {instance.engine_name} cannot be started: --{option} {wrong}")
    for flag, wrong in flags.judge(instance.snapshot, variant.flags, own=OWN_FLAGS | ours.keys()).items():
        refuse(key, f"{instance.variant_name}: flags.{flag} {wrong}")


def _lacking(bundle: Bundle, artefacts: list[Artefact], file: str, name: str) -> list[Problem]:
    return [
        Problem(file, f"{name}.bundle", f"{bundle.folder} lacks {one} ({one.file}): {bundles.AGAIN}")
        for one in artefacts
        if bundle.find(one) is None
    ]


def _refuse_unreachable(artefacts: list[Artefact], mirrors: dict[str, tuple[str, ...]], refuse: _Refuse) -> None:
    for artefact in artefacts:
        indexed = artefact.kind == "source" and any(source.startswith("index:") for source in artefact.sources)
        if not indexed and not urls(artefact, mirrors):
            refuse("mirrors", f"the lock's {artefact} has no address: its sources are {', '.join(artefact.sources)}")


def _beside(folder: Path, path: str) -> str:
    """A path from the inventory's folder; a `~name` of nobody is left for the reader to complain about."""
    with suppress(RuntimeError):
        return str(folder / Path(path).expanduser())
    return path


def _refuse_shared(entry: RigEntry, refuse: _Refuse) -> None:
    """Refuse two instances on one port, and a card that two instances (or one, twice) want."""
    ports: dict[int, str] = {}
    users: dict[int, str] = {}
    for name, instance in entry.instances.items():
        if instance.port in ports:
            refuse(f"instances.{name}.port", f"{instance.port} is already the port of {ports[instance.port]}")
        ports.setdefault(instance.port, name)
        for card in instance.cards:
            if card in users:
                refuse(f"instances.{name}.cards", f"card {card} is already taken by {users[card]}")
            users.setdefault(card, name)
