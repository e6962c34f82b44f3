"""Sources of the operator's secrets: a file, or the output of a command such as `pass`, `age` or `sops`."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from rigwright import local_files
from rigwright.local_files import SecretUnavailable
from rigwright.problems import InventoryModel
from rigwright.safe_text import hide_tokens
from rigwright.validated_types import PLAIN, LocalPath, matching

EXAMPLE = '["pass", "show", "hf/token"]'
_RUN_COMMANDS: ContextVar[bool] = ContextVar("run_commands", default=False)


def _refuse_shell_line(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(f"a list with the program and each argument, such as {EXAMPLE}: no shell reads it")
    return value


def _refuse_secret(value: str) -> str:
    if hide_tokens(value) != value:
        raise ValueError("an argument without the secret: other users of this machine can read arguments")
    return value


Argument = Annotated[
    str,
    matching(rf"(?:(?![\ud800-\udfff]){PLAIN}){{1,4096}}", "text of 1 to 4096 characters on one line"),
    AfterValidator(_refuse_secret),
]


class SecretCommand(InventoryModel):
    """A command on your machine that prints the secret."""

    command: Annotated[tuple[Argument, ...], BeforeValidator(_refuse_shell_line)] = Field(
        min_length=1,
        max_length=64,
        description=f"The program and its arguments, such as `{EXAMPLE}`. It runs in the inventory's folder, without a "
        "shell and without a terminal, at most 60 seconds, once per run for all hosts. A program with a slash is a "
        "path relative to the inventory.",
    )


def _refuse_list(value: object) -> object:
    if isinstance(value, list | tuple):
        raise ValueError(f'the path of a file, or a command: {{"command": {EXAMPLE}}}')
    return value


def _source_tag(value: object) -> str:
    return "[command]" if isinstance(value, dict | SecretCommand) else "[file]"


SecretEntry = Annotated[
    Annotated[LocalPath, BeforeValidator(_refuse_list), Tag("[file]")] | Annotated[SecretCommand, Tag("[command]")],
    Discriminator(_source_tag),
]
"""A secret as an inventory declares it."""


@dataclass(frozen=True)
class CommandSource:
    """A declared command with the folder that it runs in."""

    arguments: tuple[str, ...]
    folder: str

    def __str__(self) -> str:
        """Its name in messages: an argument may say more of a secret than its program."""
        return f"the command {self.arguments[0]}"

    def find_program(self) -> str:
        """The path of its program.

        Raises:
            SecretUnavailable: there is no such program.
        """
        name = self.arguments[0]
        path = Path(self.folder) / Path(name).expanduser()
        if "/" in name:
            try:
                local_files.refuse_special_file(path)
            except ValueError as error:
                raise SecretUnavailable(str(error)) from None
            if not os.access(path, os.X_OK):
                raise SecretUnavailable(f"is not executable: chmod +x {path}")
            return str(path)
        if found := shutil.which(name):
            return found
        words = name.split()
        hint = f'; each argument is an item of its own: "{words[0]}", "{words[1]}", ...' if len(words) > 1 else ""
        raise SecretUnavailable(f"is not installed: no such program in PATH{hint}")


SecretSource: TypeAlias = "str | CommandSource"
"""A file's path, or a command."""


@contextmanager
def run_secret_commands() -> Iterator[None]:
    """Have inventories that load while the block runs read the output of commands as they read files."""
    token = _RUN_COMMANDS.set(True)
    try:
        yield
    finally:
        _RUN_COMMANDS.reset(token)


def is_readable(source: SecretSource) -> bool:
    """Whether an inventory that loads reads this secret; without it, a command only has to exist."""
    return isinstance(source, str) or _RUN_COMMANDS.get()


def validate_secret(source: SecretSource, load: Callable[[SecretSource], object]) -> None:
    """Refuse a source that does not provide its secret.

    Args:
        source: The source.
        load: Reads it, and raises ValueError for content of another form.

    Raises:
        ValueError: the source does not provide it.
    """
    if is_readable(source):
        load(source)
    elif not isinstance(source, str):
        source.find_program()


def read_secret(source: SecretSource, most: int) -> bytes:
    """The content of a source. A command runs once in this process.

    Args:
        source: The source.
        most: Largest content, bytes.

    Raises:
        ValueError: there is no content, or more; the text says why, without the source and without the secret.
    """
    if isinstance(source, str):
        try:
            return local_files.read_content(source, most)
        except ValueError as error:
            raise ValueError(f"{error}{_suggest_command(source)}") from None
    with _run_lock():
        # a failure counts as well: a second request for a passphrase would be refused as the first one
        found = _OUTPUTS.get(source)
        if found is None:
            try:
                # by name: the domain itself starts no program
                found = import_module("roles.secret_commands").run_secret_command(source, most)
            except SecretUnavailable as error:
                found = error
            _OUTPUTS[source] = found
    if isinstance(found, SecretUnavailable):
        raise SecretUnavailable(str(found))
    if len(found) > most:
        raise SecretUnavailable(f"prints more than {most} bytes")
    return found


_OUTPUTS: dict[CommandSource, bytes | SecretUnavailable] = {}


@cache
def _run_lock() -> threading.Lock:
    """The lock of runs. It is made late: one from before gevent has patched threads would block all greenlets."""
    return threading.Lock()


def _suggest_command(path: str) -> str:
    """The hint for a command in the place of a path: the first name with a space is not a file but starts a command."""
    names = Path(path).parts
    first = next((number for number, name in enumerate(names) if " " in name), len(names))
    words = "/".join(names[first:]).split()
    if len(words) < 2 or Path(*names[: first + 1]).exists() or not shutil.which(words[0]):
        return ""
    return '; a command is a list of arguments: {"command": [' + ", ".join(f'"{one}"' for one in words) + "]}"
