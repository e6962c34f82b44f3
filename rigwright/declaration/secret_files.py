"""The operator's files with a secret in them, and who else can read those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rigwright import files
from rigwright.model.api_keys import resolve_inventory_path
from rigwright.model.rig import Rig


def find_exposed_files(rigs: Iterable[Rig]) -> dict[str, str]:
    """What is wrong with the files of rigs that others can read -> the command that fixes it."""
    found = {}
    for rig in rigs:
        for path, what in _list_secret_files(rig).items():
            if fault := files.describe_exposure(path):
                said, _, cure = fault.partition(": ")
                found[f"{what} {path} {said}"] = cure
    return found


def _list_secret_files(rig: Rig) -> Mapping[str, str]:
    """Path -> what is in it."""
    found = {one.api_key_file: "the API key in" for one in rig.instances if one.api_key_file}
    found |= {rig.network.hub_token_file: "the hub's token in"} if rig.network.hub_token_file else {}
    found |= dict.fromkeys(rig.network.registry_logins.values(), "the registry's login in")
    for one in rig.gateway.listeners.values() if rig.gateway else ():
        if one.key_file:
            found[resolve_inventory_path(Path(rig.inventory).parent, one.key_file)] = "the certificate's key in"
    return found
