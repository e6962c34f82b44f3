"""Validation of an inventory's entry without catalogue and lock."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from rigwright.declaration.features import FEATURES
from rigwright.model.entry import RigEntry
from rigwright.model.feature import EntryDraft, Feature
from rigwright.problems import Problem, translate_validation


def _sound_part(data: object, error: ValidationError) -> dict[str, object]:
    """An entry without the keys or instances that have a mistake, to validate the names in the rest."""
    sound: dict[str, object] = dict(data) if isinstance(data, dict) else {}
    for detail in error.errors():
        top, *inner = detail["loc"] or ("",)
        table = sound.get(str(top))
        if top in ("instances", "driver") and inner and isinstance(table, dict):
            sound[str(top)] = {name: value for name, value in table.items() if name != inner[0]}
        else:
            sound.pop(str(top), None)
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
        problems += translate_validation(error, RigEntry, file, name, also=also)
        entry = RigEntry.model_validate(_sound_part(data, error))
    given = data.get("cards") if isinstance(data, dict) else None
    # a mistake in one of them leaves the entry without any
    present = len(given) if isinstance(given, (list, tuple)) else len(entry.cards)
    draft = EntryDraft(file, name, entry, present, problems)
    for feature in features:
        draft.add_fields(feature.name, feature.validate(draft))
    return draft
