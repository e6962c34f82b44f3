"""Models that keys of a gateway open, compared with the models that the rigs of an inventory can offer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rigwright.gateway import keyring
from rigwright.model.api_keys import resolve_inventory_path
from rigwright.model.gateway_schema import Gateway
from rigwright.problems import Invalid, Problem, describe_unknown


def find_unknown_key_models(offers: Iterable[tuple[str, Gateway, Iterable[str]]]) -> list[Problem]:
    """Refuse keys for models that no rig offers and no variant of the catalogue serves.

    A model that is not served now is allowed: a switch of an instance can serve it again.

    Args:
        offers: Of each valid rig with a gateway: its inventory, the gateway, and the models of its variants.
    """
    files: dict[str, set[str]] = {}
    for inventory, gateway, models in offers:
        names = files.setdefault(resolve_inventory_path(Path(inventory).parent, gateway.keys_file), set())
        names |= {*gateway.models, *gateway.aliases, *models}
    found = []
    for file, names in files.items():
        try:
            keys = keyring.read_keys_file(Path(file)).keys
        except Invalid:  # the rig is refused for it
            continue
        found += [
            Problem(file, f"keys.{name}.models", describe_unknown("model", model, names))
            for name, key in keys.items()
            for model in key.models or ()
            if model not in names
        ]
    return found
