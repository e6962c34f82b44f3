"""Groups of an inventory's own lock that root would run: each only where the rig allows it by name."""

from __future__ import annotations

from collections.abc import Sequence

from rigwright.model.feature import RELEASE, Feature, RigDraft
from rigwright.problems import suggestion
from rigwright.supply.root_programs import LOCKED_GROUPS, is_run_as_root

TABLE = "locks."
"""What names of groups begin with in a rig's `allow`."""


def refuse_inventory_locks(draft: RigDraft, features: Sequence[Feature]) -> None:
    """Refuse rows of the inventory's own lock that root would run unless `allow` names their group, and names in
    `allow` that no group can have.

    Args:
        draft: The rig, with the groups of packages that it uses; an inventory may have others for other rigs.
        features: Those that have such groups.
    """
    lock, allowed = draft.lock, draft.entry.allow
    own = {group for group in lock.overrides if is_run_as_root(lock.groups[group])}
    for group in sorted(own & {*LOCKED_GROUPS, *draft.package_groups}):
        if f"{TABLE}{group}" in allowed:
            continue
        shipped = group in LOCKED_GROUPS
        why = "root runs what they install" if shipped else "root installs these packages and runs their scripts"
        instead = "; or remove those rows to use the shipped ones" if shipped else ""
        draft.refuse(
            "allow",
            f"{group} has rows in locks/ next to the inventory, and {why}: if you trust their author, add "
            f'"allow": ["{TABLE}{group}"]{instead}',
        )
    groups = [group for feature in features for group in feature.root_groups]
    of_releases = [f"{TABLE}{group}" for group in groups if group.endswith(RELEASE)]
    prefixes = tuple(group.removesuffix(RELEASE) for group in of_releases)
    of_all = {group for group in groups if not group.endswith(RELEASE)}
    known = [f"{TABLE}{group}" for group in sorted({*LOCKED_GROUPS, *of_all, *own})]
    for index, key in enumerate(allowed):
        if key.startswith(TABLE) and key not in known and not key.startswith(prefixes):
            draft.refuse(
                f"allow[{index}]",
                f'"{key}" is no group whose programs root runs: one of {", ".join(known)}, '
                f"{' and '.join(of_releases)}{suggestion(key, known)}",
            )
