"""Types of options: output files, kernels, and numbers that are finite, bounded and in ASCII digits."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from rigwright.local_files import suggest_path
from rigwright.problems import format_value

JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
DIGITS = re.compile(r"-?[0-9]{1,18}")
DECIMAL = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?")

RELEASE = re.compile(r"[a-z0-9][a-z0-9.+~-]{1,99}")


class OutputFile(click.Path):
    """A file that a command writes at its end: a place where it cannot is refused at the beginning."""

    def __init__(self, path_type: type | None = None, *, creates_folder: bool = False) -> None:
        super().__init__(dir_okay=False, path_type=path_type)
        self.creates_folder = creates_folder
        """Whether the command creates the folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a name that is too long, and a folder that does not exist or cannot be written to."""
        if fault := describe_write_fault(Path(value), creates_folder=self.creates_folder):
            self.fail(f"{format_value(str(value))} cannot be written: {fault}", param, ctx)
        return super().convert(value, param, ctx)


class OutputFolder(click.Path):
    """A folder that a command fills, and creates if it is missing: checked at the beginning, as an `OutputFile`."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a file, and a folder that cannot be created or written to."""
        if fault := describe_write_fault(Path(value) / "file", creates_folder=True):
            self.fail(f"{format_value(str(value))} cannot be written: {fault}", param, ctx)
        return super().convert(value, param, ctx)


class KernelRelease(click.ParamType[str]):
    """A kernel's release, as `uname -r` prints it."""

    name = "release"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse other words: apt reads more into some of them."""
        if not RELEASE.fullmatch(str(value)):
            self.fail(f"{format_value(str(value))} is no kernel release, such as 6.1.0-40-amd64", param, ctx)
        return str(value)


def describe_write_fault(place: Path, *, creates_folder: bool = False) -> str:
    """Why a file cannot be written; empty if it can.

    Args:
        place: Its path.
        creates_folder: Whether missing folders are created first.
    """
    folder = place.parent
    try:
        with suppress(FileNotFoundError):
            place.lstat()
        while creates_folder and not folder.exists():
            folder = folder.parent
        folder.stat()
        # devices and pipes are written to as they are
        if not os.access(folder, os.W_OK) and not (place.exists() and not place.is_file()):
            return f"the folder {folder} is not writable"
    except FileNotFoundError:
        return f"there is no folder {folder}{suggest_path(folder)}"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


class WholeNumber(click.IntRange):
    """A whole number within bounds. Python's `int` also takes `1_0`, spaces, and digits of other scripts."""

    def __init__(self, least: int, most: int) -> None:
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
