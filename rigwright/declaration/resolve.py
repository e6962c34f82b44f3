"""An inventory entry into a rig: each feature resolves its part, and mistakes are refused together."""

from __future__ import annotations

from collections.abc import Sequence

from rigwright.declaration.entry_validation import validate_entry
from rigwright.declaration.features import FEATURES
from rigwright.declaration.inventory_locks import refuse_inventory_locks
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.catalog import Catalog
from rigwright.model.feature import Feature, LoadPurpose, RigDraft
from rigwright.model.monitoring.scrape_targets import ScrapeTarget
from rigwright.model.rig import Rig
from rigwright.problems import Invalid
from rigwright.supply.lock import Lock


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
        catalog: What it names.
        lock: What that is made of.
        also: Keys that are valid beside these, for suggestions.
        making: What of it is only being made: its lock, its bundle, or nothing.
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
        lock=lock,
        requests={name: one.requirements for name, one in catalog.inputs.items() if one.kind in ("wheel", "conda")},
        **draft.fields,
    )
