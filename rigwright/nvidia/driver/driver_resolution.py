"""The driver of an inventory's entry: its lock, and what its cards and the tables of drivers allow."""

from __future__ import annotations

from rigwright.model.inventory_feature import RELEASE, Feature, Fields, RigDraft
from rigwright.model.lock_coverage import describe_uncovered
from rigwright.model.nvidia_tables import DRIVER, PLACE, DriverSupply, DriverTables, bundled_debs, load_driver_tables
from rigwright.problems import format_count, format_value


def _resolve_driver(draft: RigDraft) -> Fields:
    driver, lock = draft.entry.driver, draft.lock
    tables = load_driver_tables(draft.folder)
    _refuse_driver(draft, tables)
    groups = _list_driver_groups(draft) if driver.managed else []
    for group in groups:
        if mismatch := describe_uncovered(group, "deb", draft.catalog.inputs, lock, draft.file):
            draft.refuse("driver.managed", mismatch)
    draft.package_groups += groups
    supply = DriverSupply(
        tables,
        {group.removeprefix(DRIVER): lock.groups.get(group, ()) for group in groups},
        {group.removeprefix(DRIVER): lock.keys[group] for group in groups if group in lock.keys},
        bundled=draft.entry.bundle is not None,
    )
    draft.release_artefacts.append(lambda system: bundled_debs(supply, system))
    return {"driver": driver, "driver_supply": supply}


def _list_driver_groups(draft: RigDraft) -> list[str]:
    """The groups of the lock of all drivers that the catalogue asks for or the lock has."""
    names = {name for name, one in draft.catalog.inputs.items() if one.kind == "deb" and name.startswith(DRIVER)}
    return sorted(names | {group for group in draft.lock.groups if group.startswith(DRIVER)})


def _refuse_driver(draft: RigDraft, known: DriverTables) -> None:
    """Refuse what the cards, or the tables of drivers, have no place for."""
    entry, present, refuse = draft.entry, draft.card_count, draft.refuse
    driver = entry.driver
    cards = [draft.catalog.cards.get(one) if isinstance(one, str) else one for one in entry.cards]
    if driver.managed and not present:
        refuse("driver.managed", "the rig declares no cards, so it needs no driver")
    for key in ("power_w", "clocks_mhz"):
        if getattr(driver, key) is not None and not present:
            refuse(f"driver.{key}", "the rig declares no cards, so it has no power limits or clocks")
    if driver.branch is not None and driver.branch < known.minimum:
        refuse("driver.branch", f"{driver.branch} is refused: must be at least {known.minimum}")
    elif driver.branch is not None and driver.branch not in known.known_branches:
        allowed = ", ".join(map(str, known.known_branches))
        refuse(
            "driver.branch",
            f"{driver.branch} is refused: must be a branch in {PLACE.name}: {allowed}; "
            f"{PLACE} next to the inventory replaces the list",
        )
    for key, listed in (("pcie_link_width", driver.pcie_link_width), ("power_w", driver.power_w)):
        if isinstance(listed, tuple) and listed and len(listed) != present:
            refuse(
                f"driver.{key}",
                f"{len(listed)} are listed, but the rig declares {format_count(present, 'card')}: one per card",
            )
    if missing := sorted({index for pair in driver.nvlinks for index in pair if index >= present}):
        refuse(
            "driver.nvlinks", f"no card {missing[0]}: the rig declares {format_count(present, 'card')}, counted from 0"
        )
    for index, card in enumerate(cards):
        generation = known.capability_generation(card.capability) if card else None
        if card and generation and driver.flavour and driver.flavour not in generation.flavours:
            refuse(
                "driver.flavour",
                f"{format_value(driver.flavour)} is refused for card {index}: {card.name} ({generation.name}) "
                f"only works "
                f"with {' or '.join(generation.flavours) or 'no supported'} modules",
            )
    for index, (card, limit) in enumerate(zip(cards, driver.power_limits(present), strict=False)):
        if card and card.power_w and limit is not None and not card.power_w[0] <= limit <= card.power_w[1]:
            refuse(
                "driver.power_w",
                f"{limit} W is refused for card {index}: {card.name} accepts {card.power_w[0]} to {card.power_w[1]} W",
            )


NVIDIA_DRIVER = Feature("nvidia_driver", resolve=_resolve_driver, root_groups=(f"{DRIVER}{RELEASE}",))
