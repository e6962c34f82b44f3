"""What of an instance a deploy changes, as its operator wrote it: flags, variables, and the rest of its unit."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from itertools import zip_longest

from rigwright.host import script_output
from rigwright.host.script_output import text, tolerant, unit
from rigwright.problems import printable
from rigwright.serving.instance_units import DIGEST_VARIABLE, ENV, InstanceUnit

SCHEMA: script_output.Schema = {"written": (tolerant(unit), text, text)}
"""What templates/look/written.sh.j2 tells: a unit, its file and its environment."""
LISTED = 6
"""Changes of an instance that are said; the others are counted."""
LONGEST = 200  # characters of one


WrittenUnits = Mapping[str, tuple[str, str]]
"""Unit of the current generation -> its file and its environment."""


def parse_written_units(output: Iterable[str]) -> WrittenUnits:
    """Read what a host has told.

    Raises:
        ValueError: it told something else.
    """
    told = script_output.parse_output(output, SCHEMA)
    return {name: (file, variables) for name, file, variables in told.many("written") if name}


def describe_unit_changes(new: InstanceUnit, file: str, variables: str) -> list[str]:
    """How a unit differs from the one that is written: `+ --temp 0.2`, `--ctx-size 4096 -> 8192` and the like.

    Args:
        new: What it is to be.
        file: The unit file that is there.
        variables: Its environment file.
    """
    (had, before), (has, after) = _parse_command(file), _parse_command(new.text)
    said = _describe_differences(_parse_flags(before), _parse_flags(after))
    said += _describe_differences(
        _parse_variables(variables) | _parse_assignments(had),
        _parse_variables(new.environment) | _parse_assignments(has),
    )
    if not said and new.environment != f"{variables.rstrip()}\n":
        said.append("other weights or inputs")
    if _other_lines(file) != _other_lines(new.text):
        said.append("settings of its unit")
    listed = [printable(one)[:LONGEST] for one in said[:LISTED]]
    return [*listed, f"{len(said) - LISTED} more"] if said[LISTED:] else listed


def describe_downtime_seconds(seconds: float | None) -> str:
    """`about 8 s down`, of how long its last start took."""
    return f"about {max(round(seconds), 1)} s down" if seconds is not None else "down while it loads"


def _describe_differences(before: Mapping[str, tuple[str, ...]], after: Mapping[str, tuple[str, ...]]) -> list[str]:
    said = []
    for key in dict.fromkeys((*before, *after)):
        for old, new in zip_longest(before.get(key, ()), after.get(key, ())):
            if old == new:
                continue
            if old is None:
                said.append(f"+ {key}{new}")
            elif new is None:
                said.append(f"- {key}{old}")
            else:
                said.append(f"{key}{old} -> {new.strip(' =')}")
    return said


def _parse_command(file: str) -> tuple[list[str], list[str]]:
    """The variables that a unit's command is given alone, and its words."""
    lines = [line for line in file.splitlines() if line.startswith("ExecStart=")]
    try:
        words = shlex.split(lines[-1].partition("=")[2]) if lines else []
    except ValueError:
        words = []
    if words[:1] != [ENV]:
        return [], words
    begin = next((number for number, word in enumerate(words[1:], 1) if "=" not in word), len(words))
    return words[1:begin], words[begin:]


def _parse_flags(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Option -> its values, of a command; the program's own path counts as one."""
    found: dict[str, tuple[str, ...]] = {}
    key, values = "program", list[str]()
    for word in [*words, None]:
        if word is None or (word.startswith("-") and not word[1:2].isdigit()):
            found[key] = (*found.get(key, ()), "".join(f" {value}" for value in values))
            key, values = word or "", []
        else:
            values.append(word)
    return found


def _parse_variables(text: str) -> dict[str, tuple[str, ...]]:
    return {name: value for name, value in _parse_assignments(text.splitlines()).items() if name != DIGEST_VARIABLE}


def _parse_assignments(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    return {name: (f"={value}",) for name, _, value in (line.partition("=") for line in lines)}


def _other_lines(file: str) -> list[str]:
    return [line for line in file.rstrip().splitlines() if not line.startswith("ExecStart=")]
