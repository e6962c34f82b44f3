"""The `rigwright` command: verbs over inventories, hosts and the project itself."""

from __future__ import annotations

import click

from rigwright.cli.bench import bench
from rigwright.cli.demo import demo
from rigwright.cli.hosts import check, deploy, remove, rollback
from rigwright.cli.init import init
from rigwright.cli.lab import lab
from rigwright.cli.rigs import plan_, validate
from rigwright.cli.state import generations, logs, status
from rigwright.cli.test import test

PARTS = {
    "Before": (init, validate, plan_),
    "Change": (deploy, rollback, remove),
    "Look": (check, status, logs, generations),
    "Try": (demo, lab, test, bench),
}


class Story(click.Group):
    """A group whose help lists the verbs by what one does with them."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """One section a part."""
        for title, commands in PARTS.items():
            with formatter.section(title):
                formatter.write_dl([(command.name or "", command.get_short_help_str(120)) for command in commands])


@click.group(cls=Story, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def main() -> None:
    """Rebuild GPU inference boxes from one lock, and prove that they are what was asked for.

    Begin with `rigwright demo`: it shows the whole path on a throwaway host of this machine. For a box of your own,
    write an inventory (README), then `validate`, `plan`, `deploy` and `check` it.
    """


for command in (command for part in PARTS.values() for command in part):
    main.add_command(command)
