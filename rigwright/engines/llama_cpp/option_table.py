"""llama-server's options, as the pinned version's own `--help` lists them, and whether flags are among them.

A snapshot is that text, unchanged, in catalog/flags/llama.cpp-VERSION-COMMIT.txt: COMMIT's first seven digits, and the
VERSION of the lock's artefact that the engine is compiled from. A new llama.cpp brings a new one:

    llama-server --help > catalog/flags/llama.cpp-VERSION-COMMIT.txt

`RENAMED` maps options that are gone to their successors, with the source.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from rigwright import local_files
from rigwright.problems import Invalid, Problem, suggestion

# common_arg::to_string() in llama.cpp's common/arg.cpp: help begins in column 40, on a line of its own after an
# option of more than 37 characters
HELP_COLUMN, OPTION_WIDTH = 40, 37
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?")
_LOAD_MODE = "llama.cpp's pull requests 20834 and 26135"
# Options that a version took and the next did not, without a line in its help: name -> today's name and value, source.
RENAMED = {
    "mlock": ("load-mode", "mmap+mlock", _LOAD_MODE),
    "mmap": ("load-mode", "mmap", _LOAD_MODE),
    "no-mmap": ("load-mode", "none", _LOAD_MODE),
    "direct-io": ("load-mode", "dio", _LOAD_MODE),
}

LARGEST = 4 << 20  # bytes of a help text; the one that is shipped has 59,000


@dataclass(frozen=True)
class LlamaOption:
    """One entry of the help."""

    spellings: tuple[str, ...]
    """With their dashes, those that switch it off included."""
    hint: str
    """The placeholder of its value, such as `N` or `[on|off|auto]`; empty for a bare one."""
    help: str
    allowed: tuple[str, ...]
    """The values it takes, where the help lists them."""
    several: bool
    """Whether a value may be several of them, separated by commas."""
    env: str
    """The environment variable that sets it too, or nothing."""

    @property
    def name(self) -> str:
        """Its first long spelling, without dashes."""
        return next((s for s in self.spellings if s.startswith("--")), self.spellings[0]).lstrip("-")

    @property
    def removal_note(self) -> str:
        """The help's text in its place, where it is listed only to be refused."""
        return self.help.partition("the argument has been removed. ")[2].partition(" (env:")[0]

    def describe_wrong_value(self, value: str | bool) -> str:
        """Why it does not take a value (True is no value), or nothing."""
        if value is True:
            return f"needs a value: {', '.join(self.allowed) or self.hint}" if self.hint else ""
        text = str(value)
        if not self.hint:
            return f'takes no value: write true instead of "{text}"'
        if re.fullmatch(r"[A-Z]+( [A-Z]+)+", self.hint):
            return f"takes {len(self.hint.split())} values, {self.hint}: a flag can have only one"
        if self.allowed:
            for part in text.split(",") if self.several else [text]:
                if part not in self.allowed:
                    return f'does not accept "{part}"{suggestion(part, self.allowed)}'
        elif self.hint == "N" and not NUMBER.fullmatch(text) and f"'{text}'" not in self.help:
            return f'takes a number, not "{text}"'
        return ""


@dataclass(frozen=True)
class LlamaSnapshot:
    """The options of one version of llama-server."""

    options: tuple[LlamaOption, ...]

    @cached_property
    def _spelled(self) -> dict[str, LlamaOption]:
        return {spelling: o for o in self.options for spelling in (*o.spellings, o.env) if spelling}

    def find(self, name: str) -> LlamaOption | None:
        """The option of a name without dashes, long or short, or of an environment variable."""
        return self._spelled.get(f"--{name}") or self._spelled.get(f"-{name}") or self._spelled.get(name)

    def names(self) -> list[str]:
        """The long names of what is not removed, without dashes."""
        return [s[2:] for o in self.options if not o.removal_note for s in o.spellings if s.startswith("--")]


def snapshot_file_name(version: str, commit: str) -> str:
    """The name of the file with an engine's options."""
    return f"llama.cpp-{version}-{commit[:7]}.txt"


