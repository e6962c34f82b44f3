"""Types of numbers on the command line: finite, bounded, and in ASCII digits."""

from __future__ import annotations

import re

import click

from rigwright.problems import format_value
from rigwright.validated_types import LARGEST_NUMBER

DIGITS = re.compile(r"-?[0-9]{1,18}")
DECIMAL = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?")


class WholeNumber(click.IntRange):
    """A whole number within bounds. Python's `int` also takes `1_0`, spaces, and digits of other scripts."""

    def __init__(self, least: int, most: int = LARGEST_NUMBER) -> None:
        super().__init__(least, most)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse a number; refuse other texts, and numbers outside of the bounds."""
        number = int(str(value)) if DIGITS.fullmatch(str(value)) else None
        if number is None or not (self.min or 0) <= number <= (self.max or 0):
            self.fail(
                f"{format_value(value)} is refused: must be a whole number from {self.min} to {self.max}", param, ctx
            )
        return number


class DecimalNumber(click.FloatRange):
    """A finite number within bounds, with digits after the point or without. Python's `float` also takes `nan`."""

    def __init__(self, least: float, most: float) -> None:
        super().__init__(least, most)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a number; refuse other texts, and numbers outside of the bounds."""
        number = float(str(value)) if DECIMAL.fullmatch(str(value)) else None
        if number is None or not (self.min or 0) <= number <= (self.max or 0):
            self.fail(f"{format_value(value)} is refused: must be a number from {self.min} to {self.max}", param, ctx)
        return number
