"""Models that keys of a gateway open, compared with the models that the rigs of an inventory can offer."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rigwright.gateway import keyring
from rigwright.model.api_keys import resolve_inventory_path
from rigwright.model.gateway_schema import Gateway
from rigwright.problems import Invalid, Problem, describe_unknown

MAX_FILES, MAX_BYTES = 200, 1 << 20  # inventories beside a file of keys, and bytes of each, that are read for names


def find_unknown_key_models(offers: Iterable[tuple[str, Gateway, Iterable[str]]]) -> list[Problem]:
    """Refuse keys for models that no rig offers and no variant of the catalogue serves.

    A model that is not served now is allowed: a switch of an instance can serve it again. So is one that another
    inventory beside the file names, for inventories of one folder share a file of keys.

    Args:
        offers: Of each valid rig with a gateway: its inventory, the gateway, and the models of its variants.
    """
    files: dict[str, set[str]] = {}
    for inventory, gateway, models in offers:
        offered = files.setdefault(resolve_inventory_path(Path(inventory).parent, gateway.keys_file), set())
        offered |= {*gateway.models, *gateway.aliases, *models}
    found = []
    for file, names in files.items():
        try:
            keys = keyring.read_keys_file(Path(file)).keys
        except Invalid:  # the rig is refused for it
            continue
        unknown = [(name, model) for name, key in keys.items() for model in key.models or () if model not in names]
        elsewhere = _quoted_names(Path(file).parent) if unknown else set()
        found += [
            Problem(file, f"keys.{name}.models", describe_unknown("model", model, names))
            for name, model in unknown
            if model not in elsewhere
        ]
    return found


def _quoted_names(folder: Path) -> set[str]:
    """All strings that the Python files of a folder contain, without running any."""
    found: set[str] = set()
    for path in sorted(folder.glob("*.py"))[:MAX_FILES]:
        with suppress(OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            if path.is_file() and path.stat().st_size <= MAX_BYTES:
                for node in ast.walk(ast.parse(path.read_bytes())):
                    if isinstance(node, ast.Constant) and isinstance(node.value, str):
                        found.add(node.value)
    return found
