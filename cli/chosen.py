"""What a box that was looked at is to serve: the three questions of `rigwright variants`, asked there or given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import click

from cli.tables import say
from rigwright.declaration.choice import Asked, choices, nothing
from rigwright.model.catalog import Catalog
from rigwright.model.engines.purpose import NEEDS, WORKLOADS, Need, Workload
from rigwright.problems import counted
from rigwright.survey.findings import Survey
from rigwright.survey.suggest import Offer, card_names, taken_cards

NOTHING = "nothing yet"
One = TypeVar("One")


@dataclass(frozen=True)
class Wish:
    """What its operator has said of it."""

    variant: str | None = None
    need: Need | None = None
    workload: Workload | None = None
    cards: int | None = None
    """How many cards it may have; None for all that are free."""

    @property
    def chooses(self) -> bool:
        """Whether a variant follows from it without a question."""
        return self.variant is not None or self.need is not None or self.workload is not None


def chosen(
    wish: Wish, survey: Survey, catalog: Catalog, offered: Callable[[str], Offer], *, asks: bool
) -> Offer | None:
    """What the box serves: what was asked for, what an answer says, or nothing yet.

    Args:
        wish: What was asked for on the command line.
        survey: The box.
        catalog: What it may serve.
        offered: What stands in the way of a variant there.
        asks: Whether somebody is there who can answer.

    Raises:
        click.ClickException: what was asked for does not fit the box; the text says why.
    """
    if wish.variant is not None:
        one = offered(wish.variant)
        if one.refusal:
            raise click.ClickException(f"--variant {wish.variant} does not fit this box: {one.refusal}")
        return one
    if not wish.chooses:
        return _picked(_asked(wish, survey, catalog), survey, catalog, offered) if asks else None
    offers = [offered(name) for name in _answering(wish, survey, catalog)]
    if best := next((one for one in offers if not one.refusal), None):
        return best
    if not offers:
        raise click.ClickException(nothing(catalog, tuple(_free(survey, catalog)[: wish.cards])))
    said = "; ".join(f"{one.variant}: {one.refusal}" for one in offers)
    raise click.ClickException(f"what answers that does not fit this box: {said}")


def _free(survey: Survey, catalog: Catalog) -> list[frozenset[str]]:
    """Of each card that nobody computes on the catalogue's names: two that mean the same board are both its."""
    names, taken, known = card_names(survey, catalog), taken_cards(survey), catalog.cards

    def board(name: str) -> tuple[object, ...]:
        return known[name].pci_ids, known[name].vram_mib

    return [
        frozenset(other for other in known if board(other) == board(name))
        for number, name in enumerate(names)
        if number not in taken
    ]


def _answering(wish: Wish, survey: Survey, catalog: Catalog) -> tuple[str, ...]:
    """Variants that answer, the best first."""
    free = _free(survey, catalog)
    return choices(catalog, Asked(wish.need, wish.workload, tuple(free[: wish.cards])))


def _asked(wish: Wish, survey: Survey, catalog: Catalog) -> Wish:
    """The three questions."""
    need = _one_of("What counts most?", NEEDS, "nothing above all")
    workload = _one_of("What is it for?", {one: one for one in WORKLOADS}, "all kinds of things")
    free = len(_free(survey, catalog))
    cards = wish.cards
    if free and cards is None:
        cards = click.prompt(f"How many of {counted(free, 'free card')}?", type=click.IntRange(0, free), default=free)
    return replace(wish, need=need, workload=workload, cards=cards)


def _one_of(question: str, values: Mapping[One, str], none: str) -> One | None:
    """One of some values, each with its words, by its number."""
    say(f"\n{question}\n  0  {none}")
    for number, words in enumerate(values.values(), start=1):
        say(f"  {number}  {words}")
    answer: int = click.prompt("Number", type=click.IntRange(0, len(values)), default=0)
    return list(values)[answer - 1] if answer else None


def _picked(wish: Wish, survey: Survey, catalog: Catalog, offered: Callable[[str], Offer]) -> Offer | None:
    """One of those that answer, the best of them unless another number is given."""
    offers = [offered(name) for name in _answering(wish, survey, catalog)]
    fitting = [one for one in offers if not one.refusal]
    for one in offers:
        if one.refusal:
            say(f"does not fit: {one.variant}: {one.refusal}")
    if not fitting:
        if not offers:
            say(nothing(catalog, tuple(_free(survey, catalog)[: wish.cards])))
        say("Nothing is served yet.")
        return None
    say(f"\nWhat shall it serve?\n  0  {NOTHING}")
    for number, one in enumerate(fitting, start=1):
        say(f"  {number}  {_line(one, catalog)}")
        if purpose := catalog.variants[one.variant].purpose:
            say(f"     {purpose.why}")
    answer = click.prompt("Number", type=click.IntRange(0, len(fitting)), default=1 if wish.chooses else 0)
    return fitting[answer - 1] if answer else None


def _line(one: Offer, catalog: Catalog) -> str:
    variant = catalog.variants[one.variant]
    cards = f"cards {', '.join(map(str, one.cards))}" if one.cards else "CPU"
    requests, tokens = variant.capacity or (0, 0)
    sized = f", {requests} at once with {tokens} tokens each" if requests else ""
    return f"{one.variant}: {cards}{sized}; {variant.evidence.kind if variant.evidence else 'evidence: none given'}"
