"""Data of hosts and groups as pyinfra reads it: the data of a rig is what `hosts()` made, and nothing else."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from rigwright.problems import Problem, suggestion

EARLIER_GROUPS = "__rigwright_groups__"
"""In an inventory's own namespace: the rigs of the groups that it has made before."""
MADE: dict[tuple[str, str], Mapping[str, object]] = {}
"""Inventory and rig -> the data that `hosts()` made, in this process."""
DECLARE = "declare it in hosts({...}), or for all rigs as hosts({...}, KEY=VALUE)"


GROUP_DATA_RULE = f"group data of pyinfra is refused next to hosts(), which would not validate it: {DECLARE}"


def find_foreign_data(data: Any) -> Problem | None:
    """The problems of host data that `hosts` has not made."""
    if isinstance(data, dict) and {"name", "inventory", "entry"} == set(data) - {"watched", "fleet"}:
        return None
    return Problem("host data", "rig", "was not made by rigwright.inventory.hosts(); was it overridden?")


def describe_group_data(key: str, known: Collection[str]) -> str:
    """The text of a key in data of a group."""
    near = "" if key in known else suggestion(key, known)
    return GROUP_DATA_RULE + near


def is_rig_key(key: str, known: Collection[str]) -> bool:
    """Whether a name in a file of a group is, or may be meant as, a key of a rig or of pyinfra; else it is a variable
    of the operator's own deploys.
    """
    return key.startswith(("ssh_", "_")) or key == "rig" or bool(difflib.get_close_matches(key, known, n=1, cutoff=0.7))


def find_undeclared_data(
    file: str,
    groups: Mapping[str, Mapping[str, object]],
    hosts: Mapping[str, tuple[str, Mapping[str, object]]],
    known: Collection[str],
) -> list[Problem]:
    """Data that reaches pyinfra from an inventory although `hosts()` did not validate it.

    Args:
        file: The inventory, for messages.
        groups: Group -> the data of all its hosts.
        hosts: Host -> a group that it is in, and its own data from all groups.
        known: Keys of a rig, for suggestions.
    """
    found = [
        Problem(file, f"{group}.{key}", describe_group_data(str(key), known))
        for group, data in groups.items()
        for key in data
    ]
    for host, (group, data) in hosts.items():
        rig = data.get("rig")
        made = MADE.get((str(rig.get("inventory")), host)) if isinstance(rig, dict) else None
        if made is None:
            text = f"was not made by hosts(), or was overridden: declare it there, as hosts({{{host!r}: {{...}}}})"
            found.append(Problem(file, f"{group}: {host}", text))
            continue
        for key in dict.fromkeys([*made, *data]):
            if key not in data or key not in made or not _is_equal(data[key], made[key]):
                text = f"was changed after hosts() validated the rig, by {group} or code below it: {DECLARE}"
                near = "" if key in known or key in made else suggestion(str(key), known)
                found.append(Problem(file, f"{host}.{key}", text + near))
    return found


def find_inventory_data_problems(file: str, inventory: Any, known: Collection[str]) -> list[Problem]:
    """Data in pyinfra's inventory that `hosts()` did not validate.

    Args:
        file: The inventory, for messages.
        inventory: The inventory, as pyinfra has it (`pyinfra.api.Inventory`).
        known: Keys of a rig.
    """
    # with variables from files of groups; a group without hosts has the data of its file alone
    groups = {
        group: {key: value for key, value in data.items() if is_rig_key(str(key), known)}
        for group, data in (("all", inventory.data), *inventory.group_data.items())
        if group == "all" or inventory.groups.get(group)
    }
    hosts = {one.name: (next(iter(one.groups), "all"), inventory.host_data[one.name]) for one in inventory}
    return find_undeclared_data(file, groups, hosts, known)


def _is_equal(one: object, other: object) -> bool:
    if isinstance(one, partial) and isinstance(other, partial):
        return (one.func, one.keywords) == (other.func, other.keywords)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_equal(value, other[key]) for key, value in one.items())
    return one is other or (type(one) is type(other) and one == other)
