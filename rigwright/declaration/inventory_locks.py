"""Groups of an inventory's own lock that root would run: each only where the rig allows it by name."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE
from rigwright.model.nvidia.driver_tables import DRIVER
from rigwright.model.resolution import Refuse
from rigwright.problems import suggestion
from rigwright.supply.lock import Lock
from rigwright.supply.root_programs import LOCKED_GROUPS, is_run_as_root

TABLE = "locks."
"""What names of groups begin with in a rig's `allow`."""


def refuse_inventory_locks(lock: Lock, packages: Collection[str], allowed: Sequence[str], refuse: Refuse) -> None:
    """Refuse rows of the inventory's own lock that root would run unless `allow` names their group, and names in
    `allow` that no group can have.

    Args:
        lock: The rig's.
        packages: The groups of distribution packages that the rig uses; an inventory may have others for other rigs.
        allowed: The rig's `allow`.
        refuse: Is given the key and what is wrong with it.
    """
    own = {group for group in lock.overrides if is_run_as_root(lock.groups[group])}
    for group in sorted(own & {*LOCKED_GROUPS, *packages}):
        if f"{TABLE}{group}" in allowed:
            continue
        shipped = group in LOCKED_GROUPS
        why = "root runs what they install" if shipped else "root installs these packages and runs their scripts"
        instead = "; or remove those rows to use the shipped ones" if shipped else ""
        refuse(
            "allow",
            f"{group} has rows in locks/ next to the inventory, and {why}: if you trust their author, add "
            f'"allow": ["{TABLE}{group}"]{instead}',
        )
    known = [f"{TABLE}{group}" for group in sorted({*LOCKED_GROUPS, TOOLKIT_ARCHIVE, *own})]
    for index, key in enumerate(allowed):
        if (
            key.startswith(TABLE)
            and key not in known
            and not key.startswith((f"{TABLE}{DRIVER}", f"{TABLE}{DOCKER_ARCHIVE}-"))
        ):
            refuse(
                f"allow[{index}]",
                f'"{key}" is no group whose programs root runs: one of {", ".join(known)}, {TABLE}{DRIVER}SYSTEM '
                f"and {TABLE}{DOCKER_ARCHIVE}-SYSTEM{suggestion(key, known)}",
            )
