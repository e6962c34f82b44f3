"""The `rigwright` command: verbs over inventories, hosts and the project itself."""

from __future__ import annotations

import re
import shlex
from itertools import zip_longest
from typing import Any

import click

from cli import safe_output
from cli.exit_codes import EXIT_STATUS_HELP, ExitStatusGroup, InvalidRequest
from cli.lazy_commands import LazyGroup
from cli.prog_name import NAME, prog_name, with_prog_name, with_typed_inventory

# Section of the help -> its verbs. A verb is a function of that name, in the module of that name or in VERB_MODULES
COMMAND_SECTIONS = {
    "Build": (
        "init",
        "new",
        "lock",
        "bundle",
        "sign",
        "validate",
        "plan",
        "fit",
        "deploy",
        "switch",
        "rollback",
        "remove",
    ),
    "Inspect": ("status", "check", "verify-verdict", "doctor", "logs", "show", "sbom"),
    "Serve": ("chat", "key", "usage", "bench"),
    "Operate": ("rollout", "start", "stop", "restart", "ssh"),
    "Develop": ("demo", "lab", "test", "install"),
}
LEFT = ("Build", "Develop")  # sections of the help's left column
HELP_ROWS = {
    "plan": ("plan, fit", "Preview a deploy or memory"),
    "fit": (),
    "start": ("start, stop, restart", "Manage instances"),
    "stop": (),
    "restart": (),
}
"""Verb -> the row of the help that stands for it and others; empty for those others."""
# modules of several verbs
VERB_MODULES = {
    **dict.fromkeys(("deploy", "rollback", "remove"), "deploy_verbs"),
    **dict.fromkeys(("start", "stop", "restart"), "start_stop_restart"),
}


class VerbGroup(ExitStatusGroup, LazyGroup):
    """All verbs; the help lists them by purpose, and messages name the command as it was called."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command; all output passes through `safe_output`."""
        safe_output.install_streams()
        self.help = with_prog_name(self.help or "")
        options = {"prog_name": prog_name(), "complete_var": "_RIGWRIGHT_COMPLETE", **options}
        return super().main(*arguments, **options)

    def invoke(self, context: click.Context) -> object:
        """Run the verb."""
        try:
            return super().invoke(context)
        except click.ClickException as error:
            if isinstance(error, click.UsageError):
                error.__dict__["message"] += _instance_hint(error)
            # final to type checkers, for the code that raises it must not rewrite it
            error.__dict__["message"] = safe_output.escape_controls(
                with_prog_name(with_typed_inventory(error.message, context)), styles=False
            )
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; refuse a former one with the command that replaces it."""
        if args and args[0] not in self.commands and not ctx.resilient_parsing:
            from cli.renamed_verbs import RENAMED, replacement_command

            if args[0] in RENAMED:
                raise InvalidRequest(f"there is no verb {args[0]}: use `{replacement_command(args[0], args[1:])}`")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Two columns of verbs, which fit a terminal of 80 columns and 24 lines."""
        self.format_usage(ctx, formatter)
        formatter.write_text(self.help or "")
        columns = []
        for titles in (LEFT, [title for title in COMMAND_SECTIONS if title not in LEFT]):
            lines = []
            for title in titles:
                lines.append(click.style(f"{title}:", bold=True))
                summaries = {name: self.lazy_commands.read_summary(name) for name in COMMAND_SECTIONS[title]}
                rows = [HELP_ROWS.get(name, (name, text)) for name, text in summaries.items()]
                lines += [f"  {row[0]:8}  {row[1].removesuffix('.')}" for row in rows if row]
            columns.append(lines)
        width = max(len(click.unstyle(line)) for line in columns[0]) + 1
        formatter.write_paragraph()
        for left, right in zip_longest(*columns, fillvalue=""):
            formatter.write(f"{left}{' ' * (width - len(click.unstyle(left)))}{right}".rstrip() + "\n")
        formatter.write_paragraph()
        formatter.write_text(self.epilog or "")


def _instance_hint(error: click.UsageError) -> str:
    """`: use --instance NAME` for an argument that a verb with that option does not take."""
    found = re.fullmatch(r"Got unexpected extra argument \((\S+)\)", error.message)
    options = {name for one in (error.ctx.command.params if error.ctx else ()) for name in one.opts}
    return f": use --instance {shlex.quote(found[1])}" if found and "--instance" in options else ""


VERBS = {
    verb: (VERB_MODULES.get(verb, name), name)
    for section in COMMAND_SECTIONS.values()
    for verb in section
    for name in (verb.replace("-", "_"),)
}
"""Verb -> its module in this package, and its function there."""


@click.group(
    cls=VerbGroup,
    places=VERBS,
    epilog=EXIT_STATUS_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    subcommand_metavar="VERB [INVENTORY] ...",
)
@click.version_option(package_name=NAME, prog_name=NAME, message="%(prog)s %(version)s")
def main() -> None:
    """Rebuild GPU inference boxes. Begin with `rigwright demo`; see VERB --help."""


COMMANDS = main.lazy_commands
