"""Data of hosts and groups in pyinfra's inventory, compared with what `hosts()` made."""

from __future__ import annotations

from typing import Any

import click

from rigwright.declaration.host_data import find_undeclared_data, is_rig_key
from rigwright.inventory import RIG_KEYS
from rigwright.problems import Problem


def find_inventory_data_problems(made: Any, file: str = "") -> list[Problem]:
    """Data that `hosts()` did not validate.

    Args:
        made: The inventory, as pyinfra has it.
        file: The inventory, for messages; by default the argument of pyinfra's command.
    """
    context = click.get_current_context(silent=True)
    file = file or str((context.params.get("inventory") if context else "") or "the inventory")
    # with variables from files of groups; a group without hosts has the data of its file alone
    groups = {
        group: {key: value for key, value in data.items() if is_rig_key(key, RIG_KEYS)}
        for group, data in (("all", made.data), *made.group_data.items())
        if group == "all" or made.groups.get(group)
    }
    hosts = {host.name: (next(iter(host.groups), "all"), made.host_data[host.name]) for host in made}
    return find_undeclared_data(file, groups, hosts, RIG_KEYS)
