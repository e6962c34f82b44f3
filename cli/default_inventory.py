"""The inventory of a command that names none: RIGWRIGHT_INVENTORY, or the only one in the current folder."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

VARIABLE = "RIGWRIGHT_INVENTORY"
RIGS = re.compile(r"^rigs\s*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
MISNAMED = re.compile(r"^([A-Za-z]\w{0,80})\s*=\s*hosts\(", re.MULTILINE)
MAX_BYTES = 1 << 20  # bytes of a file that is searched for `rigs`
DecoratedCommand = TypeVar("DecoratedCommand", bound=Callable[..., Any])


class InventoryArgument(click.Argument):
    """A command's first argument, INVENTORY."""

    def __init__(self, *arguments: Any, unused_with: Iterable[str] = (), **options: Any) -> None:
        self.unused_with = tuple(unused_with)
        """Options with which the command reads no inventory."""
        super().__init__(*arguments, **options)

    def make_metavar(self, ctx: click.Context) -> str:
        """INVENTORY in brackets, because a default exists."""
        return "[INVENTORY]"

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Its name in messages."""
        return "'INVENTORY'"


def find_inventories(folder: Path) -> list[str]:
    """Names of the folder's *.py files that assign `rigs` at top level, sorted.

    An inventory is a program: files that another user owns or can write are left out, as they have to be named.
    """
    return [name for name, text in _read_programs(folder) if RIGS.search(text)]


def _read_programs(folder: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of the folder's *.py files that no other user owns or can write."""
    invoker = os.environ.get("SUDO_UID", "")
    owners = {os.geteuid(), 0, int(invoker) if invoker.isdecimal() else 0}
    for path in sorted(folder.glob("*.py")):
        with suppress(OSError):
            facts = path.stat()
            trusted = facts.st_uid in owners and not facts.st_mode & stat.S_IWOTH
            if trusted and path.is_file() and facts.st_size <= MAX_BYTES:
                yield path.name, path.read_text(errors="replace")


def default_inventory() -> str | None:
    """Path of the default inventory; None if there is none, or the folder has several."""
    if named := os.environ.get(VARIABLE):
        return named
    names = find_inventories(Path())
    return names[0] if len(names) == 1 else None


def describe_missing() -> str:
    """Why there is no default inventory, as one sentence."""
    names = find_inventories(Path())
    if names:
        return f"This folder has several inventories: {', '.join(names)}. Name one, or set {VARIABLE}."
    near = [(name, found[1]) for name, text in _read_programs(Path()) if (found := MISNAMED.search(text))]
    hint = f" {near[0][0]} assigns hosts() to `{near[0][1]}`: rename it to `rigs`." if near else ""
    return f"This folder has no inventory of yours (a *.py file that assigns `rigs`), and {VARIABLE} is not set.{hint}"


def is_inventory(word: str) -> bool:
    """Whether a first argument is INVENTORY rather than the argument after it."""
    if is_model(word):
        return False
    return word.endswith(".py") or os.path.isfile(word)  # noqa: PTH113 (False for a name that is too long)


def is_model(word: str) -> bool:
    """Whether an argument names a model: a GGUF file here or on the hub, or a folder with weights."""
    return word.endswith(".gguf") or os.path.isfile(f"{word}/config.json")  # noqa: PTH113 (as above)


def with_default_inventory(context: click.Context, command: click.Command, words: list[str]) -> list[str]:
    """A command's words, with the default inventory before them if they name none.

    The choice is printed on standard error. While a shell completes words, an inventory is added only if another
    argument is typed already: the next word may be either.
    """
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    if not arguments or not isinstance(arguments[0], InventoryArgument):
        return words
    if {*words} & {*command.get_help_option_names(context), *arguments[0].unused_with}:
        return words
    first = _first_argument(command, words)
    typed = context.resilient_parsing if first is None else len(arguments) == 1 or is_inventory(first)
    path = None if typed else default_inventory()
    if path is None:
        return words
    if not context.resilient_parsing:
        click.echo(f"inventory: {path}{f' ({VARIABLE})' if os.environ.get(VARIABLE) else ''}", err=True)
    return [path, *words]


def _first_argument(command: click.Command, words: list[str]) -> str | None:
    options = [one for one in command.params if isinstance(one, click.Option)]
    with_value = {
        name for one in options if not (one.is_flag or one.count) for name in (*one.opts, *one.secondary_opts)
    }
    rest = iter(words)
    for word in rest:
        if word == "--":
            return next(rest, None)
        if not word.startswith("-") or word == "-":
            return word
        if word in with_value:
            next(rest, None)
    return None
