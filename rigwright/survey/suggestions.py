"""Suggestions of a survey for a declaration: names for the cards, a root with room, a free port, variants that fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from pydantic import TypeAdapter, ValidationError

from rigwright.declaration.connection import KEYS
from rigwright.declaration.rig_resolution import resolve_rig
from rigwright.model.catalog_schema import Catalog
from rigwright.model.instance import EnvSpec, Instance, loaded_weights
from rigwright.model.inventory_schema import RigEntry
from rigwright.model.lock_coverage import describe_mismatch
from rigwright.problems import Invalid
from rigwright.serving.instance_units import PREFIX
from rigwright.supply.lock import Lock
from rigwright.supply.lock_inputs import provisional_lock
from rigwright.survey.box_survey import BoxSurvey, ObservedCard, ObservedDisk
from rigwright.validated_types import Root

INSTANCE = "chat"
FIRST_PORT = 8020
OWN_USER = "rigwright-serving"  # where the operator logs in under the default's name
# Root and data disks of rented boxes start at 100 GB; the weights of one large quantised model take 40 to 80.
BIG_DISK = 100 * 1024 * 1024  # KiB


@dataclass(frozen=True)
class OperatorAnswers:
    """The operator's answers."""

    name: str
    connection: Mapping[str, object]
    """The inventory's keys of `rigwright.declaration.connection`, already found valid."""
    variant: str | None = None
    """A variant of the catalogue; None for nothing yet."""
    port: int | None = None
    """The API's port; None for the first that is free."""
    listen: int | None = None
    """The port on all addresses where clients need no key; None for no gateway."""


@dataclass(frozen=True)
class VariantOffer:
    """A variant, and the reason why this box cannot serve it."""

    variant: str
    cards: tuple[int, ...] = ()
    refusal: str = ""
    """Empty when it fits."""
    unlocked: bool = False
    """Whether the lock lacks a part of it, so that its size and its fit for the engine are unknown."""


def card_name(seen: ObservedCard, catalog: Catalog) -> str | None:
    """The catalogue's name of a card: of several with its PCI id, the one with the nearest memory."""
    named = [(name, card) for name, card in catalog.cards.items() if seen.pci_id in card.pci_ids]
    ranked = sorted(named, key=lambda item: (abs(item[1].vram_mib - seen.vram_mib) if seen.vram_mib else 0, item[0]))
    return ranked[0][0] if ranked else None


def card_names(survey: BoxSurvey, catalog: Catalog) -> tuple[str, ...]:
    """The catalogue's names of the cards in bus order, up to the first that it lacks: numbers have no gaps."""
    names: list[str] = []
    for seen in survey.cards[:16]:
        name = card_name(seen, catalog)
        if name is None:
            break
        names.append(name)
    return tuple(names)


def taken_cards(survey: BoxSurvey) -> frozenset[int]:
    """Numbers of the cards that foreign processes use."""
    return frozenset(number for one in survey.processes if one.is_foreign for number, _ in one.memory_mib)


def choose_cards(survey: BoxSurvey, names: tuple[str, ...], count: int) -> tuple[int, ...] | None:
    """Cards for an instance: free ones, and of those on one NUMA node, of one model, side by side, in that order."""

    def worth(chosen: tuple[int, ...]) -> tuple[object, ...]:
        nodes = {survey.cards[number].numa_node for number in chosen}
        models = {names[number] for number in chosen}
        span = chosen[-1] - chosen[0] if chosen else 0
        return len(nodes), len(models), span, chosen

    free = [number for number in range(len(names)) if number not in taken_cards(survey)]
    return min(combinations(free, count), key=worth, default=None)


def taken_ports(survey: BoxSurvey) -> frozenset[int]:
    """Ports with a foreign listener; an instance of Rigwright frees its port for the next deploy."""
    return frozenset(one.port for one in survey.listeners if not one.unit.startswith(("rigwright-", PREFIX)))


def suggest_port(survey: BoxSurvey) -> int:
    """The first free port from FIRST_PORT on."""
    taken = taken_ports(survey)
    return next(port for port in range(FIRST_PORT, 65536) if port not in taken)


def instance_port(survey: BoxSurvey, answers: OperatorAnswers) -> int:
    """The port of the instance itself: the operator's, else the first free one that the gateway does not have."""
    taken = {*taken_ports(survey), answers.listen}
    return answers.port or next(port for port in range(FIRST_PORT, 65536) if port not in taken)


def _file_system_of(survey: BoxSurvey, path: str) -> ObservedDisk | None:
    """The file system that a folder lies on."""
    holding = [disk for disk in survey.disks if path == disk.mount or path.startswith(f"{disk.mount.rstrip('/')}/")]
    return max(holding, key=lambda disk: len(disk.mount), default=None)


