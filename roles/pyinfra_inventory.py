"""pyinfra's inventory of a Python inventory or a host file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyinfra.api.inventory import Inventory
from pyinfra_cli.inventory import make_inventory

from rigwright.host_inventory import is_host_file, load_host_file


def load_pyinfra_inventory(inventory: str, override_data: Mapping[str, object] | None = None) -> Inventory:
    """The hosts of an inventory as pyinfra has them, with the groups of its file.

    Raises:
        SystemExit: the inventory is refused; a Python inventory may raise anything.
    """
    data = dict(override_data or {})
    if not is_host_file(inventory):
        made: Inventory = make_inventory(inventory, cwd=os.getcwd(), override_data=data)  # noqa: PTH109 (it is joined as text)
        return made
    groups = load_host_file(inventory)
    rigs = groups.pop("all")
    # as pyinfra, which has a group named like the file
    named = {Path(inventory).stem: rigs} | groups
    return Inventory((rigs, {}), override_data=data, **{name: (hosts, {}) for name, hosts in named.items()})
