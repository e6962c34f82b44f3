"""The cards of an inventory's entry: names of the catalogue, and those that are reserved."""

from __future__ import annotations

import re

from rigwright.model.inventory_feature import EntryDraft, Feature, Fields, RigDraft
from rigwright.problems import describe_unknown, format_count
from rigwright.validated_types import CARD_REFERENCE


def _validate_cards(draft: EntryDraft) -> Fields:
    """Refuse to lend a card that is not there, or one twice."""
    reserved_gpus, present = draft.entry.reserved_gpus, draft.card_count
    for index, card in enumerate(reserved_gpus):
        if card >= present:
            draft.refuse(
                f"reserved_gpus[{index}]",
                f"no card {card}: the rig declares {format_count(present, 'card')}, counted from 0",
            )
        elif card in reserved_gpus[:index]:
            draft.refuse(f"reserved_gpus[{index}]", f"card {card} is already listed")
    return {"reserved_gpus": tuple(sorted(reserved_gpus))}


def _resolve_cards(draft: RigDraft) -> Fields:
    known = draft.catalog.cards
    declared = draft.data.get("cards")
    for index, card in enumerate(declared if isinstance(declared, list | tuple) else draft.entry.cards):
        if isinstance(card, str) and card not in known and CARD_REFERENCE.fullmatch(card):
            # nvidia-smi prints the maker first
            spelling = re.sub(r"(?i)^(?:(?:nvidia|geforce|quadro|tesla)[ -]+)*", "", card)
            draft.refuse(f"cards[{index}]", describe_unknown("card", card, known, spelling))
    cards = (known.get(card) if isinstance(card, str) else card for card in draft.entry.cards)
    return {"cards": tuple(card for card in cards if card)}


CARDS = Feature("cards", _validate_cards, _resolve_cards)
