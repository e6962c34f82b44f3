"""Tables of verbs for docs/reference/verbs.md, from their own help."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from cli import COMMAND_SECTIONS, main
from cli.prog_name import NAME


def render_verbs() -> str:
    """Every verb by section: usage, help and a table of its options."""
    return "\n".join(line for section in COMMAND_SECTIONS for line in _render_section(section))


def _render_section(section: str) -> Iterator[str]:
    yield f"## {section}\n"
    context = click.Context(main)
    for verb in COMMAND_SECTIONS[section]:
        if command := main.get_command(context, verb):
            yield from _render_command((verb,), command)


def _render_command(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    # click keeps the help option of a command's first context
    names = main.context_settings["help_option_names"]
    context = click.Context(command, info_name=" ".join((NAME, *path)), help_option_names=names)
    yield f"{'#' * min(2 + len(path), 6)} {' '.join(path)}\n"
    yield f"```text\n{' '.join((context.command_path, *command.collect_usage_pieces(context)))}\n```\n"
    yield f"{_render_help(command.help or '')}\n"
    rows = [row for row in map(_describe_option, command.params) if row]
    if rows:
        yield "".join(("| Option | Meaning |\n|---|---|\n", *(f"| {name} | {text} |\n" for name, text in rows)))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if one := command.get_command(context, name):
                yield from _render_command((*path, name), one)


def _render_help(text: str) -> str:
    """Paragraphs of a help, of which those after `\\b` keep their lines."""
    parts = []
    for part in re.split(r"\n\s*\n", text.partition("\f")[0].replace("./rig ", f"{NAME} ").strip()):
        kept = part.startswith("\b\n")
        parts.append(f"```text\n{part[2:]}\n```" if kept else _escape(" ".join(part.split())))
    return "\n\n".join(parts)


def _describe_option(one: click.Parameter) -> tuple[str, str] | None:
    """An option's names with its value, and its help; None for what has none."""
    if not isinstance(one, click.Option) or one.hidden or "--help" in one.opts:
        return None
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    value = "" if one.is_flag or one.count else f" {one.make_metavar(click.Context(click.Command(NAME)))}"
    text = " ".join((one.help or "").replace("./rig ", f"{NAME} ").split())
    if isinstance(one.show_default, bool) and one.show_default and one.default is not None:
        text = f"{text} Default: {one.default}."
    return f"{names}{_escape(value)}".replace("|", "\\|"), _escape(text).replace("|", "\\|")


def _escape(text: str) -> str:
    """A text without Markdown of its own, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(one if one.startswith("`") else re.sub(r"([*_<>\[\]])", r"\\\1", one) for one in parts)
