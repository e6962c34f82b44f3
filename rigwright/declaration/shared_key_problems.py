"""Mistakes in keys that the rigs of an inventory share."""

from __future__ import annotations

import re

from rigwright.problems import Problem


def extract_shared_problems(
    file: str, entries: dict[object, object], shared: dict[str, object], found: dict[str, list[Problem]]
) -> set[Problem]:
    """Take mistakes in shared keys out of what was found of each rig, where all that have the key have them."""
    of_hosts: set[Problem] = set()
    for key in shared:
        users = [str(name) for name, own in entries.items() if isinstance(own, dict) and key not in own]
        told = {
            name: {
                Problem(file, f"hosts().{one.key.removeprefix(f'{name}.')}", one.text): one
                for one in found[name]
                if one.file == file and re.match(rf"{re.escape(f'{name}.{key}')}(?:[.\[]|\Z)", one.key)
            }
            for name in users
        }
        common = set.intersection(*(set(one) for one in told.values())) if told else set()
        of_hosts |= common
        for name in users:
            gone = {told[name][one] for one in common}
            found[name] = [one for one in found[name] if one not in gone]
    return of_hosts
