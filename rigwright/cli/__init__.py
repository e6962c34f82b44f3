"""The `rigwright` command: verbs over inventories, hosts and the project itself."""

from __future__ import annotations

import click

from rigwright.cli.demo import demo
from rigwright.cli.hosts import check, deploy
from rigwright.cli.lab import lab
from rigwright.cli.lock import lock
from rigwright.cli.test import test


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Rebuild GPU inference boxes from one lock, and prove that they are what was asked for.

    Begin with `rigwright demo`: it shows the whole path on a throwaway host of this machine. For a box of your own,
    write an inventory (README), then `rigwright deploy INVENTORY` and `rigwright check INVENTORY`.
    """


for command in (deploy, check, lock, lab, demo, test):
    main.add_command(command)
