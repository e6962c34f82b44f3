"""The `rigwright` command: verbs over inventories, hosts and the project itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import click
from click.shell_completion import CompletionItem

from cli import import_speedups, safe_output
from cli.exit_codes import EXIT_STATUS_HELP, ExitStatusGroup
from cli.prog_name import LONGEST, NAME, localise_help, prog_name, with_prog_name, with_typed_inventory

# Section of the help -> its verbs. A verb is a function of that name, in the module of that name or in VERB_MODULES
COMMAND_SECTIONS = {
    "Before": (
        *("variants", "init", "host-key", "new", "lock", "bundle", "validate", "plan", "render", "patches"),
        *("advisories", "ca", "doctor"),
    ),
    "Change": ("deploy", "switch", "upgrade", "rollback", "remove", "keys", "start", "stop", "restart"),
    "Use": ("url", "chat", "tunnel", "ssh", "run", "shell"),
    "Look": (
        *("check", "verify", "health", "diagnose", "stress", "status", "logs", "generations", "load", "report"),
        "models",
    ),
    "Try": ("demo", "lab", "test", "bench"),
    "The command itself": ("install", "completion"),
}
# modules of several verbs
VERB_MODULES = {
    **dict.fromkeys(("deploy", "upgrade", "rollback", "remove"), "deploy_verbs"),
    **dict.fromkeys(("start", "stop", "restart"), "start_stop_restart"),
    **dict.fromkeys(("tunnel", "ssh", "run"), "ssh"),
    **{verb: f"show_{verb}" for verb in ("models", "patches", "variants", "advisories", "url", "report")},
    **{"render": "show_compose", "verify": "check_serving", "diagnose": "host_evidence"},
    **{verb: f"bench_{verb}" for verb in ("stress", "load")},
    **dict.fromkeys(("logs", "generations"), "generations_and_logs"),
    "completion": "install",
}


class LazyCommands(Mapping[str, click.Command]):
    """Commands that are imported when they are asked for: all together take longer than a deploy's own work."""

    def __init__(self) -> None:
        names = [(verb, verb.replace("-", "_")) for verbs in COMMAND_SECTIONS.values() for verb in verbs]
        self.places = {verb: (VERB_MODULES.get(verb, function), function) for verb, function in names}
        """Verb -> its module in this package, and its function there."""

    def __getitem__(self, name: str) -> click.Command:
        module, command = self.places[name]
        import_speedups.speed_up_imports()
        found = localise_help(cast("click.Command", getattr(import_module(f"cli.{module}"), command)))
        if "Exit status" not in (found.help or ""):
            found.epilog = EXIT_STATUS_HELP
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


COMMANDS = LazyCommands()


def _read_summary(name: str) -> str:
    """A verb's first sentence, read from its source: importing them all takes longer than the rest of a help."""
    module, command = COMMANDS.places[name]
    for node in ast.parse(Path(__file__).with_name(f"{module}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == command:
            return click.Command(name, help=ast.get_docstring(node)).get_short_help_str(LONGEST)
    raise LookupError(f"cli/{module}.py has no function {command}")


class VerbGroup(ExitStatusGroup):
    """A group whose help lists the verbs by what one does with them, and whose texts name it as it was called."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command, all of whose text goes through one gate."""
        safe_output.install_streams()
        self.help = with_prog_name(self.help or "")
        options = {"prog_name": prog_name(), "complete_var": "_RIGWRIGHT_COMPLETE", **options}
        return super().main(*arguments, **options)

    def invoke(self, context: click.Context) -> object:
        """Run the verb."""
        try:
            return super().invoke(context)
        except click.ClickException as error:
            # final to type checkers, for it is not meant to be rewritten by who raises it
            error.__dict__["message"] = safe_output.escape_controls(
                with_prog_name(with_typed_inventory(error.message, context)), styles=False
            )
            raise

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """The verbs that begin like that, without importing them; its own options."""
        found = [
            CompletionItem(name, help=_read_summary(name))
            for names in COMMAND_SECTIONS.values()
            for name in names
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, context, incomplete)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """One section a part."""
        for title, names in COMMAND_SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, _read_summary(name)) for name in names])


@click.group(
    cls=VerbGroup,
    commands=cast("Any", COMMANDS),
    epilog=EXIT_STATUS_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name=NAME, prog_name=NAME, message="%(prog)s %(version)s")
def main() -> None:
    """Rebuild GPU inference boxes from one lock, and prove that they match their declaration.

    Begin with `rigwright demo`: it shows the whole path on a throwaway host of this machine. For a box of your own,
    write an inventory (README), then `validate`, `plan`, `deploy` and `check` it.
    """
