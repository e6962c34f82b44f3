"""The `rigwright` command: verbs over inventories, hosts and the project itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import click

from cli import quick

# verb -> where it is in this package
PARTS = {
    "Before": {
        "variants": "variants:variants",
        "init": "init:init",
        "host-key": "host_key:host_key",
        "new": "new:new",
        "lock": "lock:lock",
        "bundle": "bundle:bundle",
        "validate": "validate:validate",
        "plan": "plan:plan",
        "render": "render:render",
        "patches": "patches:patches",
        "ca": "ca:ca",
    },
    "Change": {
        "deploy": "hosts:deploy",
        "switch": "switch:switch",
        "upgrade": "hosts:upgrade",
        "rollback": "hosts:rollback",
        "remove": "hosts:remove",
        "keys": "keys:keys",
    },
    "Look": {
        "check": "check:check",
        "verify": "verify:verify",
        "status": "state:status",
        "logs": "state:logs",
        "generations": "state:generations",
        "load": "load:load",
        "models": "models:models",
        "shell": "shell:shell",
    },
    "Try": {"demo": "demo:demo", "lab": "lab:lab", "test": "test:test", "bench": "bench:bench"},
}


class Verbs(Mapping[str, click.Command]):
    """Commands that are imported when they are asked for: all together take longer than a deploy's own work."""

    def __init__(self) -> None:
        self.places = {name: place for part in PARTS.values() for name, place in part.items()}

    def __getitem__(self, name: str) -> click.Command:
        module, _, command = self.places[name].partition(":")
        quick.begin()
        return cast(click.Command, getattr(import_module(f"cli.{module}"), command))

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


VERBS = Verbs()


def _told(name: str) -> str:
    """A verb's first sentence, read from its source: importing them all takes longer than the rest of a help."""
    module, _, command = VERBS.places[name].partition(":")
    for node in ast.parse(Path(__file__).with_name(f"{module}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == command:
            return click.Command(name, help=ast.get_docstring(node)).get_short_help_str(120)
    raise LookupError(f"cli/{module}.py has no function {command}")


class Story(click.Group):
    """A group whose help lists the verbs by what one does with them."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """One section a part."""
        for title, names in PARTS.items():
            with formatter.section(title):
                formatter.write_dl([(name, _told(name)) for name in names])


@click.group(
    cls=Story,
    commands=cast(Any, VERBS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
def main() -> None:
    """Rebuild GPU inference boxes from one lock, and prove that they are what was asked for.

    Begin with `rigwright demo`: it shows the whole path on a throwaway host of this machine. For a box of your own,
    write an inventory (README), then `validate`, `plan`, `deploy` and `check` it.
    """