def suggest_models_root(survey: BoxSurvey) -> str | None:
    """A folder for the weights on the local disk with most room; None where the default place is as good.

    A disk is worth the move from BIG_DISK free on, and with twice the room of the default place.
    """
    default = RigEntry.model_fields["roots"].default.models
    there = _file_system_of(survey, default)
    least = max(BIG_DISK, 2 * there.free_kib if there else 0)
    for disk in sorted(survey.disks, key=lambda disk: (-disk.free_kib, disk.mount)):
        if disk is there or not disk.is_local or not disk.writable or disk.free_kib < least:
            continue
        try:
            path: str = TypeAdapter(Root).validate_python(f"{disk.mount.rstrip('/')}/models")
        except ValidationError:  # services are kept from it, or a unit could not print its name
            continue
        return path if path != default else None
    return None


def suggest_entry(survey: BoxSurvey, answers: OperatorAnswers, catalog: Catalog) -> dict[str, object]:
    """The inventory entry that is suggested, without its connection.

    Raises:
        KeyError: the catalogue has no such variant.
    """
    names = card_names(survey, catalog)
    count = catalog.variants[answers.variant].cards if answers.variant is not None else 0
    # too few are free: the first ones are named, and preflight or the operator has the last word
    ours = list(choose_cards(survey, names, count) or range(count))
    declared: dict[str, object] = {"cards": list(names)}
    if reserved := sorted(taken_cards(survey) & set(range(len(names))) - set(ours)):
        declared["reserved_gpus"] = reserved
    if root := suggest_models_root(survey):
        declared["roots"] = {"models": root}
    if answers.connection.get("ssh_user") == RigEntry.model_fields["service_user"].default:
        declared["service_user"] = OWN_USER
    if ours and not survey.driver:
        declared["driver"] = {"managed": True}
    if answers.variant is not None:
        instance: dict[str, object] = {"variant": answers.variant}
        if ours:
            instance["cards"] = ours
        instance["port"] = instance_port(survey, answers)
        declared["instances"] = {INSTANCE: instance}
        if answers.listen is not None:
            declared["gateway"] = {
                "listeners": {"lan": {"address": "0.0.0.0", "port": answers.listen, "keys": False}},  # noqa: S104
                "models": {catalog.variants[answers.variant].model: {"instances": [INSTANCE]}},
            }
    return declared


def offer_variant(
    name: str, survey: BoxSurvey, answers: OperatorAnswers, catalog: Catalog, lock: Lock, file: str
) -> VariantOffer:
    """Whether a variant can be declared on this box, and on which cards.

    Args:
        name: The variant.
        survey: The box.
        answers: All but the variant.
        catalog: The catalogue.
        lock: The lock.
        file: The inventory that is to be written.

    Raises:
        KeyError: the catalogue has no such variant.
    """
    variant = catalog.variants[name]
    names = card_names(survey, catalog)
    chosen = choose_cards(survey, names, variant.cards)
    if chosen is None:
        free = len(names) - len(taken_cards(survey) & set(range(len(names))))
        refusal = f"needs {variant.cards} cards; {free} of {len(survey.cards)} are free and in the catalogue"
        return VariantOffer(name, refusal=refusal)
    declared = suggest_entry(survey, replace(answers, variant=name), catalog)
    parsed = partial(resolve_rig, file, answers.name, declared, also=frozenset(KEYS))
    try:
        rig = parsed(catalog=catalog, lock=lock)
    except Invalid as error:
        made = provisional_lock(catalog.inputs)
        locked = Lock(lock.artefacts | made.artefacts, lock.groups | made.groups)
        try:
            rig = parsed(catalog=catalog.model_copy(update={"inputs": {}}), lock=locked, making="lock")
        except Invalid as final:
            return VariantOffer(name, chosen, "; ".join(problem.text for problem in final.problems))
        if not _is_unlocked(rig.instances, rig.envs, catalog, lock):
            return VariantOffer(name, chosen, "; ".join(problem.text for problem in error.problems))
        return VariantOffer(name, chosen, unlocked=True)
    memory = sum(survey.cards[number].vram_mib or rig.cards[number].vram_mib for number in chosen)
    weights = sum(artefact.size for artefact in loaded_weights(rig.instances)) >> 20
    if chosen and weights > memory:
        return VariantOffer(name, chosen, f"its weights need {weights} MiB, the cards have {memory}")
    return VariantOffer(name, chosen)


def _is_unlocked(instances: tuple[Instance, ...], envs: tuple[EnvSpec, ...], catalog: Catalog, lock: Lock) -> bool:
    """Whether the lock lacks an artefact of a rig's instances."""
    rows = [row for one in instances for row in (*one.weights, *one.artefacts)]
    rows += [row for env in envs for row in env.artefacts]
    names = {row.group or row.name for row in rows} & catalog.inputs.keys()
    return any(describe_mismatch(catalog.inputs[name], lock.rows(name)) for name in names)
