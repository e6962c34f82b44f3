"""Validation of an inventory's entry: keys, CA certificates and files with secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from rigwright import local_files
from rigwright.declaration.features import FEATURES
from rigwright.model.api_keys import resolve_secret
from rigwright.model.inventory_feature import EntryDraft, Feature
from rigwright.model.inventory_schema import RigEntry
from rigwright.model.rig import Rig
from rigwright.model.secret_sources import SecretSource
from rigwright.monitoring.config_files import receiver_secret_files
from rigwright.problems import Problem, translate_validation
from rigwright.validation_passes import find_all_errors

# A refused listener gets these ports on the loopback interface, so that all else of its gateway is judged.
LAST_PORT = 65535
MOST_CARDS = 16  # of a rig


def _without_faulty_key(top: str, table: dict[str, object], inner: Sequence[int | str]) -> dict[str, object] | None:
    """A table of an entry without a key that has a mistake; None if the rest says nothing without it."""
    name, *deeper = map(str, inner)
    if top in ("instances", "driver"):
        return {key: value for key, value in table.items() if key != name}
    listeners = table.get("listeners")
    if top == "gateway" and isinstance(listeners, dict) and name == "listeners" and deeper and deeper[0] in listeners:
        valid = {"address": "127.0.0.1", "port": LAST_PORT - [*listeners].index(deeper[0])}
        return table | {"listeners": listeners | {deeper[0]: valid}}
    # names elsewhere may lead to its models
    is_optional = top == "gateway" and name not in ("listeners", "models", "aliases")
    return {key: value for key, value in table.items() if key != name} if is_optional else None


def _sound_part(data: object, error: ValidationError) -> dict[str, object]:
    """An entry without the keys or instances that have a mistake, to validate the names in the rest."""
    sound: dict[str, object] = dict(data) if isinstance(data, dict) else {}
    for detail in error.errors():
        top, *inner = detail["loc"] or ("",)
        table = sound.get(str(top))
        rest = _without_faulty_key(str(top), table, inner) if inner and isinstance(table, dict) else None
        sound.pop(str(top), None)
        if rest is not None:
            sound[str(top)] = rest
    for _ in range(2):
        try:
            RigEntry.model_validate(sound)
        except ValidationError as later:  # a rule between keys, of which one was wrong
            for detail in later.errors():
                sound.pop(str(detail["loc"][0] if detail["loc"] else ""), None)
        else:
            return sound
    return {}  # pydantic gives a key that is no text as text


def validate_entry(
    file: str,
    name: str,
    data: object,
    also: frozenset[str] = frozenset(),
    features: Sequence[Feature] = FEATURES,
) -> EntryDraft:
    """Validate an entry and the files that it names.

    Args:
        file: The inventory, for messages.
        name: The rig's name.
        data: Its entry.
        also: Keys that are valid beside these, for suggestions.
        features: The parts of the entry.
    """
    problems: list[Problem] = []
    try:
        entry = RigEntry.model_validate(data)
    except ValidationError as error:
        problems += translate_validation(find_all_errors(RigEntry, data), RigEntry, file, name, also=also)
        entry = RigEntry.model_validate(_sound_part(data, error))
    given = data.get("cards") if isinstance(data, dict) else None
    # a mistake in one of them leaves the entry without any
    present = len(given) if isinstance(given, (list, tuple)) else len(entry.cards)
    if any(one.key == f"{name}.cards" for one in problems):
        present = MOST_CARDS  # their number is unknown
    draft = EntryDraft(file, name, entry, present, problems, data if isinstance(data, dict) else {})
    for feature in features:
        draft.add_fields(feature.name, feature.validate(draft))
    return draft


def find_exposed_files(rigs: Iterable[Rig]) -> dict[str, str]:
    """The problems of files of rigs that others can read -> the command that fixes it."""
    found = {}
    for rig in rigs:
        for source, what in list_secret_sources(rig).items():
            if isinstance(source, str) and (fault := local_files.describe_exposure(source)):
                said, _, cure = fault.partition(": ")
                found[f"{what} in {source} {said}"] = cure
    return found


def list_secret_sources(rig: Rig) -> Mapping[SecretSource, str]:
    """Files and commands on the operator's machine that provide secrets of a rig -> the secret."""
    folder, server = Path(rig.inventory).parent, rig.monitoring.server if rig.monitoring else None
    found = {one.api_key_file: "the API key" for one in rig.instances if one.api_key_file}
    found |= {rig.network.hub_token_file: "the hub's token"} if rig.network.hub_token_file else {}
    found |= dict.fromkeys(rig.network.registry_logins.values(), "the registry's login")
    listeners = rig.gateway.listeners.values() if rig.gateway else ()
    found |= {resolve_secret(folder, one.key_file): "the certificate's key" for one in listeners if one.key_file}
    receivers = receiver_secret_files(server).items() if server else ()
    return found | {resolve_secret(folder, entry): f"the receiver's {name.split('.')[-1]}" for name, entry in receivers}
