"""Which variant to take: those of a catalogue that meet a need on given cards, the best first."""

from __future__ import annotations

from dataclasses import dataclass

from rigwright.engines import kinds
from rigwright.model.catalog import Catalog
from rigwright.model.engines.evidence import KINDS
from rigwright.model.engines.keys import VariantKeys
from rigwright.model.engines.purpose import Need, Purpose, Workload

# The names of a card of which nothing is said: it may be any.
ANY = frozenset[str]()


@dataclass(frozen=True)
class VariantQuery:
    """What somebody looks for."""

    need: Need | None = None
    workload: Workload | None = None
    cards: tuple[frozenset[str], ...] | None = None
    """Of each card that is free for it the names in the catalogue, or `ANY`; None for whatever it takes."""


def choose_variants(catalog: Catalog, asked: VariantQuery) -> tuple[str, ...]:
    """Names of the variants that answer, the best first.

    What is foremost for the need goes before what also meets it; then what has the stronger evidence, what needs no
    containers, and what leaves fewer cards idle.
    """

    def worth(name: str) -> tuple[object, ...]:
        variant = catalog.variants[name]
        engine = catalog.engines.get(variant.engine)
        return (
            _purpose(variant).needs.index(asked.need) if asked.need else 0,
            KINDS.index(variant.evidence.kind) if variant.evidence else len(KINDS),
            bool(engine and kinds()[engine.kind].container_engine),
            -variant.cards if asked.cards is not None else variant.cards,
            name,
        )

    return tuple(sorted((name for name, one in catalog.variants.items() if _is_match(one, asked)), key=worth))


def describe_no_match(catalog: Catalog, cards: tuple[frozenset[str], ...] | None) -> str:
    """What is said where no variant answers: what there is for the cards, whatever is asked of it.

    Args:
        catalog: Where none answers.
        cards: As in `Asked`.
    """
    others = [
        name for name in choose_variants(catalog, VariantQuery(cards=cards)) if _purpose(catalog.variants[name]).cards
    ]
    instead = f"for these cards: {', '.join(others)}" if others else "see docs/adding-a-model.md to add one"
    return f"no variant of the catalogue matches; {instead}"


def _purpose(variant: VariantKeys) -> Purpose:
    return variant.purpose or Purpose(why="its catalogue entry does not say")


def _is_match(variant: VariantKeys, asked: VariantQuery) -> bool:
    purpose = _purpose(variant)
    if asked.need and asked.need not in purpose.needs:
        return False
    if asked.workload and asked.workload not in purpose.workloads:
        return False
    if asked.cards is None:
        return True
    made_for = [names for names in asked.cards if not purpose.cards or names == ANY or names & {*purpose.cards}]
    return len(made_for) >= variant.cards
