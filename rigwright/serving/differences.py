"""What of an instance a deploy changes, as its operator wrote it: flags, variables, and the rest of its unit."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from itertools import zip_longest

from rigwright.host import channel
from rigwright.host.channel import text, tolerant, unit
from rigwright.problems import printable
from rigwright.serving.units import DIGEST_VARIABLE, ENV, Unit

SCHEMA: channel.Schema = {"written": (tolerant(unit), text, text)}
"""What templates/look/written.sh.j2 tells: a unit, its file and its environment."""
LISTED = 6
"""Changes of an instance that are said; the others are counted."""
LONGEST = 200  # characters of one


Written = Mapping[str, tuple[str, str]]
"""Unit of the current generation -> its file and its environment."""


def parse(output: Iterable[str]) -> Written:
    """Read what a host has told.

    Raises:
        ValueError: it told something else.
    """
    told = channel.read(output, SCHEMA)
    return {name: (file, variables) for name, file, variables in told.many("written") if name}


def changes(new: Unit, file: str, variables: str) -> list[str]:
    """How a unit differs from the one that is written: `+ --temp 0.2`, `--ctx-size 4096 -> 8192` and the like.

    Args:
        new: What it is to be.
        file: The unit file that is there.
        variables: Its environment file.
    """
    (had, before), (has, after) = _command(file), _command(new.text)
    said = _compared(_flags(before), _flags(after))
    said += _compared(_variables(variables) | _given(had), _variables(new.environment) | _given(has))
    if not said and new.environment != f"{variables.rstrip()}\n":
        said.append("other weights or inputs")
    if _rest(file) != _rest(new.text):
        said.append("settings of its unit")
    listed = [printable(one)[:LONGEST] for one in said[:LISTED]]
    return [*listed, f"{len(said) - LISTED} more"] if said[LISTED:] else listed


def down(seconds: float | None) -> str:
    """`about 8 s down`, of how long its last start took."""
    return f"about {max(round(seconds), 1)} s down" if seconds is not None else "down while it loads"


def _compared(before: Mapping[str, tuple[str, ...]], after: Mapping[str, tuple[str, ...]]) -> list[str]:
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


def _command(file: str) -> tuple[list[str], list[str]]:
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


def _flags(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
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


def _variables(text: str) -> dict[str, tuple[str, ...]]:
    return {name: value for name, value in _given(text.splitlines()).items() if name != DIGEST_VARIABLE}


def _given(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    return {name: (f"={value}",) for name, _, value in (line.partition("=") for line in lines)}


def _rest(file: str) -> list[str]:
    return [line for line in file.rstrip().splitlines() if not line.startswith("ExecStart=")]