def load_snapshot(path: Path) -> LlamaSnapshot:
    """Read a snapshot.

    Raises:
        Invalid: it cannot be read, or is not what `llama-server --help` prints.
    """
    try:
        made = parse_help(local_files.read_content(path, LARGEST).decode())
    except ValueError as error:
        raise Invalid([Problem(str(path), "the file", f"cannot be read: {error}")]) from error
    if not made.find("model"):
        raise Invalid([Problem(str(path), "the file", "is not the output of `llama-server --help`")])
    return made


@cache
def parse_help(text: str) -> LlamaSnapshot:
    """The options in a help text. Text of another layout is passed over."""
    entries: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if re.match(r"--?[A-Za-z0-9]", line):
            beside = len(line) > HELP_COLUMN and not line[OPTION_WIDTH:HELP_COLUMN].strip()
            head, first = (line[:OPTION_WIDTH], line[HELP_COLUMN:]) if beside else (line, "")
            entries.append((head.rstrip(), [first]))
        elif entries and line.startswith(" " * HELP_COLUMN):
            entries[-1][1].append(line[HELP_COLUMN:])
    return LlamaSnapshot(tuple(_parse_option(head, lines) for head, lines in entries))


def _parse_option(head: str, lines: list[str]) -> LlamaOption:
    spelled, *rest = re.split(r"(?<![,\s])\s+", head, maxsplit=1)
    hint, said = "".join(rest), " ".join(" ".join(lines).split())
    env = re.search(r"\(env: (\w+)\)", said)
    several = re.fullmatch(r"[a-z0-9-]+(,[a-z0-9-]+)+", hint) is not None
    return LlamaOption(
        spellings=tuple(re.split(r",\s+", spelled)),
        hint=hint,
        help=said,
        allowed=tuple(hint.split(",")) if several else tuple(_parse_allowed_values(hint, said, lines)),
        several=several,
        env=env[1] if env else "",
    )


def _parse_allowed_values(hint: str, said: str, lines: list[str]) -> Iterable[str]:
    """The values in `[on|off]`, `<0|1>` or `{a,b}`, after "allowed values:", or in a list of lines with a dash.

    The default is a value even where that list lacks it.
    """
    if choice := re.fullmatch(r"\[([\w-]+(?:\|[\w-]+)+)\]|<([\w-]+(?:\|[\w-]+)+)>|\{([\w-]+(?:,[\w-]+)+)\}", hint):
        return re.split(r"[|,]", choice[choice.lastindex or 1])
    if listed := re.search(r"allowed values: ([\w, -]+)", said):
        return listed[1].strip().split(", ")
    found = re.findall(r"^- (\S+?)(?: \(default\))?:", "\n".join(lines), re.MULTILINE)
    default = re.search(r"\(default: ([\w+-]+)\)", said)
    return dict.fromkeys([*found, *([default[1]] if found and default else [])])


def find_flag_problems(
    snapshot: LlamaSnapshot, flags: Mapping[str, str | bool], own: Collection[str] = ()
) -> dict[str, str]:
    """The problems of flags: name -> text, without those that are right.

    Args:
        snapshot: The options of the version that is served with.
        flags: Option without its dashes -> value, or True for a bare one.
        own: Options, by any of their names, that other keys set.
    """
    taken = {option for name in own if (option := snapshot.find(name))}
    seen: dict[LlamaOption, str] = {}
    wrong: dict[str, str] = {}
    for flag, value in sorted(flags.items()):
        option = snapshot.find(flag)
        text = _describe_flag_problem(snapshot, flag, option, value)
        if option in taken or (option and "download weights" in option.help):
            text = f"is not allowed in flags: other keys set {option.name}"
        elif option in seen:
            text = f"duplicates --{seen[option]}"
        if option:
            seen[option] = flag
        if text:
            wrong[flag] = text
    return wrong


def _describe_flag_problem(snapshot: LlamaSnapshot, flag: str, option: LlamaOption | None, value: str | bool) -> str:
    if option is None:
        new, to, source = RENAMED.get(flag, ("", "", ""))
        if snapshot.find(new):
            return f'is not an option of this llama-server: it is now {new} = "{to}" ({source})'
        return f"is not an option of this llama-server{suggestion(flag, snapshot.names())}"
    if option.removal_note:
        return f"was removed from llama-server, which says: {option.removal_note}"
    if f"--{flag}" not in option.spellings:
        return f'must be written with its long name, "{option.name}"'
    return option.describe_wrong_value(value)
