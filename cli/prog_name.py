"""The name of the command as it was called: `./rig`, or a name on the PATH."""

from __future__ import annotations

import os
import re
import shlex
from inspect import cleandoc
from pathlib import Path

import click

from rigwright.project_root import IS_CLONE, ROOT

NAME = "rigwright"
PROG_NAME_VARIABLE = "RIGWRIGHT_CALLED"
"""Set by the script `rig`."""
UNWRAPPED = "\b\n"  # before a paragraph that click does not wrap
TYPED_INVENTORY_KEY = f"{__name__}.given"
"""In a context of click's: the inventory's path as it was typed."""


def prog_name() -> str:
    """The command's name, as a line that is copied into the same shell has to begin."""
    found = os.environ.get(PROG_NAME_VARIABLE, "")
    return found if re.fullmatch(r"[A-Za-z0-9._/~+-]{1,200}", found) else NAME


def with_prog_name(text: str) -> str:
    """A text whose commands begin as this one was called: after a backquote, or `Example:`."""
    return re.sub(rf"(`|Example: ){NAME}(?= )", lambda found: f"{found[1]}{prog_name()}", text)


def locate_inventory(typed: str) -> str:
    """The path of an inventory. An installed wheel has the shipped ones in its own folder `inventory`."""
    if IS_CLONE or os.path.lexists(typed) or Path(typed).parts[:1] != ("inventory",):
        return typed
    shipped = ROOT / typed
    return str(shipped) if shipped.is_file() and shipped.resolve().is_relative_to(ROOT / "inventory") else typed


def with_typed_inventory(text: str, context: click.Context) -> str:
    """A text in which the inventory's path is as it was typed, quoted where a command has it."""
    given = context.meta.get(TYPED_INVENTORY_KEY)
    if given is None:
        return text
    whole = str(Path(locate_inventory(given)).resolve())
    return text.replace(shlex.quote(whole), shlex.quote(given)).replace(whole, given)


def localise_help(command: click.Command) -> click.Command:
    """A command whose help names it as it was called, with exit status and example as paragraphs."""
    text = cleandoc(with_prog_name(command.help or ""))
    if UNWRAPPED not in text:
        text = re.sub(r"\s+Example: ", f"\n\n{UNWRAPPED}Example: ", text)
    command.help = re.sub(r"\s+(?=Exit status:)", "\n\n", text) or None
    return command
