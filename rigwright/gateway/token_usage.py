"""Tokens that gateways have counted by day, key and model, as their hosts report them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rigwright.gateway.gateway_units import USAGE
from rigwright.host import script_output
from rigwright.render import render

LARGEST = 4 * 1024 * 1024  # bytes of a day's file: some 10,000 rows
NO_KEY = "-"
"""Stands for requests of listeners without keys."""
END = "end"
"""The last line of a day's file (templates/gateway/usage.lua); a file that was cut off has another one."""
_COUNT = r"(0|[1-9][0-9]{0,14})"
_ROW = re.compile(rf"([a-z0-9][a-z0-9-]{{0,47}}|-) ([\x21-\x7e]{{1,256}}) {' '.join([_COUNT] * 5)}")


@dataclass(frozen=True)
class TokenCounts:
    """Requests with an answer, and their tokens."""

    requests: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    """Of the input, as far as engines report it."""
    unknown: int = 0
    """Requests for which the engine reported no tokens, or only a part: most of them ended early."""

    def __add__(self, other: TokenCounts) -> TokenCounts:
        """Both together."""
        return TokenCounts(
            self.requests + other.requests,
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.unknown + other.unknown,
        )


@dataclass(frozen=True)
class UsageRow:
    """The counts of a key and a model on a day."""

    day: str
    """UTC."""
    key: str
    """Its name; `NO_KEY` without one."""
    model: str
    counts: TokenCounts


@dataclass(frozen=True)
class HostUsage:
    """The counts of a host."""

    rows: tuple[UsageRow, ...]
    damaged: tuple[str, ...]
    """Days whose file is cut off or invalid; none of their rows count."""


SCHEMA: script_output.Schema = {
    "day": (script_output.matching(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a day"), script_output.text)
}
"""The output of templates/look/usage.sh.j2."""

GROUPINGS: dict[str, Callable[[UsageRow], str]] = {
    "key": lambda row: row.key,
    "model": lambda row: row.model,
    "day": lambda row: row.day,
}


def render_usage_query(user: str, since: str) -> str:
    """The script that reads a host's counts.

    Args:
        user: The gateway's user.
        since: The first day, such as 2026-11-01.
    """
    return render("look/usage.sh.j2", prefix=USAGE, user=user, since=int(since.replace("-", "")), largest=LARGEST)


def parse_host_usage(output: Iterable[str]) -> HostUsage:
    """Read what that tells.

    Raises:
        ValueError: the host told something else.
    """
    rows: list[UsageRow] = []
    damaged: list[str] = []
    for day, text in script_output.parse_output(output, SCHEMA).many("day"):
        try:
            rows += parse_usage_file(day, text)
        except ValueError:
            damaged.append(day)
    return HostUsage(tuple(rows), tuple(damaged))


def parse_usage_file(day: str, text: str) -> list[UsageRow]:
    """Read a day's file.

    Raises:
        ValueError: it is cut off, or a line is not a row of its own.
    """
    *lines, last = text.removesuffix("\n").split("\n")
    if last != END:
        raise ValueError("its last line is missing")
    found: dict[tuple[str, str], UsageRow] = {}
    for line in lines:
        row = _ROW.fullmatch(line)
        if row is None or (row[1], row[2]) in found:
            raise ValueError("a line is not a row of its own")
        found[row[1], row[2]] = UsageRow(day, row[1], row[2], TokenCounts(*map(int, row.groups()[2:])))
    return list(found.values())


def sum_usage(rows: Iterable[UsageRow], by: str) -> dict[str, TokenCounts]:
    """The counts of all rows by one of `GROUPINGS`, sorted."""
    found: dict[str, TokenCounts] = {}
    for row in rows:
        name = GROUPINGS[by](row)
        found[name] = found.get(name, TokenCounts()) + row.counts
    return dict(sorted(found.items()))
