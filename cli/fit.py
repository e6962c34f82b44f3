"""`rigwright fit`: whether instances, another variant or a model fit into memory, by measured starts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence

import click

from cli.exit_codes import InvalidRequest, print_unreached
from cli.inventory_loading import load_host_rig, load_hosts, optional_inventory
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
    INVENTORY. Contacts hosts only with --accept. Exit status: 0, all fit, or are unknown. 1, one may not fit.
    2, the command or a file is refused. 3, a host was not reached.
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


def _print_rows(rows: Sequence[FitRow]) -> None:
    print_table(COLUMNS, [row.as_cells() for row in rows])
    for row in rows:
        if row.ram_description:
            print_prose(f"{row.rig}: {row.instance} {row.ram_description}")
