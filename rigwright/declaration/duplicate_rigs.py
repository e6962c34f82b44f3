"""Rigs of an inventory that are one machine, or have one name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address

from rigwright.address_types import canonical_host
from rigwright.declaration.connection import KEYS, describe_wrong_value
from rigwright.problems import Problem

Rigs = Sequence[tuple[str, dict[str, object]]]


def find_duplicates(file: str, group: Rigs, earlier: Rigs) -> list[Problem]:
    """Refuse two rigs that are one machine, each deploy of which would undo the other's, and two that have one name.

    Args:
        file: The inventory.
        group: The rigs.
        earlier: Those of other groups of it.
    """
    there: dict[tuple[str, ...], str] = {}
    names: dict[str, object] = {}
    found = []
    for name, data in (*earlier, *group):
        given = (data["rig"], {key: value for key, value in data.items() if key in KEYS})
        if names.setdefault(name, given) != given:
            found.append(Problem(file, name, "is declared twice with different keys: each rig needs its own name"))
        if any(describe_wrong_value(key, data[key]) for key in _PLACE if key in data):
            continue
        words = _machine_identity(name, data)
        if there.setdefault(words, name) != name:
            said = data.get("ssh_hostname", name)
            found.append(Problem(file, f"{name}.ssh_hostname", f"{said} is already the address of {there[words]}"))
    return found


# a name may be another machine's in another configuration file
_PLACE: dict[str, object] = {"ssh_hostname": "", "ssh_port": 22, "ssh_config_file": ""}


def _machine_identity(name: str, data: dict[str, object]) -> tuple[str, ...]:
    """The identity of a rig's machine, in every spelling of its address."""
    place = _PLACE | {key: data[key] for key in _PLACE if key in data}
    with suppress(ValueError):
        place["ssh_hostname"] = spelt = canonical_host(str(place["ssh_hostname"] or name))
        if spelt == "localhost" or ip_address(spelt).is_loopback:
            place["ssh_hostname"] = "localhost"
    return tuple(str(value) for value in place.values())
