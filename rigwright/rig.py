"""A rig: one host with its cards and what it serves, as its inventory entry declares it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from rigwright import keys
from rigwright.catalog import Card, Catalog, Engine, Variant
from rigwright.inputs import complaint
from rigwright.lock import Artefact, Lock
from rigwright.problems import Frozen, Invalid, Problem, of_validation, unknown
from rigwright.types import AbsolutePath, CatalogName, HttpUrl, Name, Port, Root, UserName, VariantName

_Refuse = Callable[[str, str], None]
# The locked environment with what hosts need in Python.
TOOLS = "tools"
CardIndex = Annotated[int, Field(ge=0, le=15, strict=True)]


class Roots(Frozen):
    """Where things go on the host; a box with a data disk moves them there. No two are the same or one in another."""

    software: Root = Field(default="/opt/rigwright", description="Compiled engines and tools.")
    models: Root = Field(default="/srv/models", description="Weights.")
    state: Root = Field(default="/var/lib/rigwright", description="Records, jobs and their logs.")
    config: Root = Field(default="/etc/rigwright", description="What the rig is, and its secrets.")

    @model_validator(mode="after")
    def _apart(self) -> Roots:
        paths = [self.software, self.models, self.state, self.config]
        for one, other in permutations(paths, 2):
            if other == one or other.startswith(f"{one}/"):
                raise ValueError(f"roots that lie apart: {other} is in {one}")
        return self


class InstanceEntry(Frozen):
    """One instance, as declared."""

    variant: VariantName
    port: Port = Field(description="The API's TCP port on the loopback interface.")
    cards: tuple[CardIndex, ...] = Field(default=(), description="Indices into the rig's cards.")
    api_key_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file on the operator's machine, from the inventory's folder, that holds the API key; "
        "without it the host makes one.",
    )


class RigEntry(Frozen):
    """One rig, as declared in an inventory."""

    cards: tuple[CatalogName, ...] = Field(default=(), description="The catalogue's names of its cards, by slot.")
    instances: dict[Name, InstanceEntry] = Field(default_factory=dict)
    roots: Roots = Roots()
    service_user: UserName = Field(default="rigwright", description="The user that services run as.")
    mirrors: dict[Name, tuple[HttpUrl, ...]] = Field(
        default_factory=dict, description="Base addresses, in order, of the sources that the lock only names."
    )
    cuda_root: AbsolutePath = Field(
        default="/usr/local/cuda", description="The CUDA toolkit that engines are built with."
    )


@dataclass(frozen=True)
class Instance:
    """A variant running on chosen cards and a port of a rig; one systemd unit."""

    name: str
    variant_name: str
    variant: Variant
    model_name: str
    weights: Artefact
    engine_name: str
    engine: Engine
    cards: tuple[int, ...]
    port: int
    api_key_file: str | None

    @property
    def unit(self) -> str:
        """The systemd unit's name."""
        return f"rigwright-{self.name}.service"


@dataclass(frozen=True)
class Rig:
    """One host with its cards, with every name resolved."""

    name: str
    cards: tuple[Card, ...]
    instances: tuple[Instance, ...]
    roots: Roots
    service_user: str
    mirrors: dict[str, tuple[str, ...]]
    cuda_root: str
    sources: dict[str, Artefact]
    """Engine name -> the source it is compiled from."""
    tools: tuple[Artefact, ...]
    """The wheels of the hosts' Python tools."""

    @property
    def engines(self) -> dict[str, Engine]:
        """The engines that instances need, by name."""
        return {instance.engine_name: instance.engine for instance in self.instances}

    @property
    def weights(self) -> tuple[Artefact, ...]:
        """The weights that instances load, each once, by name."""
        return tuple(sorted({i.weights for i in self.instances}, key=lambda artefact: artefact.name))

    def weight_path(self, artefact: Artefact) -> str:
        """Where an artefact of kind `weight` lies on the host."""
        return f"{self.roots.models}/{artefact.name}/{artefact.version}/{artefact.file}"

    def urls(self, artefact: Artefact) -> list[str]:
        """The http(s) addresses to try, in order; `index:` sources are not among them."""
        return _urls(artefact, self.mirrors)


