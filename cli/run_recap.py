"""The recap of a run over hosts: a line for each on a pipe, one table on a terminal, hosts that failed last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click

from cli.tables import format_size, is_terminal, print_prose, print_table
from rigwright.host_selection import format_hosts, is_many
from rigwright.problems import format_count

RESULTS = ("unchanged", "changed", "failed", "not reached")
"""In the order in which they are shown."""
TOOK = "\N{NULL}"
"""Stands for the seconds of hosts that are grouped."""
LEAST_BYTES = 10**6  # a smaller download is not listed


@dataclass(frozen=True)
class HostRecap:
    """The work of a run on one host."""

    host: str
    result: str
    """One of RESULTS."""
    changed: int = 0
    steps: int = 0
    seconds: float = 0.0
    repaired: int = 0
    services: Mapping[str, str] = field(default_factory=dict)
    """Service -> `started`, `restarted`, `reloaded` or `stopped`."""
    fetched_bytes: int = 0
    """By jobs that count bytes; apt's own downloads are not among them."""
    checks_passed: int | None = None
    """Of what a deploy owns; None where they did not run."""
    checks_failed: int = 0


def print_recap(rows: Sequence[HostRecap], verb: str = "changed") -> None:
    """Print what a run did, or with the verb `would change` what it would do.

    Args:
        rows: The hosts.
        verb: The verb of the steps.
    """
    ordered = sorted(rows, key=lambda one: (RESULTS.index(one.result), one.host))
    if is_many(rows):
        for line in _group_recaps(ordered, verb):
            print_prose(line)
        return
    if len(rows) > 1 and is_terminal():
        click.echo()
        columns = ("host", "result", "steps", "services", "fetched", "minutes", "checks")
        print_table(columns, [_table_row(one) for one in ordered], broken="services")
        return
    for one in ordered:
        # the only host that failed has its own error
        if len(rows) > 1 or one.result in ("changed", "unchanged"):
            print_prose(f"{one.host}: {_describe_recap(one, verb, f'{one.seconds:.1f} s')}")


def _group_recaps(rows: Sequence[HostRecap], verb: str) -> list[str]:
    """A line for hosts with the same recap, each with the range of their seconds."""
    groups: dict[str, list[HostRecap]] = {}
    for one in rows:
        groups.setdefault(_describe_recap(one, verb, TOOK), []).append(one)
    lines = []
    for text, hosts in groups.items():
        least, most = (f"{limit(one.seconds for one in hosts):.1f}" for limit in (min, max))
        took = f"{least} s" if least == most else f"{least} to {most} s"
        lines.append(f"{format_hosts([one.host for one in hosts])}: {text.replace(TOOK, took)}")
    return lines


def _describe_recap(one: HostRecap, verb: str, took: str) -> str:
    if one.result == "not reached":
        return one.result
    if one.result == "failed" and not one.steps:
        return "failed before its first step"
    if one.result == "failed":
        return f"failed; {one.changed} of {format_count(one.steps, 'step')} {verb} something ({took})"
    if one.result == "unchanged":
        return f"nothing to do ({format_count(one.steps, 'step')}, {took})"
    repairs = f"{format_count(one.repaired, 'repair')}, " if one.repaired else ""
    more = [
        _describe_services(one.services),
        f"fetched {format_size(one.fetched_bytes)}" if one.fetched_bytes >= LEAST_BYTES else "",
        f"checks {_describe_checks(one)}" if one.checks_passed is not None else "",
    ]
    changes = f"{repairs}{one.changed} of {format_count(one.steps, 'step')} {verb} something ({took})"
    return "; ".join([changes, *filter(None, more)])


def _table_row(one: HostRecap) -> tuple[str, ...]:
    if one.result == "not reached":
        return (one.host, one.result)
    return (
        one.host,
        one.result,
        f"{one.changed}/{one.steps}",
        _describe_services(one.services),
        format_size(one.fetched_bytes) if one.fetched_bytes >= LEAST_BYTES else "",
        f"{one.seconds / 60:.1f}",
        _describe_checks(one),
    )


def _describe_services(services: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {verb}" for name, verb in sorted(services.items()))


def _describe_checks(one: HostRecap) -> str:
    if one.checks_passed is None:
        return ""
    parts = [f"{one.checks_passed} ok", f"{one.repaired} repaired" if one.repaired else ""]
    return ", ".join(filter(None, [*parts, f"{one.checks_failed} failed" if one.checks_failed else ""]))
