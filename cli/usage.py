"""`rigwright usage`: tokens of clients over all gateways of an inventory."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import asdict
from datetime import date, datetime, timezone
from functools import reduce
from operator import add

import click

from checks.connections import ConnectedHost, RigsByHost, map_inventory
from cli.exit_codes import exit_if_unreached, unreached_rows
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.option_types import JSON_OPTION
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_prose, print_table
from rigwright.gateway.token_usage import (
    GROUPINGS,
    NO_KEY,
    HostUsage,
    TokenCounts,
    parse_host_usage,
    render_usage_query,
    sum_usage,
)
from rigwright.problems import format_count, format_value

COLUMNS = ("requests", "input", "output", "cached", "unknown")


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@click.option("--by", type=click.Choice([*GROUPINGS]), default="key", show_default=True, help="What a row stands for.")
@click.option(
    "--since", metavar="DAY", help="The first day (UTC), such as 2026-11-01; default: the first of this month."
)
@JSON_OPTION
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
def usage(inventory: str, limit: str | None, by: str, since: str | None, as_json: bool, as_csv: bool) -> None:
    """Report tokens of clients.

    By key, model or day: the sum over all gateways of INVENTORY. `input` includes `cached`. `unknown` counts requests
    for which the engine reported no tokens, or only a part. A key of `-` stands for listeners without keys.
    Exit status: 0, all gateways answered. 1, a gateway's count is damaged. 2, the command or the inventory is refused.
    3, a host was not reached: its tokens are missing.
    Example: rigwright usage rig.py --by model --since 2026-11-01
    """
    first = _parse_day(since)
    if as_json and as_csv:
        raise click.UsageError("choose --json or --csv")

    def judge(rigs: RigsByHost) -> None:
        if not any(rig.gateway for rig in rigs.values()):
            raise click.ClickException(f"{inventory}: no host has a gateway")

    def read(box: ConnectedHost) -> HostUsage | None:
        if not box.rig.gateway:
            return None
        return box.run_and_parse(parse_host_usage, render_usage_query(box.rig.accounts.gateway, first))

    found, gone = map_inventory(inventory, limit, read, judge)
    hosts = {box.name: one for box, one in found if one}
    sums = sum_usage((row for one in hosts.values() for row in one.rows), by)
    if as_json:
        rows: list[dict[str, object]] = [{by: name, **asdict(one)} for name, one in sums.items()]
        click.echo(json.dumps([*rows, *unreached_rows(gone)], indent=2))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow((by, *COLUMNS))
        writer.writerows((name, *asdict(one).values()) for name, one in sums.items())
    else:
        _print_sums(by, sums, first, len(hosts))
    damaged = [f"{host}: {', '.join(one.damaged)}" for host, one in sorted(hosts.items()) if one.damaged]
    for line in damaged:
        print_prose(f"{line}: the gateway's count is damaged, and is missing here", err=True)
    exit_if_unreached(gone)
    if damaged:
        sys.exit(1)


def _print_sums(by: str, sums: dict[str, TokenCounts], first: str, boxes: int) -> None:
    rows = [(name, *(str(one) for one in asdict(counts).values())) for name, counts in sums.items()]
    if len(rows) > 1:
        total = reduce(add, sums.values(), TokenCounts())
        rows.append(("all", *(str(one) for one in asdict(total).values())))
    if rows:
        print_table((by, *COLUMNS), rows)
    print_prose(f"{'' if rows else 'no '}tokens since {first} (UTC), of {format_count(boxes, 'gateway')}", err=True)
    if by == "key" and NO_KEY in sums:
        print_prose(f"{NO_KEY}: listeners without keys", err=True)


def _parse_day(value: str | None) -> str:
    if value is None:
        return datetime.now(timezone.utc).date().replace(day=1).isoformat()
    try:
        if len(value) == len("2026-11-01"):
            return date.fromisoformat(value).isoformat()
    except ValueError:
        pass
    raise click.BadParameter(
        f"{format_value(value)} is refused: must be a day such as 2026-11-01", param_hint="--since"
    )
