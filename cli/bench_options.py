"""Common options of benches' command lines."""

from __future__ import annotations

import re

import click

from cli.option_types import OutputFile

JSON_OPTION = click.option("--json", "file", type=OutputFile(), help="Also write all figures to this file.")


def parse_counts(context: click.Context, parameter: click.Parameter, value: str, most: int = 256) -> list[int]:
    """Different numbers, as an option has them.

    Args:
        context: click's.
        parameter: The option.
        value: Its text.
        most: The largest number.

    Raises:
        click.BadParameter: they are not.
    """
    words = value.split(",")
    are_counts = all(re.fullmatch("[0-9]{1,5}", word) and 1 <= int(word) <= most for word in words)
    if not are_counts or len(set(words)) != len(words):
        raise click.BadParameter(f"must be distinct numbers from 1 to {most}, comma-separated, such as 1,4,16")
    return [int(word) for word in words]
