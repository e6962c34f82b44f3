"""`rigwright fit`: whether instances, another variant or a model fit into memory, by measured starts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from cli.exit_codes import InvalidRequest, print_unreached
from cli.inventory_loading import load_host_rig, load_hosts, optional_inventory
from cli.option_types import JSON_OPTION, WholeNumber
from cli.shell_completion import INSTANCE_OPTION, LIMIT_OPTION
from cli.tables import print_prose, print_table
from rigwright.declaration.variant_selection import VariantSwitch, apply_switch
from rigwright.engines.known_issues import place_instance
from rigwright.engines.memory_assessment import MemoryAssessment, assess_memory, share_cards
from rigwright.engines.memory_fit import GIB, MIB
from rigwright.engines.memory_prediction import MeasuredMemory, predict_ram
from rigwright.memory_records import AcceptedRecords, UnreadableRecords, as_measurements, load_all_records
from rigwright.model.instance import Instance, patches_by_target
from rigwright.model.rig import Rig
from rigwright.problems import Invalid, describe_unknown, format_value

CARDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{1,3}){0,63}")
COLUMNS = ("rig", "instance", "variant", "place", "takes", "at most", "of", "", "from", "largest context", "parallel")


@dataclass(frozen=True)
class FitRow:
    """The answer for one instance."""

    rig: str
    instance: str
    variant: str
    place: str
    answer: MemoryAssessment | None
    """None where nothing is known of its model's memory."""
    ram: int | None = None
    """Bytes of RAM of an instance on cards; None if unknown."""
    free_ram: int = 0
    """Bytes of RAM that its box had; 0 if unknown."""

    @property
    def is_doubtful(self) -> bool:
        """Whether it is not certain to fit."""
        lacks_ram = bool(self.ram and self.free_ram and self.ram > self.free_ram)
        return lacks_ram or bool(self.answer and self.answer.verdict not in (None, "fits"))

    def as_cells(self) -> tuple[str, ...]:
        """It for the table."""
        head = (self.rig, self.instance, self.variant, self.place)
        if (found := self.answer) is None:
            return (*head, "", "", "", "unknown", "no header in the lock", "", "")
        made = found.prediction
        room = f"{sum(found.room) / GIB:.1f} GiB" if found.room else ""
        context = "" if found.largest_context is None else str(found.largest_context)
        parallel = "" if found.most_parallel is None else str(found.most_parallel)
        sizes = (f"{made.need / GIB:.1f} GiB", f"{made.safe / GIB:.1f} GiB", room)
        return (*head, *sizes, found.verdict or "room unknown", found.source, context, parallel)

    def as_json(self) -> dict[str, Any]:
        """It for programs, bytes."""
        head = {"rig": self.rig, "instance": self.instance, "variant": self.variant, "place": self.place}
        if (found := self.answer) is None:
            return {**head, "verdict": "unknown"}
        made = found.prediction
        return {
            **head,
            "verdict": found.verdict or "room unknown",
            "need": made.need,
            "safe": made.safe,
            "least": made.least,
            "need_per_card": list(made.per_card(made.need)),
            "room": list(found.room),
            "margin": found.margin,
            "basis": made.basis,
            "records": made.records,
            "moment": made.moment,
            "weights": found.computed.weights,
            "kv_cache": found.computed.cache,
            "context": found.computed.context,
            "parallel": found.computed.parallel,
            "largest_context": found.largest_context,
            "most_parallel": found.most_parallel,
            "ram": self.ram,
            "free_ram": self.free_ram or None,
        }


@click.command()
@optional_inventory("--gguf")
@click.argument("variant", required=False)
@click.option("--gguf", help="A model without a lock: a GGUF file, or OWNER/NAME/FILE of the hub.")
@click.option("--cards", help="GPU indexes of the box, such as 0,1; with --gguf names of cards. Empty: RAM.")
@click.option("--context", type=WholeNumber(256, 1 << 24), help="Tokens over all sequences.")
@click.option("--parallel", type=WholeNumber(1, 256), help="Sequences.")
@click.option("--accept", is_flag=True, help="Read the boxes' records first, and keep them next to INVENTORY.")
@LIMIT_OPTION
@INSTANCE_OPTION
@JSON_OPTION
def fit(
    inventory: str | None,
    variant: str | None,
    gguf: str | None,
    cards: str | None,
    context: int | None,
    parallel: int | None,
    accept: bool,
    limit: str | None,
    instance: tuple[str, ...],
    as_json: bool,
) -> None:
    """Predict memory from measured starts.

    For each instance of INVENTORY, or for VARIANT in its place: the memory that it takes, by which record, whether it
    fits, and the largest context and parallelism that certainly fit. Records are in memory/HOST.json next to
    INVENTORY. Contacts hosts only with --accept. Exit status: 0, all fit, or their room is unknown. 1, one does not
    fit for certain. 2, the command or a file is refused. 3, a host was not reached.
    Example: rigwright fit rig.py llamacpp/65k --instance chat --context 131072
    """
    if gguf is not None:
        if variant or accept or instance:
            raise click.UsageError("--gguf conflicts with VARIANT, --accept and --instance")
        from cli.fit_model import assess_model

        rows = [assess_model(gguf, cards, context, parallel, _load_records(inventory))]
        gone = None
    else:
        if inventory is None:
            raise click.UsageError("name an inventory, or a model with --gguf")
        gone = None
        if accept:
            from cli.fit_accept import accept_records

            gone = accept_records(inventory, limit, instance)
        rows = assess_inventory(inventory, limit, instance, variant, _parse_cards(cards), context, parallel)
    if as_json:
        click.echo(json.dumps({"schema": 1, "instances": [row.as_json() for row in rows]}, indent=2))
    else:
        _print_rows(rows)
    if gone:
        print_unreached(gone)
        sys.exit(3)
    sys.exit(int(any(row.is_doubtful for row in rows)))


