"""Errors of inventories as Python programs: a line of the file, and the correction of common mistakes."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Mapping
from pathlib import Path

from rigwright.declaration.host_data import EARLIER_GROUPS
from rigwright.problems import describe_exception
from rigwright.safe_text import hide_tokens

IMPORT = "from rigwright.inventory import hosts"
EXAMPLE = 'rigs = hosts({"rig1": {"ssh_hostname": "192.0.2.7"}})'
FOREIGN_FORMATS = {
    ".toml": "TOML",
    **dict.fromkeys((".cfg", ".conf"), "an INI file with such a name"),
}
"""Suffix of files that other programs take for inventories -> their format."""
LONGEST_CODE = 120  # characters of a line that a message repeats
CONSTANTS = {"true": "True", "false": "False", "null": "None", "none": "None", "yes": "True", "no": "False"}


def describe_foreign_format(inventory: str) -> str:
    """Why a file in the format of another program is not an inventory; empty for another file."""
    if found := FOREIGN_FORMATS.get(Path(inventory).suffix.lower()):
        return (
            f"{found} is not an inventory: must be a Python file, NAME.py, with {IMPORT!r} and {EXAMPLE}; "
            "`rigwright init USER@HOST` writes one"
        )
    return ""


def describe_python_error(inventory: str, error: BaseException) -> str:
    """The line of an inventory at which Python ends, and the correction where it is known."""
    if isinstance(error, SyntaxError) and _is_same_file(error.filename, inventory):
        code = (error.text or "").strip()[:LONGEST_CODE]
        shown = f" in `{hide_tokens(code)}`" if code else ""
        return f"line {error.lineno}: {error.msg}{shown}{_syntax_hint(error)}"
    frames = [*traceback.extract_tb(error.__traceback__)]
    lines = [one.lineno for one in frames if _is_same_file(one.filename, inventory)]
    line = f"line {lines[-1]}: " if lines else ""
    # of a program that the inventory calls, the names are its own
    is_own = bool(frames) and _is_same_file(frames[-1].filename, inventory)
    return f"{line}{describe_exception(error)}{_name_hint(error) if is_own else ''}"


def _is_same_file(one: str | None, other: str) -> bool:
    return one is not None and os.path.abspath(one) == os.path.abspath(other)  # noqa: PTH100 (resolve() follows links)


def _syntax_hint(error: SyntaxError) -> str:
    if isinstance(error, TabError | IndentationError):
        return "; indent with spaces only, the same number in each line of a table"
    if "unterminated string" in error.msg:
        return "; a text ends with the quote that it begins with"
    if "closing parenthesis" in error.msg or "was never closed" in error.msg:
        return "; each {, [ and ( needs its }, ] and )"
    return '; text needs quotes, and a comma follows each entry: "ssh_hostname": "192.0.2.7",'


def _name_hint(error: BaseException) -> str:
    if isinstance(error, NameError) and (found := re.search(r"name '(\w{1,80})' is not defined", str(error))):
        name = found[1]
        if name == "hosts":
            return f"; the first line must be: {IMPORT}"
        return f"; Python has {CONSTANTS[name]}" if name in CONSTANTS else f'; text needs quotes: "{name}"'
    if isinstance(error, ImportError) and "'hosts'" in str(error):
        return f"; the first line must be: {IMPORT}"
    if isinstance(error, TypeError) and "hosts()" in str(error):
        return f"; hosts() takes one table: {EXAMPLE}"
    return ""


def describe_missing_group(variables: Mapping[str, object]) -> str:
    """Why the variables of an inventory name no hosts, and the correction; without variables, the correction."""
    if variables.get(EARLIER_GROUPS):
        return "; the result of hosts() needs a name without an underscore before it: rigs = hosts({...})"
    for name, value in variables.items():
        is_table = isinstance(value, dict) and bool(value) and all(isinstance(one, dict) for one in value.values())
        if is_table and not name.startswith("_"):
            return f"; {name} is a table: hosts() makes rigs of it: {name} = hosts({{...}}), after {IMPORT!r}"
    return f"; it must contain {IMPORT!r} and {EXAMPLE}; `rigwright init USER@HOST` writes such a file"