def _urls(artefact: Artefact, mirrors: Mapping[str, tuple[str, ...]]) -> list[str]:
    found = []
    for source in artefact.sources:
        scheme, _, rest = source.partition(":")
        if scheme in ("http", "https"):
            found.append(source)
        elif scheme != "index":
            found += [f"{base.rstrip('/')}/{rest}" for base in mirrors.get(scheme, ())]
    return found


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


def parse(file: str, name: str, data: object, catalog: Catalog, lock: Lock, also: frozenset[str] = frozenset()) -> Rig:
    """Validate one inventory entry and resolve every name in it.

    Args:
        file: The inventory, for messages.
        name: The rig's name.
        data: Its entry.
        catalog: What it names.
        lock: What that is made of.
        also: Keys that are valid beside these, for suggestions.

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

    for index, card in enumerate(entry.cards):
        if card not in catalog.cards:
            refuse(f"cards[{index}]", unknown("card", card, catalog.cards))
    instances = [
        instance
        for instance_name, declared in entry.instances.items()
        if (instance := _resolve(instance_name, declared, len(entry.cards), catalog, lock, refuse, Path(file)))
    ]
    _refuse_shared(entry, refuse)
    for instance in instances:
        if instance.api_key_file is not None:
            try:
                keys.read(instance.api_key_file)
            except ValueError as error:
                refuse(f"instances.{instance.name}.api_key_file", f"{instance.api_key_file} {error}")
    sources = {i.engine_name: lock.artefacts[i.engine.source] for i in instances}
    if wrong := complaint(TOOLS, "wheel", catalog.inputs, lock, file):
        refuse("tools", wrong)
    needed = [*sources.values(), *(i.weights for i in instances)]
    for artefact in needed:
        indexed = artefact.kind == "source" and any(source.startswith("index:") for source in artefact.sources)
        if not indexed and not _urls(artefact, entry.mirrors):
            refuse("mirrors", f"the lock's {artefact} has no address: its sources are {', '.join(artefact.sources)}")
    if problems:
        raise Invalid(problems)
    return Rig(
        name=name,
        cards=tuple(catalog.cards[card] for card in entry.cards),
        instances=tuple(sorted(instances, key=lambda instance: instance.name)),
        roots=entry.roots,
        service_user=entry.service_user,
        mirrors=entry.mirrors,
        cuda_root=entry.cuda_root,
        sources=sources,
        tools=lock.groups[TOOLS],
    )


def _resolve(
    name: str, declared: InstanceEntry, present: int, catalog: Catalog, lock: Lock, refuse: _Refuse, inventory: Path
) -> Instance | None:
    """One instance with its names resolved, or None after refusing it."""
    key = f"instances.{name}"
    variant = catalog.variants.get(declared.variant)
    if variant is None:
        refuse(f"{key}.variant", unknown("variant", declared.variant, catalog.variants))
        return None
    if len(declared.cards) != variant.cards:
        refuse(f"{key}.cards", f"{declared.variant} takes {variant.cards} cards, {len(declared.cards)} are named")
    if missing := [index for index in declared.cards if index >= present]:
        refuse(f"{key}.cards", f"no card {missing[0]}: the rig declares {present} cards, counted from 0")
    engine = catalog.engines.get(variant.engine)
    model = catalog.models.get(variant.model)
    if engine is None:
        refuse(f"{key}.variant", f"{declared.variant}: {unknown('engine', variant.engine, catalog.engines)}")
    elif wrong := complaint(engine.source, "source", catalog.inputs, lock, str(inventory)):
        refuse(f"{key}.variant", f"{declared.variant}: {wrong}")
    if model is None:
        refuse(f"{key}.variant", f"{declared.variant}: {unknown('model', variant.model, catalog.models)}")
    elif wrong := complaint(model.file, "weight", catalog.inputs, lock, str(inventory)):
        refuse(f"{key}.variant", f"{declared.variant}: {wrong}")
    if not engine or not model or engine.source not in lock.artefacts or model.file not in lock.artefacts:
        return None
    return Instance(
        name=name,
        variant_name=declared.variant,
        variant=variant,
        model_name=variant.model,
        weights=lock.artefacts[model.file],
        engine_name=variant.engine,
        engine=engine,
        cards=declared.cards,
        port=declared.port,
        api_key_file=_beside(inventory.parent, declared.api_key_file) if declared.api_key_file else None,
    )


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
