"""Groups of verbs that import a verb's module when it runs, and complete an omitted INVENTORY."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import click
from click.shell_completion import CompletionItem

from cli import import_speedups
from cli.default_inventory import with_default_inventory
from cli.exit_codes import EXIT_STATUS_HELP
from cli.prog_name import localise_help

LONGEST_SUMMARY = 60  # characters


class LazyCommands(Mapping[str, click.Command]):
    """Commands that are imported on use: importing all of them takes longer than a deploy without changes."""

    def __init__(self, places: Mapping[str, tuple[str, str]]) -> None:
        self.places = dict(places)
        """Command -> its module in this package, and its function there."""

    def __getitem__(self, name: str) -> click.Command:
        module, function = self.places[name]
        import_speedups.speed_up_imports()
        command = localise_help(cast("click.Command", getattr(import_module(f"cli.{module}"), function)))
        if "Exit status" not in (command.help or ""):
            command.epilog = EXIT_STATUS_HELP
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def read_summary(self, name: str) -> str:
        """The first sentence of a command's docstring, read from its source without an import."""
        module, function = self.places[name]
        for node in ast.parse(Path(__file__).with_name(f"{module}.py").read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                return click.Command(name, help=ast.get_docstring(node)).get_short_help_str(LONGEST_SUMMARY)
        raise LookupError(f"cli/{module}.py has no function {function}")


class LazyGroup(click.Group):
    """A group of lazily imported commands, whose first argument INVENTORY may be omitted."""

    def __init__(self, *arguments: Any, places: Mapping[str, tuple[str, str]] | None = None, **options: Any) -> None:
        self.lazy_commands = LazyCommands(places or {})
        super().__init__(*arguments, **options)
        if places is not None:
            self.commands = cast("Any", self.lazy_commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and add the default inventory to its arguments if they name none."""
        if args and args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            from rigwright.problems import describe_unknown  # takes longer to import than the help to print

            ctx.fail(describe_unknown("command", args[0], self.commands))
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, with_default_inventory(ctx, command, rest) if command else rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands with that prefix, read without importing them, and the group's own options."""
        items = [
            CompletionItem(name, help=self.lazy_commands.read_summary(name))
            for name in self.lazy_commands
            if name.startswith(incomplete)
        ]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A line for each command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lazy_commands.read_summary(name)) for name in self.lazy_commands])