def _parse_cards(cards: str | None) -> tuple[int, ...] | None:
    if cards is None:
        return None
    if cards and not CARDS.fullmatch(cards):
        raise click.UsageError(f"--cards: {format_value(cards)} is no list of GPU indexes, such as 0,1")
    return tuple(int(one) for one in cards.split(",")) if cards else ()


def _load_records(inventory: str | None) -> dict[str, AcceptedRecords]:
    try:
        return load_all_records(inventory) if inventory else {}
    except UnreadableRecords as error:
        raise InvalidRequest(str(error)) from None


def assess_inventory(
    inventory: str,
    limit: str | None,
    names: Sequence[str],
    variant: str | None,
    cards: tuple[int, ...] | None,
    context: int | None,
    parallel: int | None,
) -> list[FitRow]:
    """The answers for the instances of an inventory, or with another variant in the place of one.

    Raises:
        click.ClickException: the inventory, a name or a file of records is refused.
    """
    books = _load_records(inventory)
    measured = as_measurements(books)
    rows: list[FitRow] = []
    known: set[str] = set()
    for host, data in load_hosts(inventory, limit).items():
        rig = load_host_rig(host, data.get("rig"))
        known |= {one.name for one in rig.instances}
        chosen = [one for one in rig.instances if not names or one.name in names]
        if (variant or cards is not None) and chosen:
            rig = _switch_variant(host, data.get("rig"), chosen[0], variant, cards)
            chosen = [one for one in rig.instances if one.name == chosen[0].name]
        rows += assess_rig(host, rig, chosen, measured, books.get(host), context, parallel)
    if wrong := [f"--instance: {describe_unknown('instance', name, known)}" for name in names if name not in known]:
        raise InvalidRequest("\n".join(wrong))
    return rows


def _switch_variant(
    host: str, data: object, instance: Instance, variant: str | None, cards: tuple[int, ...] | None
) -> Rig:
    switch = VariantSwitch(instance.name, variant or instance.variant_name, cards)
    try:
        return load_host_rig(host, apply_switch(data, switch))
    except Invalid as error:
        raise InvalidRequest(f"{host}: {error}") from None


def assess_rig(
    host: str,
    rig: Rig,
    chosen: Sequence[Instance],
    measured: Sequence[MeasuredMemory],
    book: AcceptedRecords | None,
    context: int | None = None,
    parallel: int | None = None,
) -> list[FitRow]:
    """The answers for instances of a rig, beside what its other instances take."""
    placed = {one.name: _place(rig, one) for one in rig.instances}
    needs = {}
    for name, one in placed.items():
        found = assess_memory(one, measured, ())
        parts = found.prediction.per_card(found.prediction.need) if found else ()
        needs[name] = dict(zip(one.instance.cards, parts, strict=False))
    totals = {index: card.vram_mib * MIB for index, card in enumerate(rig.cards)}
    free_ram = _free_ram(book)
    rows = []
    for one in chosen:
        left = share_cards(totals, needs, one.name)
        room = tuple(left[index] for index in one.cards) if one.cards else ((free_ram,) if free_ram else ())
        answer = assess_memory(placed[one.name], measured, room, context=context, parallel=parallel)
        ram = predict_ram(answer.computed, measured) if answer and one.cards else None
        place = ", ".join(f"{index}: {rig.cards[index].name}" for index in one.cards) or "RAM"
        rows.append(FitRow(host, one.name, one.variant_name, place, answer, ram, free_ram))
    return rows


def _place(rig: Rig, instance: Instance) -> Any:
    patches = patches_by_target(rig.instances, rig.envs, rig.toolkit.patches)
    return place_instance(
        instance, (rig.cards[index] for index in instance.cards), patches.get(instance.installed_as, ())
    )


def _free_ram(book: AcceptedRecords | None) -> int:
    """RAM that the box had in its latest record; 0 if unknown."""
    every = [one for records in book.instances.values() for one in records] if book else []
    return max(every, key=lambda one: one.moment).free_ram if every else 0


def _print_rows(rows: Sequence[FitRow]) -> None:
    print_table(COLUMNS, [row.as_cells() for row in rows])
    for row in rows:
        if row.ram and row.free_ram and row.ram > row.free_ram:
            print_prose(
                f"{row.rig}: {row.instance} takes {row.ram / GIB:.1f} GiB of RAM, and {row.free_ram / GIB:.1f} are free"
            )


def describe_measured(inventory: str, rigs: Mapping[str, Rig]) -> list[str]:
    """The measured statements about the instances of rigs that have records and do not certainly fit, a line each."""
    books = _load_records(inventory)
    measured = as_measurements(books)
    if not measured:
        return []
    rows = [
        row for host, rig in rigs.items() for row in assess_rig(host, rig, rig.instances, measured, books.get(host))
    ]
    return [
        f"{row.rig}: {row.instance} {row.answer.description}"
        for row in rows
        if row.answer and row.is_doubtful and row.answer.prediction.basis != "floor"
    ]
