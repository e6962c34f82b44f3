"""The operator's files with a secret in them, and who else can read those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rigwright import files
from rigwright.model.api_keys import resolve_inventory_path
from rigwright.model.gateway.entry import Gateway
from rigwright.model.instance import Instance
from rigwright.model.network import DownloadNetwork
from rigwright.model.rig import Rig


def find_exposed_files(rigs: Iterable[Rig]) -> dict[str, str]:
    """What is wrong with the files of rigs that others can read -> the command that fixes it."""
    found = {}
    for rig in rigs:
        for path, what in _list_secret_files(rig.inventory, rig.instances, rig.gateway, rig.network).items():
            if fault := files.describe_exposure(path):
                said, _, cure = fault.partition(": ")
                found[f"{what} {path} {said}"] = cure
    return found


def _list_secret_files(
    inventory: str, instances: tuple[Instance, ...], gateway: Gateway | None, network: DownloadNetwork
) -> Mapping[str, str]:
    """Path -> what is in it."""
    found = {one.api_key_file: "the API key in" for one in instances if one.api_key_file}
    found |= {network.hub_token_file: "the hub's token in"} if network.hub_token_file else {}
    found |= dict.fromkeys(network.registry_logins.values(), "the registry's login in")
    for one in gateway.listeners.values() if gateway else ():
        if one.key_file:
            found[resolve_inventory_path(Path(inventory).parent, one.key_file)] = "the certificate's key in"
    return found
