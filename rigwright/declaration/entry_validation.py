"""Validation of an inventory's entry without catalogue and lock."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from rigwright.declaration import ca_certificates
from rigwright.declaration.instance_resolution import refuse_reserved_gpus, refuse_shared_resources
from rigwright.model import api_keys
from rigwright.model.api_keys import resolve_inventory_path
from rigwright.model.entry import RigEntry
from rigwright.model.origins import refuse_token
from rigwright.model.registries import refuse_logins
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


@dataclass
class ValidatedEntry:
    """An entry that is valid as far as catalogue and lock do not matter."""

    file: str
    name: str
    entry: RigEntry
    """Of one with mistakes, the rest."""
    cards: int
    """How many are declared, those with mistakes among them."""
    problems: list[Problem]
    ca_certificates: str = ""
    """Those in its `ca_file`."""
    token_file: str | None = None
    """The path of its `hub_token_file`."""
    logins: dict[str, str] = field(default_factory=dict)
    """Registry -> the path of the file with its login."""

    def refuse(self, key: str, text: str) -> None:
        """Add the problem of a key."""
        self.problems.append(Problem(self.file, f"{self.name}.{key}", text))

    def resolve_path(self, path: str) -> str:
        """A path from the inventory's folder."""
        return resolve_inventory_path(Path(self.file).parent, path)


def validate_entry(file: str, name: str, data: object, also: frozenset[str] = frozenset()) -> ValidatedEntry:
    """Validate an entry and the files that it names.

    Args:
        file: The inventory, for messages.
        name: The rig's name.
        data: Its entry.
        also: Keys that are valid beside these, for suggestions.
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
    found = ValidatedEntry(file, name, entry, present, problems)
    refuse_reserved_gpus(entry.reserved_gpus, present, found.refuse)
    refuse_shared_resources(entry, found.refuse)
    if entry.gateway:
        # few rigs have one
        from rigwright.gateway.operator_files import refuse_files

        refuse_files(entry.gateway, found.resolve_path, found.refuse)
    if entry.ca_file is not None:
        try:
            found.ca_certificates = ca_certificates.load_ca_certificates(found.resolve_path(entry.ca_file))
        except ValueError as error:
            found.refuse("ca_file", f"{entry.ca_file} {error}")
    if entry.hub_token_file is not None:
        found.token_file = found.resolve_path(entry.hub_token_file)
        try:
            api_keys.load_api_key(found.token_file, "token")
        except ValueError as error:
            found.refuse("hub_token_file", f"{found.token_file} {error}")
    refuse_token(entry.hub_token_file, entry.hub_token_origin, entry.mirrors, found.refuse)
    found.logins = refuse_logins(entry.registries, entry.mirrors, found.resolve_path, found.refuse)
    return found
