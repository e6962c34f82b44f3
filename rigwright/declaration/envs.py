"""A rig's environments, with what is locked for each."""

from __future__ import annotations

from rigwright.declaration.catalog import Catalog
from rigwright.declaration.entry import RigEntry
from rigwright.declaration.instances import Refuse
from rigwright.declaration.rig import DeclaredEnv
from rigwright.problems import unknown
from rigwright.supply.inputs import complaint
from rigwright.supply.lock import Kind, Lock


def declared_envs(
    entry: RigEntry, catalog: Catalog, lock: Lock, inventory: str, refuse: Refuse
) -> tuple[DeclaredEnv, ...]:
    """The environments that an entry names, by name; those that cannot be had are refused.

    Args:
        entry: The rig's.
        catalog: What it names.
        lock: What that is made of.
        inventory: The file, for messages.
        refuse: Told what is wrong.
    """
    found: dict[str, DeclaredEnv] = {}
    for index, name in enumerate(entry.envs):
        key = f"envs[{index}]"
        keys = catalog.envs.get(name)
        if keys is None:
            refuse(key, unknown("environment", name, catalog.envs))
            continue
        if name in found:
            refuse(key, f"{name} is there twice")
        if name in catalog.engines:
            refuse(key, f"{name} is an engine's name, too: what is installed would lie in one place")
        inputs: tuple[tuple[str, Kind], ...] = ((keys.python, "conda"), (keys.packages, "wheel"))
        for source, kind in inputs:
            if wrong := complaint(source, kind, catalog.inputs, lock, inventory):
                refuse(key, f"{name}: {wrong}")
        found[name] = DeclaredEnv(name, keys, lock.groups.get(keys.python, ()), lock.groups.get(keys.packages, ()))
    return tuple(found[name] for name in sorted(found))
