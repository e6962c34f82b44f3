"""`rigwright show variants`: the variants of catalogues that fit a need and cards."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import click

from cli.inventory_loading import SuggestingChoice, load_host_rigs, load_hosts, optional_inventory
from cli.option_types import WholeNumber
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_prose, print_table
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.declaration.variant_selection import (
    ANY,
    VariantQuery,
    choose_variants,
    describe_no_match,
    find_missing_mirrors,
    select_addressed_variants,
)
from rigwright.inventory import layer_folders, load_for
from rigwright.model.catalog_schema import Card, Catalog
from rigwright.model.engine_schema import NEEDS, WORKLOADS
from rigwright.problems import Invalid, describe_unknown, format_count
from rigwright.project_root import ROOT

MAX_CARDS = 16
COLUMNS = ("variant", "cards", "for", "context", "evidence")


@click.command()
@optional_inventory("--card", "--cards")
@click.option(
    "--need", type=SuggestingChoice(tuple(NEEDS)), help="; ".join(f"{one}: {what}" for one, what in NEEDS.items())
)
@click.option("--workload", type=SuggestingChoice(WORKLOADS), help="Purpose to filter by.")
@click.option("--cards", type=WholeNumber(0, MAX_CARDS), help="Number of cards; with INVENTORY taken from its rigs.")
@click.option("--card", help="Card model, by its catalogue name.")
@LIMIT_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def variants(inventory: str | None, as_json: bool, limit: str | None, **given: Any) -> None:
    """List variants that fit a need and cards.

    With INVENTORY: variants of its catalogue too, for the unreserved cards of its rigs. Contacts no host and needs no
    lock. Exit status: 0, a variant fits. 1, none fits. 2, the command or a file is refused.
    Example: rigwright show variants --need context --cards 1 --card rtx-3090
    """
    try:
        catalog = load_catalog(layer_folders(Path(inventory), "catalog") if inventory else [ROOT / "catalog"])
    except Invalid as error:
        raise click.ClickException(str(error)) from None
    rows: list[dict[str, Any]] = []
    unlisted: dict[str, tuple[str, ...]] = {}
    for rig, (cards, mirrors) in _conditions_by_rig(inventory, limit, given["cards"], given["card"], catalog).items():
        query = VariantQuery(given["need"], given["workload"], cards)
        addressed = catalog if mirrors is None else select_addressed_variants(catalog, mirrors)
        found = [{"rig": rig, **row} for row in _variant_rows(addressed, query)]
        if not found:
            print_prose(f"{f'{rig}: ' if rig else ''}{describe_no_match(addressed, cards)}", err=True)
        rows += found
        if mirrors is not None:
            missing = find_missing_mirrors(catalog, mirrors)
            unlisted |= {name: missing[name] for name in choose_variants(catalog, query) if name in missing}
    blocked = {} if given["need"] or given["workload"] else catalog.blocked
    if inventory is not None:
        shown = {row["variant"] for row in rows}
        blocked = {name: one for name, one in blocked.items() if shown & {*one.alternative}}
    if as_json:
        gone = [{"variant": name, "why": one.why, "instead": list(one.alternative)} for name, one in blocked.items()]
        lacking = [{"variant": name, "mirrors": list(mirrors)} for name, mirrors in sorted(unlisted.items())]
        click.echo(json.dumps({"variants": rows, "blocked": gone, "unlisted": lacking}, indent=2))
    else:
        _print_variants(rows, bool(given["need"] or given["workload"]))
        for name, one in sorted(blocked.items()):
            print_prose(f"{name} {one.refusal}")
        if unlisted:
            listed = ", ".join(f"{name} ({' or '.join(mirrors)})" for name, mirrors in sorted(unlisted.items()))
            print_prose(f"not listed, for lack of a mirror that has their files: {listed}")
    sys.exit(0 if rows else 1)


def _conditions_by_rig(
    inventory: str | None, limit: str | None, count: int | None, card: str | None, catalog: Catalog
) -> dict[str, tuple[tuple[frozenset[str], ...] | None, Collection[str] | None]]:
    """Rig -> the cards that are free there, and its mirrors, None for a rig with a bundle.

    Without an inventory: one rig without a name.
    """
    if inventory is None:
        if limit is not None:
            raise click.UsageError("--limit names a host of INVENTORY")
        if card is not None and card not in catalog.cards:
            raise click.ClickException(f"--card: {describe_unknown('card', card, catalog.cards)}")
        if count is None and card is None:
            return {"": (None, ())}
        return {"": ((frozenset({card}) if card else ANY,) * (MAX_CARDS if count is None else count), ())}
    if count is not None or card is not None:
        raise click.UsageError("--cards and --card conflict with INVENTORY, whose rigs declare theirs")
    with load_for("lock"):
        rigs = load_host_rigs(load_hosts(inventory, limit))
    return {
        name: (
            tuple(_free_card_names(rig.cards, rig.reserved_gpus, catalog)),
            None if rig.bundle_folder else rig.network.mirrors,
        )
        for name, rig in rigs.items()
    }


def _free_card_names(
    cards: tuple[Card, ...], reserved_gpus: tuple[int, ...], catalog: Catalog
) -> Iterator[frozenset[str]]:
    """The names of each card that is not reserved."""
    for index, card in enumerate(cards):
        if index not in reserved_gpus:
            yield card_names(card, catalog)


def card_names(card: Card, catalog: Catalog) -> frozenset[str]:
    """The name of a card in a catalogue, and in nvidia-smi."""
    return frozenset(name for name, known in catalog.cards.items() if known == card) | {card.name}


def _variant_rows(catalog: Catalog, asked: VariantQuery) -> Iterator[dict[str, Any]]:
    for name in choose_variants(catalog, asked):
        one = catalog.variants[name]
        purpose = one.purpose
        yield {
            "variant": name,
            "cards": one.cards,
            "made_for": list(purpose.cards) if purpose else [],
            "needs": list(purpose.needs) if purpose else [],
            "workloads": list(purpose.workloads) if purpose else [],
            "context": one.capacity_text,
            "why": purpose.why if purpose else "",
            "evidence": one.evidence.model_dump(exclude_none=True) if one.evidence else None,
            "said": one.evidence.description if one.evidence else "none given",
        }


def _print_variants(rows: list[dict[str, Any]], asked: bool) -> None:
    """A table a rig; for a query, the first rig's reason before it."""
    for rig in dict.fromkeys(row["rig"] for row in rows):
        found = [row for row in rows if row["rig"] == rig]
        if asked:
            best = found[0]
            print_prose(f"{f'{rig}: ' if rig else ''}take {best['variant']}: {best['why']}\nevidence: {best['said']}\n")
        elif rig:
            click.echo(f"{rig}:")
        cells: list[tuple[str, ...]] = [
            (
                row["variant"],
                format_count(row["cards"], "card") if row["cards"] else "CPU",
                ", ".join((*row["needs"], *row["workloads"])),
                row["context"],
                row["evidence"]["kind"] if row["evidence"] else row["said"],
            )
            for row in found
        ]
        print_table(COLUMNS, cells, broken="for")
