"""`rigwright fit`: whether instances, another variant or a model fit into memory, by measured starts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence

import click

from cli.default_inventory import InventoryArgument, is_model
from cli.exit_codes import InvalidRequest, print_unreached
from cli.inventory_loading import InventoryPath, load_host_rig, load_hosts
from cli.option_types import JSON_OPTION, WholeNumber
from cli.shell_completion import INSTANCE_OPTION, LIMIT_OPTION
from cli.tables import print_prose, print_table
from rigwright.declaration.variant_selection import VariantSwitch, apply_switch
from rigwright.memory_answers import FitRow, assess_rig
from rigwright.memory_records import AcceptedRecords, UnreadableRecords, as_measurements, load_all_records
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.problems import Invalid, describe_unknown, format_value

CARDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{1,3}){0,63}")
COLUMNS = ("rig", "instance", "variant", "place", "GiB", "verdict", "from", "context", "parallel")


class FitTarget(InventoryPath):
    """The path of an inventory, or a model."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse any other path."""
        return value if is_model(value) else super().convert(value, param, ctx)


@click.command()
@click.argument("inventory", cls=InventoryArgument, type=FitTarget())
@click.argument("variant", metavar="[VARIANT|MODEL]", required=False)
@click.option("--cards", help="GPUs, such as 0,1; of MODEL their names. Empty: RAM.")
@click.option("--context", type=WholeNumber(256, 1 << 24), metavar="N", help="Tokens over all sequences.")
@click.option("--parallel", type=WholeNumber(1, 256), metavar="N", help="Sequences.")
@click.option("--accept", is_flag=True, help="First read the boxes' records and keep them.")
@LIMIT_OPTION
@INSTANCE_OPTION
@JSON_OPTION
def fit(
    inventory: str,
    variant: str | None,
    cards: str | None,
    context: int | None,
    parallel: int | None,
    accept: bool,
    limit: str | None,
    instance: tuple[str, ...],
    as_json: bool,
) -> None:
    """Predict memory from measured starts.

    Whether each instance fits, or VARIANT in its place, or MODEL: a GGUF file, OWNER/NAME/FILE.gguf of the hub, or a
    folder for vLLM; and the largest that does. Only --accept contacts hosts; records are in memory/HOST.json next to
    INVENTORY. Exit status: 0, fits or unknown. 1, may not fit. 2, refused. 3, not reached.
    Example: rigwright fit rig.py llamacpp/65k --context 131072
    """
    gone = None
    if is_model(inventory) or (variant and is_model(variant)):
        if accept or limit or instance or (is_model(inventory) and variant):
            raise click.UsageError("MODEL conflicts with VARIANT, --accept, --limit and --instance")
        from cli.fit_model import assess_model

        records = {} if is_model(inventory) else _load_records(inventory)
        rows = [assess_model(variant or inventory, cards, context, parallel, records)]
    else:
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


def _load_records(inventory: str) -> dict[str, AcceptedRecords]:
    try:
        return load_all_records(inventory)
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
    except (Invalid, click.ClickException) as error:
        text = error.message if isinstance(error, click.ClickException) else f"{host}: {error}"
        given = (
            "--cards" if variant is None else f"VARIANT {format_value(variant)}" + (" with --cards" if cards else "")
        )
        raise InvalidRequest(f"{given} in the place of {instance.name}: {text}") from None


def _print_rows(rows: Sequence[FitRow]) -> None:
    print_table(COLUMNS, [row.as_cells() for row in rows])
    for row in rows:
        if row.ram_description:
            print_prose(f"{row.rig}: {row.instance} {row.ram_description}")
        if row.first_start_description:
            print_prose(f"{row.rig}: {row.instance}: {row.first_start_description}")
        if row.answer and row.answer.prediction.failure:
            print_prose(f"{row.rig}: {row.instance} has failed: {row.answer.prediction.failure}")
    for name in dict.fromkeys(
        row.rig for row in rows if row.verdict == "room unknown" and not (row.gpus or row.free_ram)
    ):
        if name:
            print_prose(f"{name}: no record has the RAM that is free there: `fit --accept` reads the box's records")
    for name, text in dict.fromkeys((row.rig, row.reserve_description) for row in rows if row.answer):
        if text:
            print_prose(f"{name}: {text}" if name else text)
