"""The changes of a deploy to an instance, as its operator wrote it: flags, variables, and the rest of its unit."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePosixPath

from rigwright.host import script_output
from rigwright.host.script_output import text, tolerant, unit
from rigwright.host.systemd import LINKS
from rigwright.problems import printable
from rigwright.serving.instance_units import DIGEST_VARIABLE, ENV, InstanceUnit
from rigwright.serving.serving_state import ObservedUnit

SCHEMA: script_output.Schema = {"written": (tolerant(unit), text, text, text)}
"""The output of templates/look/written.sh.j2: a unit, its file, its environment and the paths of its weights."""
LISTED = 6
"""Changes of an instance that are listed; the others are counted."""
LONGEST = 200  # characters of one
LONGEST_SETTING = 60  # characters of a setting whose value is shown


@dataclass(frozen=True)
class WrittenUnit:
    """A unit of the current generation, as it is written on the host."""

    file: str
    environment: str
    weights: str
    """Paths of its weights, one a line."""


WrittenUnits = Mapping[str, WrittenUnit]
"""Unit of the current generation -> its files."""


@dataclass(frozen=True)
class ValueChange:
    """A flag, variable, setting or file with its value before and after; None where it is absent."""

    key: str
    before: str | None
    after: str | None

    def describe(self) -> str:
        """`+ --temp 0.2`, `- B=2`, `--ctx-size 4096 -> 8192`."""
        if self.before is None:
            return f"+ {self.key}{self.after}"
        if self.after is None:
            return f"- {self.key}{self.before}"
        return f"{self.key}{self.before} -> {self.after.strip(' =')}"


@dataclass(frozen=True)
class UnitDifference:
    """The difference between the declared unit of an instance and the one that is written: all inputs of its digest."""

    flags: tuple[ValueChange, ...] = ()
    variables: tuple[ValueChange, ...] = ()
    settings: tuple[ValueChange, ...] = ()
    """Of its unit file, beside the command."""
    weights: tuple[ValueChange, ...] = ()
    """Files by name."""
    is_weight_content: bool = False
    """Whether files of weights at the same paths have other content."""
    is_wording: bool = False
    """Whether the unit file has other text with the same meaning."""

    def describe(self) -> list[str]:
        """A text for each change; long ones are shortened, and many are counted."""
        changes = [one.describe() for one in (*self.flags, *self.variables)]
        changes += [f"weights {one.describe()}" for one in self.weights]
        changes += ["weights with other content"] if self.is_weight_content else []
        changes += dict.fromkeys(map(_describe_setting, self.settings))
        changes += ["other text of its unit with the same settings"] if self.is_wording else []
        listed = [printable(one)[:LONGEST] for one in changes[:LISTED]]
        return [*listed, f"{len(changes) - LISTED} more"] if changes[LISTED:] else listed


def parse_written_units(output: Iterable[str]) -> WrittenUnits:
    """Read what a host has told.

    Raises:
        ValueError: it told something else.
    """
    told = script_output.parse_output(output, SCHEMA)
    return {name: WrittenUnit(*files) for name, *files in told.many("written") if name}


def compare_units(new: InstanceUnit, written: WrittenUnit) -> UnitDifference:
    """The typed difference between a declared unit and the one that is written.

    Args:
        new: The declared one.
        written: The one on the host.
    """
    (had, before), (has, after) = _parse_command(written.file), _parse_command(new.text)
    flags = _find_changes(_parse_flags(before), _parse_flags(after))
    variables = _find_changes(
        _parse_variables(written.environment) | _parse_assignments(had),
        _parse_variables(new.environment) | _parse_assignments(has),
    )
    settings = _find_changes(_parse_settings(written.file), _parse_settings(new.text))
    weights = _find_changes(_parse_paths(written.weights), _parse_paths(new.weights)) if written.weights else ()
    # the digest is of these inputs and of the weights' content
    same = not (flags or variables or settings or weights)
    is_same_file = written.file.rstrip() == new.text.rstrip()
    moved = is_same_file and _digest_of(written.environment) != _digest_of(new.environment)
    return UnitDifference(flags, variables, settings, weights, same and moved, same and not is_same_file)


def describe_restart(process: ObservedUnit | None, started_from: str) -> str:
    """The cause of a restart of an instance whose declared unit is the written one.

    Args:
        process: Its process.
        started_from: SHA-256 of the declared unit's texts.
    """
    if process is None or process.state != "active":
        return f"it is {process.state if process else 'not loaded'}"
    if process.started_from != started_from:
        return "it was started from an earlier unit"
    if not process.key_current:
        return "its API key has changed"
    if not process.weights_current:
        return "its weights on disk have changed"
    return "another instance gets its port or cards"


def describe_downtime_seconds(seconds: float | None) -> str:
    """`about 8 s down`, of how long its last start took."""
    return f"about {max(round(seconds), 1)} s down" if seconds is not None else "down while it loads"


def _describe_setting(one: ValueChange) -> str:
    """A setting of a unit file; the lines by which a gateway is kept up to date stand for the gateway."""
    sides = [value for value in (one.before, one.after) if value is not None]
    if all(LINKS in value for value in sides):
        return "gateway " + ("added" if one.before is None else "removed" if one.after is None else "changed")
    if max(map(len, sides)) > LONGEST_SETTING:
        mark = "+ " if one.before is None else "- " if one.after is None else ""
        return f"unit: {mark}{one.key}"
    return f"unit: {one.describe()}"


def _find_changes(
    before: Mapping[str, tuple[str, ...]], after: Mapping[str, tuple[str, ...]]
) -> tuple[ValueChange, ...]:
    changes = []
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key, ()), after.get(key, ())
        # a value that is in both is no change, wherever it stands; where all are, the order is
        gone, came = [one for one in old if one not in new], [one for one in new if one not in old]
        pairs = zip_longest(gone, came) if gone or came else zip_longest(old, new)
        changes += [ValueChange(key, *pair) for pair in pairs if pair[0] != pair[1]]
    return tuple(changes)


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
    """Option -> its values, of a command; the program's own path counts as one, each of a launcher's fields as well."""
    words = list(words)
    found = {key: value for word in words for key, value in _parse_members(word).items()}
    key, values = "program", list[str]()
    for word in [*(word for word in words if not _parse_members(word)), None]:
        if word is None or (word.startswith("-") and not word[1:2].isdigit()):
            found[key] = (*found.get(key, ()), "".join(f" {value}" for value in values))
            key, values = word or "", []
        else:
            values.append(word)
    return found


def _parse_members(word: str) -> dict[str, tuple[str, ...]]:
    """Members of the settings of a launcher that takes fields and files as JSON; none of another word."""
    try:
        tables = json.loads(word) if word.startswith("{") else {}
    except (ValueError, RecursionError):
        return {}
    if tables.keys() != {"fields", "files"} or not all(isinstance(one, dict) for one in tables.values()):
        return {}
    return {key: (f" {json.dumps(value)}",) for table in tables.values() for key, value in table.items()}


def _parse_variables(text: str) -> dict[str, tuple[str, ...]]:
    return {name: value for name, value in _parse_assignments(text.splitlines()).items() if name != DIGEST_VARIABLE}


def _parse_assignments(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    return {name: (f"={value}",) for name, _, value in (line.partition("=") for line in lines)}


def _parse_settings(file: str) -> dict[str, tuple[str, ...]]:
    """Setting -> its values, of a unit file without its command and comments."""
    found: dict[str, tuple[str, ...]] = {}
    for line in file.splitlines():
        key, equals, value = line.partition("=")
        if equals and key not in ("ExecStart", "Description") and not line.startswith("#"):
            found[key] = (*found.get(key, ()), f"={value}")
    return found


def _parse_paths(weights: str) -> dict[str, tuple[str, ...]]:
    return {PurePosixPath(path).name: ("",) for path in weights.splitlines()}


def _digest_of(environment: str) -> tuple[str, ...]:
    return _parse_assignments(environment.splitlines()).get(DIGEST_VARIABLE, ())
