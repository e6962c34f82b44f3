"""Resolution of an inventory's entry with catalogue and lock into a rig."""

from __future__ import annotations

from collections.abc import Sequence

from rigwright.declaration.entry_validation import validate_entry
from rigwright.declaration.features import FEATURES
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.catalog_schema import Catalog
from rigwright.model.inventory_feature import RELEASE, Feature, LoadPurpose, RigDraft
from rigwright.model.monitoring_schema import ScrapeTarget
from rigwright.model.rig import Rig
from rigwright.problems import Invalid, suggestion
from rigwright.supply.lock import Lock
from rigwright.supply.root_programs import LOCKED_GROUPS, is_run_as_root

TABLE = "locks."
"""The prefix of names of groups in a rig's `allow`."""


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
        why = "root runs their programs" if shipped else "root installs these packages and runs their scripts"
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
                f'"{key}" is not a group with programs that root runs: one of {", ".join(known)}, '
                f"{' and '.join(of_releases)}{suggestion(key, known)}",
            )


def resolve_rig(
    file: str,
    name: str,
    data: object,
    catalog: Catalog,
    lock: Lock,
    also: frozenset[str] = frozenset(),
    *,
    making: LoadPurpose = "",
    watched: tuple[ScrapeTarget, ...] = (),
    features: Sequence[Feature] = FEATURES,
) -> Rig:
    """Validate one inventory entry and resolve every name in it.

    Args:
        file: The inventory, for messages.
        name: The rig's name.
        data: Its entry.
        catalog: The catalogue of its names.
        lock: The lock of its inputs.
        also: Keys that are valid beside these, for suggestions.
        making: The part of it that is only being made: its lock, its bundle, or nothing.
        watched: The boxes of its inventory that it asks.
        features: The parts of the entry, each after those whose fields it reads.

    Raises:
        Invalid: with every mistake in the entry.
    """
    validated = validate_entry(file, name, data, also, features)
    draft = RigDraft(**vars(validated), catalog=catalog, lock=lock, purpose=making, scrape_targets=watched)
    for feature in features:
        draft.add_fields(feature.name, feature.resolve(draft))
    if not draft.is_locking:
        refuse_inventory_locks(draft, features)
    if draft.problems:
        raise Invalid(draft.problems)
    entry = draft.entry
    return Rig(
        name=name,
        inventory=file,
        roots=entry.roots,
        accounts=ServiceAccounts(entry.service_user),
        keep_generations=entry.keep_generations,
        maintenance_windows=entry.maintenance_windows,
        lock=lock,
        requests={name: one.requirements for name, one in catalog.inputs.items() if one.kind in ("wheel", "conda")},
        **draft.fields,
    )
